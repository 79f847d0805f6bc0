"""T in graph layers: formulas, gradients and frozen forms."""

import copy

import pytest
import torch
import torch_geometric.nn
from graphs import odd_graph
from torch import Tensor
from torch.nn import functional

import bitgnn
from bitgnn.bits import BitAdjacency
from bitgnn.convert.binarizing import run_example
from bitgnn.convert.swap.graphs import with_letters
from bitgnn.models import GCN, GraphSAGE
from bitgnn.nn import GCNConv, Linear
from bitgnn.quantize import row_scale, sgn, ternary

NODES, WIDTH = 30, 40


def test_linear_and_its_gradients_are_the_formula() -> None:
    torch.manual_seed(0)
    layer = Linear(WIDTH, 7, precision="TBF")
    x = torch.randn(NODES, WIDTH, requires_grad=True)
    layer(x)
    scale = layer.input_quantizer.scale.detach().clone().requires_grad_()
    weight = layer.weight.detach()
    signs = torch.where(weight >= 0, 1.0, -1.0)
    dot = (ternary(x, scale) / scale).round() @ signs.t()
    expected = (scale * row_scale(weight)) * dot + layer.bias
    out = layer(x)
    assert torch.equal(out, expected)
    bits = Linear(WIDTH, 7, bias=False, precision="TBB")
    bits.load_state_dict({k: v for k, v in layer.state_dict().items() if k != "bias"})
    assert torch.equal(bits(x), torch.where(expected - layer.bias >= 0, 1.0, -1.0))
    # Bi-GCN's rule: through the signs where weights are not clipped, and through the row scale.
    weight.requires_grad_()
    through = signs + (weight - weight.detach()) * (weight.detach().abs() <= 1)
    product = (weight * signs).mean(1) * (ternary(x, scale) @ through.t())
    grad = torch.randn(NODES, 7)
    found = torch.autograd.grad(out, (x, layer.weight, layer.input_quantizer.scale), grad)
    torch.testing.assert_close(found, torch.autograd.grad(product, (x, weight, scale), grad))


def test_sums_are_of_ternary_values(simple: Tensor) -> None:
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


def trained(kind: type, precision: str, graph: Tensor, nodes: int, *sizes: int) -> tuple:
    """A model in evaluation whose scales are those of a few steps, and its features."""
    torch.manual_seed(0)
    model, x = kind(*sizes, precision=precision), torch.randn(nodes, sizes[0])
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        functional.cross_entropy(model(x, graph), torch.arange(nodes) % sizes[2]).backward()
        optimizer.step()
    return model.eval(), x


# What sums floats may do so in another order; in these, bits and ternary values alone are summed.
EXACT = [
    (GCN, "TBF+TBF, TBF+TBF"),
    (GCN, "TBB+BBB, TBF+TBF"),
    (GCN, "TBF+TBB, BBF+TBF"),
    (GraphSAGE, "TBF+TBF, TBF+TBF"),
    (GraphSAGE, "TBF+TBB, BBF+TBF"),
]
FLOAT_SUMS = [
    (GCN, "TBF+TBF, TBF+FBF"),
    (GCN, "FFF+TBB, TBB+BBF"),
    (GraphSAGE, "TBB+BBF, TBF+FBF"),
]


@pytest.mark.parametrize(("kind", "precision"), EXACT + FLOAT_SUMS)
def test_frozen_models_are_equal_bit_for_bit(
    kind: type, precision: str, graph: Tensor, tmp_path
) -> None:
    model, x = trained(kind, precision, graph, NODES, WIDTH, 33, 3)
    frozen = bitgnn.freeze(model)
    assert frozen.report.letters == {
        f"convs.{i}": letters for i, letters in enumerate(precision.split(", "))
    }
    tolerance = {"rtol": 0, "atol": 0} if (kind, precision) in EXACT else {}
    found = frozen(x, frozen.prepare_graph(graph, NODES))
    torch.testing.assert_close(found, model(x, graph), **tolerance)
    plain = torch.unique(graph, dim=1)
    first = frozen(x, frozen.prepare_graph(plain, NODES))
    for layout in ("csr", "sliced"):
        assert torch.equal(frozen(x, frozen.prepare_graph(plain, NODES, layout=layout)), first)
    bitgnn.save(frozen, tmp_path)
    assert torch.equal(bitgnn.load(tmp_path)(x, frozen.prepare_graph(plain, NODES)), first)
    assert "T" not in str(frozen.report.floats)
    assert bitgnn.summary(model, (x, graph)).layers


@pytest.mark.cuda
def test_frozen_models_on_a_gpu(graph: Tensor) -> None:
    model, x = trained(GCN, "TBF+TBF", graph, NODES, WIDTH, 33, 3)
    expected = model(x, graph)
    frozen = bitgnn.freeze(model.cuda())
    adjacency = frozen.prepare_graph(graph.cuda(), NODES)
    got = frozen(x.cuda(), adjacency)
    assert torch.equal(got, model(x.cuda(), graph.cuda()))
    torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.cuda
@pytest.mark.parametrize(("kind", "precision"), EXACT)
@pytest.mark.parametrize("layout", ["csr", "sliced"])
def test_cuda_graphs_in_every_layout(layout: str, kind: type, precision: str) -> None:
    nodes, graph = 300, odd_graph(300, 900, seed=3)
    model, x = trained(kind, precision, graph, nodes, 75, 40, 5)
    frozen = bitgnn.freeze(model)
    on_gpu = copy.deepcopy(frozen).cuda()
    adjacency = on_gpu.prepare_graph(graph.cuda(), nodes, layout=layout)
    here = frozen.prepare_graph(graph, nodes)
    held = x.cuda()
    run = bitgnn.capture(on_gpu, held, adjacency)
    for seed in range(3):
        values = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
        expected = on_gpu(values.cuda(), adjacency)
        assert torch.equal(run(values.cuda()), expected)  # another tensor
        held.copy_(values)
        assert torch.equal(run(), expected)  # the same one, written to
        assert torch.equal(expected.cpu(), frozen(values, here))


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


class Dropped(torch.nn.Module):
    """A layer behind dropout, called as a part of a model."""

    def __init__(self, conv: GCNConv) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.conv(functional.dropout(x, 0.75, self.training), edges)


@pytest.mark.parametrize("makes", [lambda conv: conv, copy.deepcopy])
def test_given_letters_hear_of_dropout_in_front(simple: Tensor, makes) -> None:
    name = bitgnn.nn.LayerPrecision("FBF", "TBF", inputs="looked_up", hidden_norm="batch")
    x = (torch.rand(NODES, WIDTH) < 0.1).float()
    model = Dropped(makes(GCNConv(WIDTH, 8, precision=name))).train()
    assert model.conv.waits_for_model
    for share in (0.25, 0.25):
        model(x, simple).sum().backward()
        assert model.conv.input_bits.kept_share == share
    assert not model.conv.waits_for_model
    alone = makes(GCNConv(WIDTH, 8, precision=name)).train()
    for _ in range(2):
        learnt = (x + torch.zeros(NODES, WIDTH, requires_grad=True)) * 1.0
        alone(functional.dropout(learnt, 0.5), simple).sum().backward()
    assert alone.input_bits.kept_share == 0.5


def test_scales_start_from_what_training_sees(simple: Tensor) -> None:
    """An example's scales are of normed products, though nothing was counted before it."""
    torch.manual_seed(0)
    x = (torch.rand(NODES, 500) < 0.05).float()
    named = bitgnn.binarize(torch_geometric.nn.GCNConv(500, 8), "bin", example=(x, simple))
    plan = with_letters(named, {"": "FBF+TBF"})
    run_example(plan, (x, simple))
    scale = float(plan.hidden_quantizer.scale.detach())
    trained = with_letters(named, {"": "FBF+TBF"}).train()
    trained(x, simple)
    assert scale == pytest.approx(float(trained.hidden_quantizer.scale.detach()), rel=0.05)
    assert float(plan.input_bits.batches) == 0.0
