"""Layers without a cache of their own make the adjacency of an edge index once."""

import copy
import gc
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric import EdgeIndex
from torch_geometric.nn import GraphSAGE

import bitgnn
from bitgnn.bits import BitAdjacency
from bitgnn.nn import GCNConv, GraphConv, SAGEConv
from bitgnn.nn import adjacencies as module

N, K, OUT = 30, 40, 40
LAYERS = pytest.mark.parametrize("kind", [GCNConv, SAGEConv, GraphConv])


class Two(nn.Module):
    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = kind(K, OUT), kind(OUT, 5)

    def forward(self, x, edges, *weight):
        return self.second(functional.relu(self.first(x, edges, *weight)), edges, *weight)

    def step(self, x, *graph):
        self.zero_grad()
        self(x, *graph).square().sum().backward()


@pytest.fixture
def made(monkeypatch):
    """Adjacencies made of edges, in order."""
    monkeypatch.setattr(module, "_kept", type(module._kept)(module.MOST_KEPT))
    found = []
    original = BitAdjacency._from_edges.__func__

    def noting(cls, *args, **kwargs):
        found.append(weakref.ref(adjacency := original(cls, *args, **kwargs)))
        return adjacency

    monkeypatch.setattr(BitAdjacency, "_from_edges", classmethod(noting))
    return found


@LAYERS
def test_layers_and_steps_share_one_until_a_write(kind, graph, x, made):
    model = Two(kind)
    for _ in range(3):
        model.step(x, graph)
    with torch.no_grad():
        model.eval()(x, graph)
    with torch.inference_mode():
        copy.deepcopy(model)(x, graph)
    assert len(made) == 1
    expected = model(x, graph)
    assert torch.equal(model(x, graph.clone()), expected)
    assert len(made) == 2
    graph[0] = graph[0].roll(1)
    written = model(x, graph)
    assert len(made) == 3
    assert torch.equal(written, model(x, graph.clone()))
    graph.resize_(2, graph.size(1) - 4)
    assert torch.equal(model(x, graph), model(x, graph.clone()))


WRITES = {
    "numpy": lambda held: held.detach().numpy(),
    "data": lambda held: held.data,
    "dlpack": lambda held: torch.from_dlpack(held.detach()),
}


@LAYERS
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("training", [True, False])
def test_writes_that_count_nowhere_are_noticed(kind, write, training, graph, x, made):
    weight = () if kind is SAGEConv else (torch.ones(graph.size(1)),)
    model = Two(kind)
    model.step(x, graph, *weight)
    model.train(training)
    for held in (graph, *weight):
        for _ in range(2):
            before = model(x, graph, *weight)
        unseen = WRITES[write](held)
        unseen[..., :20] = 0
        after = model(x, graph, *weight)
        assert not torch.equal(after, before)
        assert torch.equal(after, model(x, graph.clone(), *weight))
    number = len(made)
    model(x, graph, *weight)
    assert len(made) == number


def test_writes_to_what_an_edge_index_wraps_are_noticed(graph, x, made):
    model = Two(SAGEConv)
    model.step(x, graph)
    model.eval()
    wrapped = EdgeIndex(graph, sparse_size=(N, N))
    before = model(x, wrapped)
    wrapped.as_tensor()[0] = graph[0].roll(1)
    after = model(x, wrapped)
    assert not torch.equal(after, before)
    wrapped.as_tensor().numpy()[0, :9] = 0
    assert not torch.equal(model(x, wrapped), after)
    assert torch.equal(model(x, wrapped), model(x, EdgeIndex(graph, sparse_size=(N, N))))


def test_options_have_entries_of_their_own(graph, x, made):
    weight = torch.rand(graph.size(1)) + 0.1
    layers = [
        GCNConv(K, OUT),
        GCNConv(K, OUT, add_self_loops=False),
        GCNConv(K, OUT, normalize=False, add_self_loops=False),
        GCNConv(K, OUT, flow="target_to_source"),
        SAGEConv(K, OUT),
        GraphConv(K, OUT),
    ]
    for _ in range(2):
        for layer in layers:
            layer(x, graph)
    assert len(made) == len(layers)
    weighted = layers[0](x, graph, weight)
    assert len(made) == len(layers) + 1
    assert not torch.equal(weighted, layers[0](x, graph))
    weight.mul_(torch.rand(graph.size(1)) + 0.5)
    assert not torch.equal(weighted, layers[0](x, graph, weight))


def test_inference_mode(graph, x, made):
    model = Two(SAGEConv)
    model(x, graph)
    module._kept.__init__()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        model(x, graph)
    model.step(x, graph)  # what was made there serves training
    assert model.first.lin_l.weight.grad is not None
    assert len(made) == 2
    model.eval()
    with torch.inference_mode():
        own = graph.clone()  # edges made there are not kept
        before = model(x, own)
        own[0] = own[0].roll(1)
        assert not torch.equal(model(x, own), before)


@LAYERS
def test_few_are_kept_and_freed_with_the_edges(kind, graph, x, made):
    model = Two(kind)
    for _ in range(2 * module.MOST_KEPT):  # batches
        model.step(x, graph.clone())
    gc.collect()
    assert len(made) == 2 * module.MOST_KEPT
    assert len(module._kept) == 0
    assert not any(adjacency() for adjacency in made)
    made.clear()
    layer, graphs = SAGEConv(K, OUT), [graph.clone() for _ in range(module.MOST_KEPT + 3)]
    for edges in graphs:
        layer(x, edges)
    gc.collect()
    assert sum(adjacency() is not None for adjacency in made) == module.MOST_KEPT
    layer(x, graphs[-1])
    assert len(made) == len(graphs)


def test_threads_may_share_it(graph, x, made):
    model, found, errors = Two(SAGEConv).eval(), [], []
    model(x, graph)
    with torch.no_grad():
        expected = model(x, graph)

    def work():
        try:
            for _ in range(20):
                own = graph.clone()
                with torch.no_grad():
                    found.extend([model(x, graph), model(x, own)])
        except Exception as error:  # an error in a thread is not one of the test
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert all(torch.equal(out, expected) for out in found)
    gc.collect()
    assert len(module._kept) == 1


def test_weights_that_learn_are_no_obstacle(graph, x):
    weight = (torch.rand(graph.size(1)) + 0.1).requires_grad_()
    model = Two(GraphConv)
    model.step(x, graph, weight)
    first, weight.grad = weight.grad, None
    assert first.abs().sum() > 0
    model.step(x, graph, weight)
    assert weight.grad.abs().sum() > 0


@pytest.mark.parametrize(("kind", "normalize"), [(GCNConv, "sym"), (SAGEConv, "mean")])
def test_gradients_are_those_of_an_adjacency(kind, normalize, graph, x):
    loops = normalize == "sym"
    adjacency = BitAdjacency.from_edge_index(graph, N, normalize=normalize, add_self_loops=loops)
    found = []
    for given in (graph, adjacency):
        model = Two(kind)
        model(x, given)
        model.step(x, given)
        found.append([p.grad for p in model.parameters() if p.grad is not None])
    assert all(map(torch.equal, *found))


def test_binarized_models_share_it_too(graph, x, made):
    model = bitgnn.binarize(GraphSAGE(K, OUT, 3, 5), "bin")
    model(x, graph).sum().backward()
    model(x, graph).sum().backward()
    assert len(made) == 1
