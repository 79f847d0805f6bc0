"""Frozen models take the trained model's own call: weights, batches, Data, further inputs."""

import pytest
import torch
from chains import agree
from graphs import odd_graph
from torch import nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

from bitgnn.convert import freeze
from bitgnn.inference import capture, load, save
from bitgnn.nn import GCNConv, Linear

N, FEATURES, HIDDEN, CLASSES = 60, 19, 33, 4
POOLS = {"mean": global_mean_pool, "add": global_add_pool, "max": global_max_pool}


@pytest.fixture
def edges():
    return odd_graph(N, 160, seed=1)


@pytest.fixture
def x():
    return torch.randn(N, FEATURES, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def weight(edges):
    return torch.rand(edges.size(1), generator=torch.Generator().manual_seed(3)) + 0.1


@pytest.fixture
def batch():
    return torch.arange(N) // 13


class Base(nn.Module):
    def __init__(self, letters=("FBB+BBB", "BBF+FBF"), **options):
        super().__init__()
        torch.manual_seed(0)
        self.first = GCNConv(FEATURES, HIDDEN, precision=letters[0])
        self.second = GCNConv(HIDDEN, HIDDEN, precision=letters[1])
        self.head = nn.Linear(HIDDEN, CLASSES)
        self.joined = Linear(HIDDEN + 7, CLASSES, precision="FBF")
        vars(self).update(options)
        self.eval()

    def layers(self, x, edge_index, edge_weight=None):
        x = self.first(x, edge_index, edge_weight)
        return self.second(x, edge_index, edge_weight)


class Weighted(Base):
    def forward(self, x, edge_index, edge_weight=None):
        return self.head(self.layers(x, edge_index, edge_weight))


@pytest.mark.parametrize("letters", [("FBB+BBB", "BBF+FBF"), ("FBF+FFF", "BBF+FFF")])
def test_edge_weights(letters, x, edges, weight):
    model = Weighted(letters)
    frozen = freeze(model)
    expected, bare = model(x, edges, weight), model(x, edges)
    for found in (
        frozen(x, edges, weight),
        frozen(x, edges, edge_weight=weight),
        frozen(x=x, edge_index=edges, edge_weight=weight),
        frozen(Data(x=x, edge_index=edges, edge_weight=weight)),
        frozen(x, frozen.prepare_graph(edges, N, weight)),
    ):
        agree(found, expected)
    data = Data(x=x, edge_index=edges)
    for found in (frozen(x, edges), frozen(x, adjacency=edges), frozen(data)):
        agree(found, bare)
    assert not torch.allclose(expected, bare, atol=1e-3)


class OfData(Base):
    def forward(self, data):
        weight = data.edge_attr if self.weighted else None
        x = self.layers(data.x, data.edge_index, weight)
        if self.pool is not None:
            x = self.pool(x, data.batch)
        return functional.log_softmax(self.head(x), dim=-1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("pool", [None, *POOLS])
def test_forwards_of_data(pool, weighted, x, edges, weight, batch):
    model = OfData(pool=POOLS.get(pool), weighted=weighted)
    frozen = freeze(model)
    data, bare = Data(x, edges, weight, batch=batch), Data(x, edges)
    further = {"edge_attr": weight} if weighted else {}
    if pool is not None:
        further["batch"] = batch
    for found in (frozen(data), frozen(data=data), frozen(x, edges, **further)):
        agree(found, model(data))
    agree(frozen(bare), model(bare))


class Pooled(Base):
    def forward(self, x, edge_index, batch):
        return self.head(self.pool(self.layers(x, edge_index).relu(), batch))


@pytest.mark.parametrize("pool", POOLS)
def test_graphs_of_a_batch(pool, x, edges, batch, tmp_path):
    model = Pooled(pool=POOLS[pool])
    frozen = freeze(model)
    expected = model(x, edges, batch)
    assert expected.shape == (5, CLASSES)
    graph, held = frozen.prepare_graph(edges, N), frozen.prepare_graph(edges, N, batch=batch)
    for found in (
        frozen(x, edges, batch),
        frozen(x, edges, batch=batch),
        frozen(Data(x=x, edge_index=edges, batch=batch)),
        frozen(x, held),
        frozen(frozen.pack_features(x), held),
        frozen(x, graph, batch=batch),
        frozen(x, graph, batch),
        capture(frozen, x, held)(),
        capture(frozen, frozen.pack_features(x), held)(),
    ):
        agree(found, expected)
    read = load(save(frozen, tmp_path))
    assert read(x, edges, batch).equal(frozen(x, edges, batch))
    assert read.own_call == frozen.own_call
    agree(frozen(x, edges, None), model(x, edges, None))
    with pytest.raises(TypeError, match="batch must be given, the forward needs it"):
        frozen(x, edges)


class Optional(Base):
    """A batch that is made where it is missing, and one that PyG's function does without."""

    def forward(self, x, edge_index, batch=None, scale=1.0):
        x = self.layers(x, edge_index)
        if self.made:
            if batch is None:
                batch = torch.zeros(x.size(0), dtype=torch.int64)
            x = x * (batch + 1).unsqueeze(1)  # fails for None
        return self.head(global_mean_pool(x, batch)) * scale


@pytest.mark.parametrize("made", [False, True])
def test_optional_batches(made, x, edges, batch, tmp_path):
    model = Optional(made=made)
    frozen = freeze(model)
    agree(frozen(x, edges), model(x, edges))
    for found in (frozen(x, edges, batch), frozen(x, edges, batch=batch, scale=1.0)):
        agree(found, model(x, edges, batch))
    agree(frozen(x, edges, batch, 2.0), model(x, edges, batch, 2.0))  # on packed layers
    read = load(save(frozen, tmp_path))
    with pytest.raises(ValueError, match=r"scale must be 1\.0, which the forward was frozen with"):
        read(x, edges, batch, 2.0)


class Further(Base):
    def forward(self, edge_index, more, x):
        return self.joined(torch.cat([self.layers(x, edge_index), more], dim=-1))


def test_further_inputs(x, edges, tmp_path):
    model, more = Further(), torch.randn(N, 7)
    frozen = freeze(model)
    for found in (
        frozen(edges, more, x),
        frozen(x=x, edge_index=edges, more=more),
        frozen(edges, more=more.numpy(), x=x),
        frozen(x, frozen.prepare_graph(edges, N), more=more),
        load(save(frozen, tmp_path))(edges, more, x),
    ):
        agree(found, model(edges, more, x))
    with pytest.raises(TypeError, match="must be inputs of the trained forward"):
        frozen.prepare_graph(edges, N, other=more)


def test_wrong_calls_are_named(x, edges, weight):
    frozen = freeze(Weighted())
    graph, lacking = frozen.prepare_graph(edges, N), "x must be a tensor of numbers .* got NoneType"
    for args, named, error, message in (
        ((x, edges), {"size": 3}, TypeError, "takes x, edge_index, edge_weight, got 'size' which"),
        ((x, edges), {"edge_index": edges}, TypeError, "got 'edge_index' twice"),
        ((x, edges, weight, 3), {}, TypeError, "got 1 arguments more"),
        ((x, graph), {"edge_weight": weight}, ValueError, "must be None beside a prepared graph"),
        ((x,), {}, ValueError, "adjacency must be a graph, got None"),
        ((), {"edge_index": edges}, TypeError, lacking),
        ((Data(edge_index=edges),), {}, TypeError, lacking),
    ):
        with pytest.raises(error, match=message):
            frozen(*args, **named)


class TwoGraphs(Base):
    def forward(self, x, edge_index, other):
        return self.second(self.first(x, edge_index), other)


def test_more_than_one_graph_is_not_mixed_up(x, edges):
    model = TwoGraphs()
    with pytest.warns(UserWarning, match="more than one graph"):
        frozen = freeze(model)
    agree(frozen(x, edges, edges[:, :40]), model(x, edges, edges[:, :40]))
