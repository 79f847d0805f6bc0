"""Layers with features of edges freeze to operator calls: attention, GINE, edges in other forms."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional

import bitgnn
from bitgnn.nn.edge_features import edge_order, ordered_features
from bitgnn.nn.gine_conv import sums_beside_edges

NODES, WIDTH, CLASSES, FEATURES = 40, 33, 5, 3
ATTENTION = ("GATConv", "GATv2Conv")


@pytest.fixture
def graph():
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(NODES - 2, (2, 200), generator=generator)  # two nodes without edges
    edges[:, :3] = edges[:, 3:6]  # edges that occur twice, with features of their own
    edges[1, 6:9] = edges[0, 6:9]  # loops
    return edges, torch.randn(200, FEATURES, generator=generator)


class Attended(nn.Module):
    def __init__(self, kind, encodes=False, **options):
        super().__init__()
        layer = getattr(pyg, kind)
        self.encoder = nn.Linear(FEATURES, 4) if encodes else nn.Identity()
        options = {"edge_dim": 4 if encodes else FEATURES, **options}
        width = 32 if options.get("concat", True) else 8
        self.first = layer(WIDTH, 8, heads=4, **options)
        self.second = layer(width, 8, heads=4, **options)
        self.last = nn.Linear(width, CLASSES)

    def forward(self, x, edge_index, e):
        e = self.encoder(e)
        x = functional.elu(self.first(x, edge_index, e))
        return self.last(functional.elu(self.second(x, edge_index, e)))


class Summed(nn.Module):
    def __init__(self, edge_dim=FEATURES, **options):
        super().__init__()
        self.first = pyg.GINEConv(self.mlp(WIDTH, 40), edge_dim=edge_dim, **options)
        self.second = pyg.GINEConv(self.mlp(40, CLASSES), edge_dim=edge_dim, **options)

    @staticmethod
    def mlp(inputs, outputs):
        return nn.Sequential(
            nn.Linear(inputs, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, outputs)
        )

    def forward(self, x, edge_index, e):
        return self.second(self.first(x, edge_index, e).relu(), edge_index, e)


def frozen_of(model, *given):
    model = bitgnn.binarize(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(4):
        optimizer.zero_grad()
        model.train()(*given).square().mean().backward()
        optimizer.step()
    return model.eval(), bitgnn.freeze(model)


def check(model, frozen, given, folder, exact=True):
    """Frozen, read and prepared models give the trained one's results."""
    with torch.no_grad():
        expected = model(*given)
    found = frozen(*given)
    tolerance = 0 if exact else 1e-5
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    read = bitgnn.load(bitgnn.save(frozen, folder))
    for held in (frozen, read):
        prepared = held.prepare_graph(given[1], NODES, e=given[2])
        for _ in range(3):
            assert torch.equal(held(given[0], prepared), found)
    assert not torch.equal(frozen(given[0], given[1], 3 * given[2]), found)


@pytest.mark.filterwarnings("ignore:freeze. parts of")
@pytest.mark.parametrize(
    "options",
    [{}, {"encodes": True}, {"fill_value": 2.0}, {"add_self_loops": False}, {"concat": False}],
    ids=str,
)
@pytest.mark.parametrize("kind", ATTENTION)
def test_attention(kind, options, graph, tmp_path):
    x = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1))
    if kind == "GATv2Conv" and "add_self_loops" in options:
        options = {**options, "bias": False}  # which a node without messages lacks
    model, frozen = frozen_of(Attended(kind, **options), x, *graph)
    calls = [call.kind for call in frozen.program.calls]
    assert calls.count("gat_bits") == 2
    own = [frozen.calls[call.arguments[0]] for call in frozen.program.calls if call.kind == "call"]
    assert not any(isinstance(call.function, pyg.MessagePassing) for call in own)
    assert {graph.kind for graph in frozen.graphs} == {"edges"}
    # The last layer has sums of its input's bits before the product, in another order.
    check(model, frozen, (x, *graph), tmp_path, exact=False)


@pytest.mark.parametrize(
    "options", [{}, {"train_eps": True, "eps": 0.5}, {"edge_dim": 20}], ids=str
)
def test_gine(options, graph, tmp_path):
    x = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1))
    edges, features = graph
    features = features if "edge_dim" not in options else torch.randn(200, 20)
    model, frozen = frozen_of(Summed(**options), x, edges, features)
    kinds = [call.kind for call in frozen.program.calls]
    assert {"bmm_iib", "bmm_bbf"} <= set(kinds)  # the MLP has bits between its maps
    assert {"first.nn.0", "first.nn.3", "second.nn.0"} <= frozen.report.letters.keys()
    check(model, frozen, (x, edges, features), tmp_path)
    with pytest.raises(ValueError, match=r"edge_attr must be \[200, 33\] like the edges and x"):
        sums_beside_edges(x, edges, features[:, :1], torch.ones(1), "source_to_target")


def test_a_gine_of_other_messages_keeps_its_code(graph):
    class Own(pyg.GINEConv):
        def message(self, x_j, edge_attr):
            return x_j * edge_attr[:, :1]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = Own(Summed.mlp(WIDTH, CLASSES), edge_dim=FEATURES)

        def forward(self, x, edge_index, e):
            return self.conv(x, edge_index, e)

    given = torch.randn(NODES, WIDTH), *graph
    model, frozen = frozen_of(Net(), *given)
    with torch.no_grad():
        assert torch.equal(frozen(*given), model(*given))
    assert "conv.nn.0" in frozen.report.letters


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("loops", [False, True])
def test_order_of_edges(loops, flow, graph):
    edges, features = graph
    found = edge_order(edges, NODES, loops, flow).adjacency.to_edge_index()
    given = ordered_features(NODES, edges, features, loops, "mean", flow)
    sides = edges if flow == "source_to_target" else edges.flip(0)
    plain = sides[0] != sides[1] if loops else torch.ones(200, dtype=torch.bool)
    wanted = sorted(zip(*sides[:, plain].tolist(), features[plain].tolist(), strict=True))
    entries = list(zip(*found.tolist(), given.tolist(), strict=True))
    assert sorted(e for e in entries if not loops or e[0] != e[1]) == wanted
    if loops:  # the mean of what comes in, in PyG's direction
        own = torch.tensor([e[2] for e in entries if e[0] == e[1]])
        mean = pyg.aggr.MeanAggregation()(features[plain], edges[1][plain], dim_size=NODES)
        torch.testing.assert_close(own, mean)
    with pytest.raises(ValueError, match="edge_attr must have 200 rows like the edges, got 7"):
        ordered_features(NODES, edges, features[:7], loops, "mean", flow)


@pytest.mark.parametrize("edges", [0, 1])
@pytest.mark.parametrize("kind", ATTENTION)
def test_few_edges(kind, edges, graph):
    x = torch.randn(NODES, WIDTH)
    model, frozen = frozen_of(Attended(kind), x, *graph)
    for nodes in (1, 3):
        given = x[:nodes], torch.zeros(2, edges, dtype=torch.int64), torch.randn(edges, FEATURES)
        with torch.no_grad():
            torch.testing.assert_close(frozen(*given), model(*given), rtol=1e-5, atol=1e-5)


def test_transformer_is_operator_calls(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = pyg.TransformerConv(WIDTH, 8, heads=4)
            self.last = pyg.GCNConv(32, CLASSES)

        def forward(self, x, edge_index):
            return self.last(self.first(x, edge_index).relu(), edge_index)

    given = torch.randn(NODES, WIDTH), torch.randint(NODES - 2, (2, 200))
    model, frozen = frozen_of(Net(), *given)
    kinds = [call.kind for call in frozen.program.calls]
    assert "transformer_bits" in kinds
    assert frozen.calls is None
    assert {"first.lin_key", "first.lin_value", "last"} <= frozen.report.letters.keys()
    with torch.no_grad():
        expected = model(*given)
    read = bitgnn.load(bitgnn.save(frozen, tmp_path))
    for _ in range(3):  # the last of them runs a recording
        assert torch.equal(frozen(*given), expected)
        assert torch.equal(read(*given), expected)
