"""Frozen networks with branches, weights, odd layers and odd graphs decide as the trained ones."""

import copy

import pytest
import torch
import torch_geometric.nn
from chains import CLASSES, CONVS, FEATURES, HIDDEN, Chain, N, assert_frozen_equals, shake
from torch import nn
from torch.nn import functional

from bitgnn.convert import freeze
from bitgnn.nn import GCNConv, GraphConv, LayerPrecision, Linear, SAGEConv


class Saint(nn.Module):
    """Two layers, both outputs joined in front of a float linear layer; a residual on the way."""

    def __init__(self):
        super().__init__()
        self.first = GraphConv(FEATURES, HIDDEN, precision="full")
        self.second = GraphConv(HIDDEN, HIDDEN, precision="FBB+BBF")
        self.third = GraphConv(HIDDEN, HIDDEN, precision="BBB+BBB")
        self.last = nn.Linear(3 * HIDDEN, CLASSES)

    def forward(self, x, edge_index, edge_weight=None):
        first = self.first(x, edge_index, edge_weight)
        second = functional.dropout(first, 0.2, training=self.training)
        second = self.second(second, edge_index, edge_weight) + first
        third = self.third(second, edge_index, edge_weight)
        return self.last(torch.cat([first, second, third], dim=-1)).log_softmax(dim=-1)


def rank_one(edges):
    """Edge weights that are a factor of the source times one of the destination."""
    factor = 0.5 + torch.rand(N, generator=torch.Generator().manual_seed(1))
    return factor[edges[0]] * factor[edges[1]]


@pytest.mark.parametrize("weights", [None, "rank one"])
def test_joined_layers(weights, x, edges):
    model = shake(Saint(), x, edges)
    given = [] if weights is None else [rank_one(edges)]
    frozen = assert_frozen_equals(model, x, edges, *given)
    assert frozen.report.floats == {"add": "its value is read in floats as well as by sign"}


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (lambda: nn.Linear(HIDDEN, CLASSES), "its value is read in floats as well as by sign"),
        (
            lambda: nn.Sequential(nn.BatchNorm1d(HIDDEN), Linear(HIDDEN, CLASSES, precision="BBF")),
            "its signs are needed behind different functions",
        ),
    ],
    ids=["floats", "other signs"],
)
def test_two_readers_that_need_floats(other, reason, x, edges):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = GCNConv(FEATURES, HIDDEN, precision="FBB+BBF")
            self.last, self.other = GCNConv(HIDDEN, CLASSES, precision="BBF+FBF"), other()

        def forward(self, x, edge_index):
            x = self.first(x, edge_index)
            return self.last(x, edge_index) + self.other(x)

    frozen = assert_frozen_equals(shake(Twice(), x, edges), x, edges)
    assert frozen.report.boundaries["first"] == "floats"
    assert reason in frozen.report.floats.values()


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GCNConv(FEATURES, 64, precision="FBB+BBB")
        self.second = GCNConv(64, 64, precision="BBB+BBB")
        self.norm = nn.BatchNorm1d(64)
        self.last = SAGEConv(64, CLASSES, precision="BBF+FBF")

    def forward(self, x, edge_index):
        first = self.first(x, edge_index)
        return self.last(self.norm(first + self.second(first, edge_index)), edge_index)


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        precision = LayerPrecision("FBB", "BBB", output_norm="batch")
        self.first = GCNConv(FEATURES, 33, precision=precision)
        self.second = SAGEConv(FEATURES, 31, precision=precision)
        self.last = GCNConv(64, CLASSES, precision="BBF+FBF")

    def forward(self, x, edge_index):
        both = torch.cat([self.first(x, edge_index), self.second(x, edge_index)], dim=1)
        return self.last(both, edge_index)


@pytest.mark.parametrize(("kind", "step"), [(Residual, "add_bbb"), (Joined, "concat_bbb")])
def test_bits_are_joined(kind, step, x, edges):
    frozen = assert_frozen_equals(shake(kind(), x, edges), x, edges)
    assert step in [held.kind for held in frozen.program.calls]


def test_code_of_the_user_runs_and_is_reported(x, edges):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = GCNConv(FEATURES, HIDDEN, precision="FBB+BBF")
            self.attention = torch_geometric.nn.GATConv(HIDDEN, HIDDEN)
            self.shift = nn.Parameter(torch.randn(HIDDEN))
            self.table = nn.Parameter(torch.randn(N, 1))
            self.second = GCNConv(HIDDEN, CLASSES, precision="full")

        def forward(self, x, edge_index):
            x = torch.sin(self.first(x, edge_index) + self.shift) * self.table
            x = self.attention(x, edge_index)
            return self.second(x - x.mean(dim=0, keepdim=True), edge_index)

    with pytest.warns(UserWarning, match=r"parts of Odd stay in full precision: sin: it runs as"):
        frozen = assert_frozen_equals(shake(Odd(), x, edges), x, edges)
    assert {"sin", "attention", "mean"} <= frozen.report.floats.keys()
    assert "attention: full precision, it runs as its own code" in str(frozen.report)
    copied = copy.deepcopy(frozen)
    expected = frozen(x, edges)
    with torch.no_grad():
        for tensor in [*frozen.parameters(), *frozen.buffers()]:
            tensor.zero_()
    assert torch.equal(copied(x, edges), expected)


@pytest.mark.parametrize("kind", CONVS)
def test_no_edges_one_node_and_isolated_nodes(kind, x):
    model = shake(Chain(kind, ["FBB+BBB", "BBF+FBF"]), x, torch.randint(0, N, (2, 200)))
    none = torch.empty(2, 0, dtype=torch.long)
    for features, edge_index in (
        (x, none),
        (x[:1], none),
        (x[:1], torch.zeros(2, 1, dtype=torch.long)),
        (x[:5], torch.tensor([[0], [1]])),
    ):
        with torch.no_grad():
            expected = model(features, edge_index)
        found = freeze(model)(features, edge_index)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert freeze(model)(x[:0], none).shape == (0, CLASSES)


@pytest.mark.parametrize("letters", ["FBF+FBF", "FBB+BBB", "FBF+FFF", "FBB+BFF"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *(("gcn", {name: value}) for name, value in (
            ("improved", True), ("add_self_loops", False), ("normalize", False),
        )),
        *((kind, options) for kind in ("gcn", "graph") for options in (
            {}, {"aggr": "mean"}, {"flow": "target_to_source"},
        )),
    ],
    ids=str,
)  # fmt: skip
def test_edge_weights(kind, options, letters, x, edges):
    class Weighted(Chain):
        def forward(self, x, edge_index, edge_weight=None):
            for conv in self.convs:
                x = conv(x, edge_index, edge_weight)
            return x

    torch.manual_seed(5)
    model = Weighted(kind, [letters, "FBF+FBF"], **options)
    weight = rank_one(edges)
    shake(model, x, edges, weight)
    assert_frozen_equals(model, x, edges, weight)
    assert_frozen_equals(model, x, edges)  # traced with weights, given none
