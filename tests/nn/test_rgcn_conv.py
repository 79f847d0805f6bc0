"""RGCNConv and FastRGCNConv: PyG's arithmetic, the binary form, frozen models of it."""

import itertools

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import bitgnn
from bitgnn.nn import FastRGCNConv, RGCNConv
from bitgnn.nn.adjacencies import relation_adjacency
from bitgnn.quantize import sgn

NODES, WIDTH, CLASSES, RELATIONS = 40, 33, 5, 4
OPTIONS = (
    {}, {"num_bases": 2}, {"num_blocks": 3}, {"aggr": "add"}, {"root_weight": False},
    {"bias": False},
)  # fmt: skip


@pytest.fixture
def graph():
    torch.manual_seed(0)
    edges = torch.randint(NODES, (2, 200))
    edges[:, :4] = edges[:, 4:8]  # edges that occur twice
    return edges, torch.randint(RELATIONS - 1, (200,))  # the last relation is empty


def features(is_sparse):
    x = torch.randn(NODES, WIDTH)
    return (x > 1).float() if is_sparse else x


class Stack(nn.Module):
    def __init__(self, kind=pyg.RGCNConv, **options):
        super().__init__()
        hidden, classes = (39, 6) if "num_blocks" in options else (40, CLASSES)
        self.first = kind(WIDTH, hidden, RELATIONS, **options)
        self.last = kind(hidden, classes, RELATIONS, **options)

    def forward(self, x, edge_index, edge_type):
        return self.last(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type)


def trained(model, *given):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        model.train()(*given).square().mean().backward()
        optimizer.step()
    assert all(p.grad is not None for p in model.parameters())
    return model.eval()


@pytest.mark.parametrize("kinds", [(RGCNConv, pyg.RGCNConv), (FastRGCNConv, pyg.FastRGCNConv)])
@pytest.mark.parametrize("options", OPTIONS)
def test_floats_are_those_of_pyg(kinds, options, graph):
    theirs = kinds[1](WIDTH, 6, RELATIONS, **options)
    ours = kinds[0](WIDTH, 6, RELATIONS, precision="fp32", **options)
    assert repr(ours) == repr(theirs)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(NODES, WIDTH)
    assert torch.equal(ours(x, *graph), theirs(x, *graph))


def by_hand(layer, x, node, edges, types):
    """The sum over relations in plain PyTorch, on bits and signs."""
    weight = layer.weight
    if layer.num_bases is not None:
        weight = torch.einsum("rb,bio->rio", layer.comp, weight)
    signs = sgn(weight)
    if layer.num_blocks is not None:
        signs = torch.stack([torch.block_diag(*blocks) for blocks in signs])

    def product(rows, w, gain):  # bits of results stand for -1/2 and +1/2
        return gain * 2 * len(w) ** -0.5 * ((rows > 0).float() - 0.5) @ w

    total = torch.zeros(len(node), layer.out_channels)
    for relation in range(layer.num_relations):
        y = product(x, signs[relation], layer.output_gain)
        source, target = edges[:, types == relation]
        sums = torch.zeros_like(total).index_add(0, target, y[source])
        if layer.aggr == "mean":
            count = torch.bincount(target, minlength=len(node)).clamp(min=1)
            sums = sums / count.unsqueeze(1)
        total = total + sums
    if layer.root is not None:
        total = total + product(node, sgn(layer.root), layer.root_gain)
    return total if layer.bias is None else total + layer.bias


@pytest.mark.parametrize("options", OPTIONS)
def test_last_layer_is_the_formula(options, graph):
    model = bitgnn.binarize(Stack(**options))
    x = features(is_sparse=True)
    trained(model, x, *graph)
    hidden = model.first(x, *graph).relu()
    assert (model.first.role, model.last.role) == ("first", "last")
    found = model.last(hidden, *graph)
    expected = by_hand(model.last, hidden, hidden, *graph)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("is_sparse", [True, False])
@pytest.mark.parametrize(
    ("kind", "options"), [*((pyg.RGCNConv, o) for o in OPTIONS), (pyg.FastRGCNConv, {})]
)
def test_frozen_is_trained(kind, options, is_sparse, graph, tmp_path):
    x = features(is_sparse)
    model = trained(bitgnn.binarize(Stack(kind, **options)), x, *graph)
    assert isinstance(model.first, kind)
    frozen = bitgnn.freeze(model)
    assert frozen.kind == "program"
    assert frozen.calls is None
    with torch.no_grad():
        expected = model(x, *graph)
    read = bitgnn.load(bitgnn.save(frozen, tmp_path))
    for held in (frozen, read):
        assert torch.equal(held(x, *graph), expected)
        prepared = held.prepare_graph(graph[0], NODES, graph[1])
        for _ in range(3):  # the last of them runs a recording
            assert torch.equal(held(x, prepared), expected)
    lone = x[:1], torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    with torch.no_grad():
        assert torch.equal(read(*lone), model(*lone))
    narrow = relation_adjacency(graph[0], NODES, NODES, graph[1], relations=3, reduction="add")
    with pytest.raises(ValueError, match="adjacency has 120 nodes, x has 40"):
        read(x, narrow)


def test_pairs(graph):
    edges, types = graph
    x, node = torch.randn(NODES, WIDTH), torch.randn(NODES, 17)
    layer = RGCNConv((WIDTH, 17), CLASSES, RELATIONS)
    out = trained(layer, (x, node), edges, types)((x, node), edges, types)
    ready = relation_adjacency(edges, NODES, NODES, types, relations=RELATIONS, reduction="mean")
    assert torch.equal(layer((x, node), ready), out)
    turned = RGCNConv((WIDTH, 17), CLASSES, RELATIONS, flow="target_to_source").eval()
    turned.load_state_dict(layer.state_dict())
    assert torch.equal(turned((x, node), edges.flip(0), types), out)


class OfNumbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = pyg.RGCNConv(NODES, 32, RELATIONS)
        self.last = pyg.RGCNConv(32, CLASSES, RELATIONS, num_bases=2)

    def forward(self, edge_index, edge_type):
        hidden = self.first(None, edge_index, edge_type).relu()
        return self.last(hidden, edge_index, edge_type)


@pytest.mark.filterwarnings("ignore:freeze. parts of")
def test_models_without_features(graph, tmp_path):
    model = trained(bitgnn.binarize(OfNumbers()), *graph)
    numbers = torch.arange(NODES)
    assert torch.equal(model.first(None, *graph), model.first(numbers, *graph))
    frozen = bitgnn.freeze(model, check=False)
    with torch.no_grad():
        torch.testing.assert_close(frozen(*graph), model(*graph))
    assert list(frozen.report.letters) == ["last"]
    read = bitgnn.load(bitgnn.save(frozen, tmp_path), OfNumbers())
    assert torch.equal(read(*graph), frozen(*graph))


def test_all_weights_of_relations_count_as_binary(graph):
    model = bitgnn.binarize(Stack(num_bases=2))
    trained(model, features(is_sparse=True), *graph)
    assert bitgnn.report_of(model).float_share == 0.0


def test_a_block_learns_from_its_own_inputs(graph):
    layer = RGCNConv(WIDTH, 6, RELATIONS, num_blocks=3, root_weight=False).eval()
    x = torch.randn(NODES, WIDTH).relu().requires_grad_()
    layer(x, *graph)[:, :2].sum().backward()  # results of the first block
    assert layer.weight.grad[:, 0].any()
    assert not layer.weight.grad[:, 1:].any()
    assert not x.grad[:, 11:].any()


@pytest.mark.parametrize("is_sparse", [True, False])
def test_sizes_of_nothing(is_sparse):
    none = torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    for nodes, width, out in itertools.product((0, 1, 3), (1, 31, 64), (1, 33)):
        layer = RGCNConv(width, out, 1, num_bases=1).eval()
        x = torch.randn(nodes, width)
        assert layer(x.relu() if is_sparse else x, *none).shape == (nodes, out)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, e, t: (x[:, :3], e, t), r"x must be \[N, 33\], got \[40, 3\]"),
        (lambda x, e, t: (x, e, t + 2), "edge_type must lie in 0 to 3, got 2 to 4"),
        (lambda x, e, t: (x, e, t[:3]), r"edge_type must be \[200\] integers, got torch.int64"),
        (lambda x, e, t: (x, e, t.float()), "integers, got torch.float32"),
        (lambda x, e, t: (x, e, None), r"edge_type must be \[E\] numbers of relations, got None"),
        (lambda x, e, t: (x, e + 30, t), "edge_index must lie below 40 sources, got"),
    ],
)
def test_wrong_calls(change, message, graph):
    with pytest.raises(ValueError, match=f"RGCNConv: .*{message}"):
        RGCNConv(WIDTH, CLASSES, RELATIONS)(*change(torch.randn(NODES, WIDTH), *graph))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggr": "max"}, "must be 'fp32', since aggr='max' is neither"),
        ({"precision": "FBB+BBF"}, "must be 'fp32', 'full' or 'bin', got 'FBB"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=f"RGCNConv: precision {message}"):
        RGCNConv(WIDTH, 6, RELATIONS, **options)
