"""T in graph layers: formulas, gradients and frozen forms."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import bitgnn
from bitgnn.bits import BitAdjacency
from bitgnn.models import GCN, GraphSAGE
from bitgnn.nn import GCNConv, Linear
from bitgnn.quantize import row_scale, sgn, ternary

NODES, WIDTH = 30, 40


def test_linear_is_the_formula() -> None:
    torch.manual_seed(0)
    layer = Linear(WIDTH, 7, precision="TBF")
    x = torch.randn(NODES, WIDTH)
    layer(x)
    scale = layer.input_quantizer.scale.detach()
    weight = layer.weight.detach()
    dot = (ternary(x, scale) / scale).round() @ torch.where(weight >= 0, 1.0, -1.0).t()
    expected = (scale * row_scale(weight)) * dot + layer.bias
    assert torch.equal(layer(x), expected)
    bits = Linear(WIDTH, 7, bias=False, precision="TBB")
    bits.load_state_dict({k: v for k, v in layer.state_dict().items() if k != "bias"})
    assert torch.equal(bits(x), torch.where(expected - layer.bias >= 0, 1.0, -1.0))


def test_gradients_reach_weights_and_scales_by_bigcns_rule() -> None:
    torch.manual_seed(0)
    layer = Linear(6, 4, bias=False, precision="TBF")
    x = torch.randn(10, 6)
    layer(x)
    weight = layer.weight.detach().clone().requires_grad_()
    scale = layer.input_quantizer.scale.detach().clone().requires_grad_()
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    grad = torch.randn(10, 4)
    layer(a).backward(grad)
    window = weight.detach().abs() <= 1
    signs = torch.where(weight.detach() >= 0, 1.0, -1.0)
    through = signs + (weight - weight.detach()) * window
    m = (weight * signs).mean(1)
    (m * (ternary(b, scale) @ through.t())).backward(grad)
    torch.testing.assert_close(layer.weight.grad, weight.grad)
    torch.testing.assert_close(a.grad, b.grad)
    torch.testing.assert_close(layer.input_quantizer.scale.grad, scale.grad)


def test_sums_are_of_ternary_values(simple: torch.Tensor) -> None:
    torch.manual_seed(0)
    layer = GCNConv(WIDTH, 8, precision="FBF+TBF").train()
    x = torch.randn(NODES, WIDTH)
    layer(x, simple)
    adjacency = BitAdjacency.from_edge_index(simple, NODES, normalize="sym", add_self_loops=True)
    full = GCNConv(WIDTH, 8, bias=False, precision="FBF+FBF")
    full.load_state_dict({"lin.weight": layer.lin.weight.detach()})
    identity = torch.arange(NODES).expand(2, -1)
    z = full(x, BitAdjacency.from_edge_index(identity, NODES))
    scale = layer.hidden_quantizer.scale.detach()
    t = (ternary(z, scale) / scale).round()
    pattern = torch.zeros(NODES, NODES)
    pattern[simple[1], simple[0]] = 1
    pattern.fill_diagonal_(1)
    expected = (adjacency.row_scale * scale).unsqueeze(1) * (pattern @ t) + layer.bias
    assert torch.equal(layer(x, simple), expected)


def trained(model: nn.Module, graph: torch.Tensor) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(NODES, WIDTH)
    labels = torch.randint(0, 3, (NODES,))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(5):
        optimizer.zero_grad()
        functional.cross_entropy(model(x, graph), labels).backward()
        optimizer.step()
    return model.eval(), x


@pytest.mark.parametrize(
    ("kind", "precision"),
    [
        (GCN, "TBF+TBF, TBF+FBF"),
        (GCN, "TBB+BBB, TBF+TBF"),
        (GCN, "TBF+TBB, BBF+TBF"),
        (GCN, "FFF+TBB, TBB+BBF"),
        (GraphSAGE, "TBF+TBF, TBF+TBF"),
        (GraphSAGE, "TBF+TBB, BBF+TBF"),
        (GraphSAGE, "TBB+BBF, TBF+FBF"),
    ],
)
def test_frozen_models_are_equal_bit_for_bit(
    kind: type, precision: str, graph: torch.Tensor, tmp_path
) -> None:
    model, x = trained(kind(WIDTH, 33, 3, precision=precision), graph)
    frozen = bitgnn.freeze(model)
    assert frozen.report.letters == {
        f"convs.{i}": letters for i, letters in enumerate(precision.split(", "))
    }
    expected = model(x, graph)
    # Floats that sum floats may do so in another order.
    exact = "FBF" not in precision and "FFF" not in precision
    same = torch.equal if exact else torch.testing.assert_close
    assert same(frozen(x, frozen.prepare_graph(graph, NODES)), expected) in (True, None)
    plain = torch.unique(graph, dim=1)
    first = frozen(x, frozen.prepare_graph(plain, NODES))
    for layout in ("csr", "sliced", "frdc"):
        assert torch.equal(frozen(x, frozen.prepare_graph(plain, NODES, layout=layout)), first)
    bitgnn.save(frozen, tmp_path)
    assert torch.equal(bitgnn.load(tmp_path)(x, frozen.prepare_graph(plain, NODES)), first)
    assert "T" not in str(frozen.report.floats)
    summary = bitgnn.summary(model, (x, graph))
    assert summary.layers


@pytest.mark.cuda
def test_frozen_models_on_a_gpu(graph: torch.Tensor) -> None:
    model, x = trained(GCN(WIDTH, 33, 3, precision="TBF+TBF"), graph)
    expected = model(x, graph)
    frozen = bitgnn.freeze(model.cuda())
    adjacency = frozen.prepare_graph(graph.cuda(), NODES)
    got = frozen(x.cuda(), adjacency)
    assert torch.equal(got, model(x.cuda(), graph.cuda()))
    torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.parametrize("relu", [False, True])
def test_dropout_in_front_leaves_the_thresholds_alone(relu: bool, device: torch.device) -> None:
    torch.manual_seed(0)
    layer = Linear(40, 6, bias=False, precision="TBF").to(device)
    x = torch.randn(30, 40, device=device, requires_grad=True)
    a = functional.relu(x) if relu else x * 1.0
    layer.input_quantizer.initialize(a.detach())
    dropped = functional.dropout(a, 0.5)
    q = layer.input_quantizer.quantize(a.detach())
    assert len(q.unique()) == 3 - relu
    out = layer(dropped)
    kept = (dropped != 0).float()
    scale = layer.input_quantizer.scale.detach() / 0.5
    expected = scale * row_scale(layer.weight) * ((q * kept) @ sgn(layer.weight).t())
    torch.testing.assert_close(out, expected.to(out.dtype))
    layer.eval()
    assert torch.equal(layer(a), layer(a.detach()))
