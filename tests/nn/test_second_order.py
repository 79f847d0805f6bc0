"""Gradients of gradients: right where a layer is linear, refused where they are surrogates."""

import importlib
import pkgutil
import warnings

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

import bitgnn
import bitgnn.nn as bits
from bitgnn import BitAdjacency
from bitgnn.nn.aggregation import aggregate
from bitgnn.quantize import binary_sign

REFUSED = "a surrogate, which has no derivative"
LINEAR = {"_Aggregate", "_AggregateValues", "_WithParameters", "_WithValue", "_Refused"}
"""Functions whose backward is differentiable itself, or is the refusal."""


def penalty(layer: nn.Module, x: Tensor, *graph: object) -> list[Tensor]:
    """Gradients of a gradient penalty in weights and input."""
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x, *graph).tanh().sum(), x, create_graph=True)
    loss = gradient.square().sum()
    return list(torch.autograd.grad(loss, [x, *layer.parameters()], allow_unused=True))


def check_close(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            scale = float(other.detach().abs().max())
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("use_row", [True, False])
@pytest.mark.parametrize("use_col", [True, False])
def test_aggregation_has_all_derivatives(use_row: bool, use_col: bool) -> None:
    generator = torch.Generator().manual_seed(4)
    edges = torch.stack([torch.randint(size, (40,), generator=generator) for size in (9, 6)])
    held = BitAdjacency.from_edge_index(edges, (6, 9))
    row, col = torch.rand(6, generator=generator) + 0.5, torch.rand(9, generator=generator) + 0.5
    adjacency = BitAdjacency(held.rowptr, held.indices, 9, row, col)
    dense = held.to_dense() * (row[:, None] if use_row else 1.0) * (col if use_col else 1.0)
    x = torch.randn(9, 5, generator=generator, requires_grad=True)
    bias = torch.randn(5, generator=generator, requires_grad=True)

    def derivatives(out: Tensor) -> list[Tensor]:
        """The first three, each of a function of the one before."""
        found, value = [], out.pow(3).sum()
        for _ in range(3):
            grads = torch.autograd.grad(value, (x, bias), create_graph=True)
            found += grads
            value = sum(grad.pow(2).sum() for grad in grads)
        return found

    mine = derivatives(aggregate(x, adjacency, bias, use_row=use_row, use_col=use_col))
    check_close(mine, derivatives(dense @ x + bias))


@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv", "GraphConv"])
def test_penalty_through_float_products(name: str, graph: Tensor, x: Tensor) -> None:
    theirs = getattr(pyg, name)(40, 6)
    nodes = len(x)
    options = {
        "GCNConv": {"normalize": "sym", "add_self_loops": True},
        "SAGEConv": {"normalize": "mean"},
        "GraphConv": {},
    }[name]
    adjacency = BitAdjacency.from_edge_index(graph, nodes, **options)
    expected = penalty(theirs, x, graph)
    for precision, given in (("fp32", adjacency), ("FFF+FBF", graph), ("FFF+FBF", adjacency)):
        mine = getattr(bits, name)(40, 6, precision=precision)
        mine.load_state_dict(theirs.state_dict(), strict=False)
        check_close(penalty(mine, x, given), expected)


@pytest.mark.parametrize("precision", ["bin", "full", "FBF+FBF", "BBB+BBF", "FFB+BBF", "TBF+FBF"])
@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv", "GraphConv"])
@pytest.mark.parametrize("is_sum", [True, False])
def test_binary_layers_refuse(
    name: str, precision: str, is_sum: bool, graph: Tensor, x: Tensor
) -> None:
    layer = getattr(bits, name)(40, 6, precision=precision)
    x = x.clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of dense features that are learnt
        out = layer(x, graph)
    # The gradient of a sum is a constant, which no graph of autograd shows.
    loss = out.sum() if is_sum else out.square().sum()
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match=REFUSED):
        (loss + gradient.square().sum()).backward()


@pytest.mark.parametrize("kind", ["linear", "conv", "bwta", "attention"])
def test_other_layers_refuse(kind: str) -> None:
    layer, shape = {
        "linear": (bits.BinaryLinear(12, 5), (4, 12)),
        "conv": (bits.BinaryConv2d(3, 5, 3), (2, 3, 6, 6)),
        "bwta": (bits.BWTALinear(12, 5), (4, 12)),
        "attention": (bits.BWTASelfAttention(12, 2), (2, 4, 12)),
    }[kind]
    x = torch.randn(shape, requires_grad=True)
    out = layer(x)
    out = out[0] if isinstance(out, tuple) else out
    (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=REFUSED):
        gradient.square().sum().backward()


def test_refusal_names_the_function_and_leaves_gradients_as_they_are() -> None:
    x = torch.randn(6, requires_grad=True)
    weight = torch.randn(6)
    loss = (binary_sign(x) * weight).sum()
    (plain,) = torch.autograd.grad(loss, x, retain_graph=True)
    (held,) = torch.autograd.grad(loss, x, create_graph=True)
    assert torch.equal(plain, held)
    with pytest.raises(RuntimeError, match=r"^Sign: its gradient"):
        torch.autograd.grad(held.sum(), x)


def test_hessian_of_functions_is_refused(x: Tensor) -> None:
    layer = bits.BWTALinear(40, 3)
    layer(x)

    def loss(given: Tensor) -> Tensor:
        return layer(given).square().sum()

    assert torch.func.grad(loss)(x[:2]).shape == (2, 40)
    with pytest.raises(RuntimeError, match=REFUSED):
        torch.func.grad(lambda given: torch.func.grad(loss)(given).square().sum())(x[:2])


def test_every_autograd_function_is_of_first_order_or_linear() -> None:
    for module in pkgutil.walk_packages(bitgnn.__path__, "bitgnn."):
        if not module.name.endswith(("__main__", "._C_cpu", "._C_cuda")):
            importlib.import_module(module.name)
    mine, open_ones = [], [torch.autograd.Function]
    while open_ones:
        found = open_ones.pop().__subclasses__()
        open_ones += found
        mine += [held for held in found if held.__module__.startswith("bitgnn.")]
    assert len(mine) >= 10
    for function in mine:
        refuses = getattr(function.backward, "is_first_order", False)
        assert refuses or function.__name__ in LINEAR, function
