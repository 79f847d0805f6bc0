"""Linear and GCNConv: PyG's behaviour in fp32, the stated formulas in the binary forms."""

import pytest
import torch
import torch_geometric.nn
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from wrong_calls import check_wrong_calls

from bitgnn import BitAdjacency
from bitgnn.nn import GCNConv, LayerPrecision, Linear
from bitgnn.nn.aggregation import aggregate
from bitgnn.quantize import binary_linear, sgn

N, IN, OUT = 30, 40, 12


def dense(edge_index, weighted=True):
    index, weight = gcn_norm(edge_index, None, N)
    weight = weight if weighted else torch.ones(())
    return torch.zeros(N, N).index_put_((index[1], index[0]), weight, accumulate=True)


def product(x, weight):
    scale = x.abs().mean(-1, keepdim=True) * weight.abs().mean(1)
    return scale * (sgn(x) @ sgn(weight).t())


@pytest.mark.parametrize("kind", ["Linear", "GCNConv"])
def test_fp32_is_pyg(graph, x, kind):
    given = (x,) if kind == "Linear" else (x, graph)
    options = {"weight_initializer": "glorot"} if kind == "Linear" else {}
    torch.manual_seed(0)
    theirs = getattr(torch_geometric.nn, kind)(IN, OUT, **options)
    ours_class = {"Linear": Linear, "GCNConv": GCNConv}[kind]
    torch.manual_seed(0)
    ours = ours_class(IN, OUT, precision="fp32", **options)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert all(map(torch.equal, ours.state_dict().values(), theirs.state_dict().values()))
    assert torch.equal(ours(*given), theirs(*given))
    assert str(ours) == str(theirs)
    binary = ours_class(IN, OUT, precision="bin")
    binary.load_state_dict(theirs.state_dict())
    weight = next(w for name, w in binary.state_dict().items() if name.endswith("weight"))
    assert any(torch.equal(weight, own) for own in theirs.state_dict().values())


@pytest.mark.parametrize("size", [1, 31, 33])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (0,)])
def test_full_linear_is_the_formula(size, shape):
    x = torch.randn(*shape, size)
    layer = Linear(size, 4, precision="FBF")
    torch.nn.init.normal_(layer.bias)
    expected = product(x, layer.weight) + layer.bias
    assert layer(x).shape == (*shape, 4)
    assert torch.allclose(layer(x), expected, atol=1e-5)


def test_bit_outputs_of_linear_are_signs_behind_the_bias(x):
    layer = Linear(40, 6, precision="FBB")
    torch.nn.init.normal_(layer.bias)
    assert torch.equal(layer(x), sgn(product(x, layer.weight) + layer.bias))
    bare = Linear(40, 6, bias=False, precision="FBB")
    assert torch.equal(bare(x), sgn(sgn(x) @ sgn(bare.weight).t()))


def test_norms_and_hardtanh_act_in_their_places(x):
    norms = {"input_norm": "batch", "hidden_norm": "batch", "output_norm": "batch"}
    layer = Linear(40, 6, precision=LayerPrecision("FBB", "BBF", hardtanh=True, **norms))
    torch.nn.init.normal_(layer.bias)
    torch.nn.init.normal_(layer.hidden_norm.bias)
    u = layer.input_norm(x).clamp(-1, 1)
    expected = layer.output_norm(layer.hidden_norm(product(u, layer.weight)) + layer.bias)
    out = layer(x)
    clear = expected.abs() > 1e-4
    assert torch.equal(out[clear], sgn(expected)[clear])
    assert clear.float().mean() > 0.9


def test_full_gcn_is_the_formula(graph, x):
    conv = GCNConv(IN, OUT, precision="FBF+FBF")
    torch.nn.init.normal_(conv.bias)
    expected = dense(graph) @ product(x, conv.lin.weight) + conv.bias
    assert torch.allclose(conv(x, graph), expected, atol=1e-5)


@pytest.mark.parametrize("letters", ["FBB+BBF", "FBB+BBB"])
def test_bin_gcn_leaves_the_column_factor_out(graph, x, letters):
    conv = GCNConv(IN, OUT, precision=letters)
    torch.nn.init.normal_(conv.bias)
    bits, pattern = sgn(sgn(x) @ sgn(conv.lin.weight).t()), dense(graph, weighted=False)
    expected = pattern.sum(1, keepdim=True).rsqrt() * (pattern @ bits) + conv.bias
    expected = sgn(expected) if letters.endswith("B") else expected
    assert torch.allclose(conv(x, graph), expected, atol=1e-5)


def test_float_adjacency_letter_uses_exact_weights(graph, x):
    weight = torch.rand(graph.size(1))
    conv = GCNConv(IN, OUT, precision="FBF+FFF")
    # Feed PyG's layer the binary product by making its own linear map the identity.
    plain = torch_geometric.nn.GCNConv(OUT, OUT, bias=False)
    plain.lin.weight.data = torch.eye(OUT)
    expected = plain(binary_linear(x, conv.lin.weight), graph, weight)
    assert torch.allclose(conv(x, graph, weight), expected, atol=1e-5)


def test_aggregation_gradient_is_the_transposed_matrix(graph, x):
    adjacency = BitAdjacency.from_edge_index(graph, N, normalize="sym", add_self_loops=True)
    bias = torch.zeros(IN, requires_grad=True)
    x = x.clone().requires_grad_()
    grad = torch.randn(N, IN)
    aggregate(x, adjacency, bias).backward(grad)
    assert torch.allclose(x.grad, dense(graph).t() @ grad, atol=1e-5)
    assert torch.allclose(bias.grad, grad.sum(0), atol=1e-5)


WRONG = r"""
linear(x[:, 1:]) -> ValueError: Linear: x must be \[N, 40\], got \[30, 39\]
linear(x.numpy()) -> TypeError: Linear: x must be a tensor, got float32 ndarray
Linear(40, 6, dropout=1.0) -> ValueError: Linear: dropout must be in \[0, 1\), got 1.0
exact(x, ready) -> ValueError: aggregates with float edge weights
"""


def test_wrong_calls(graph, x):
    linear, exact = Linear(40, 6, precision="FBF"), GCNConv(IN, OUT, precision="FBF+FFF")
    ready = BitAdjacency.from_edge_index(graph, N)
    check_wrong_calls(WRONG, {**globals(), **locals()})
