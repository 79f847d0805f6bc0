"""Activation checkpointing: results, gradients and statistics are those without it."""

import copy
from functools import partial

import pytest
import torch
from small_models import EDGES, WORDS, X, Y, roles, steps, two
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from bitgnn.nn import GCNConv, GraphConv, SAGEConv

N, K, CLASSES = 40, 12, 4
LAYERS = (GCNConv, SAGEConv, GraphConv)
WAYS = [True, False]
KINDS = pytest.mark.parametrize("kind", LAYERS)
DATA = pytest.mark.parametrize("x", [X, WORDS], ids=["dense", "words"])


def graph_of(nodes, seed=1):
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, nodes, (2, 4 * nodes), generator=generator)
    y = torch.randint(0, CLASSES, (nodes,), generator=generator)
    return torch.randn(nodes, K, generator=generator), edges, y


class Recycled(nn.Module):
    """A layer that is called several times, on inputs of other statistics, each time apart."""

    def __init__(self, layer, run, twice):
        super().__init__()
        self.first, self.last = layer(K, K, precision="bin"), layer(K, CLASSES, precision="bin")
        self.run, self.twice = run, twice

    def region(self, x, edges):
        x = self.first(functional.dropout(x, 0.2, self.training), edges).relu()
        return self.first(x, edges).relu() if self.twice else x

    def forward(self, x, edges):
        x = x.requires_grad_()  # else a reentrant checkpoint has no gradients
        for scale in (1.0, 3.0, 0.2):
            x = x + self.run(self.region, scale * x, edges)
        return self.run(self.last, x, edges) + self.run(self.last, 2 * x, edges)


def plain(call, *given):
    return call(*given)


def train(net, steps, *graphs):
    """Losses, and gradients of the last step."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    found = []
    for number in range(steps):
        torch.manual_seed(number)
        optimizer.zero_grad()
        loss = 0.0
        for x, edges, y in graphs:
            loss = loss + functional.cross_entropy(net(x.clone(), edges), y)
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found), [p.grad for p in net.parameters()]


@pytest.mark.parametrize("nodes", [N, 300], ids=["few nodes", "many nodes"])
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("reentrant", WAYS, ids=["reentrant", "not reentrant"])
def test_a_layer_in_several_checkpoints(reentrant, layer, twice, nodes):
    torch.manual_seed(0)
    run = partial(checkpoint, use_reentrant=reentrant)
    net = Recycled(layer, run, twice)
    other = copy.deepcopy(net)
    other.run = plain
    graphs = graph_of(nodes), graph_of(nodes + 1, 2)
    # Behind 64 calls one of 16 counts.
    found, expected = train(net, 6, *graphs), train(other, 6, *graphs)
    assert torch.allclose(found[0], expected[0], atol=1e-5)
    for own, want in zip(found[1], expected[1], strict=True):
        assert torch.allclose(own, want, atol=1e-6)
    # Gradients are added up in another order.
    for (name, own), want in zip(net.named_buffers(), other.buffers(), strict=True):
        assert torch.allclose(own, want, atol=1e-5), name


@pytest.mark.parametrize("reentrant", WAYS, ids=["reentrant", "not reentrant"])
def test_one_graph_in_two_checkpoints(reentrant):
    torch.manual_seed(0)
    run = partial(checkpoint, use_reentrant=reentrant)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.run = GCNConv(K, CLASSES, precision="bin"), run

        def forward(self, x, edges):
            x = x.requires_grad_()
            return self.run(self.first, x, edges) - 0.5 * self.run(self.first, x, edges)

    net = Twice()
    other = copy.deepcopy(net)
    other.run = plain
    found, expected = train(net, 4, graph_of(N)), train(other, 4, graph_of(N))
    assert torch.equal(found[0], expected[0])
    for own, want in zip(net.buffers(), other.buffers(), strict=True):
        assert torch.equal(own, want)


@pytest.mark.parametrize("reentrant", WAYS, ids=["reentrant", "not reentrant"])
@pytest.mark.parametrize("roles", [("first", "last"), (None, None)], ids=["told", "not told"])
def test_loops_by_hand(reentrant, roles):
    """Two layers in no module: their roles are told, or the first step says that they are not."""
    x, edges, y = graph_of(N)
    found = []
    for run in (partial(checkpoint, use_reentrant=reentrant), plain):
        torch.manual_seed(0)
        first = GCNConv(K, 16, precision="bin", role=roles[0])
        last = GCNConv(16, CLASSES, precision="bin", role=roles[1])

        def forward(first=first, last=last, run=run):
            h = run(first, x.clone().requires_grad_(), edges).relu()
            return functional.cross_entropy(run(last, h, edges), y)

        if roles[0] is None and run is not plain:
            with pytest.raises(RuntimeError, match=r"role must be known .* pass role="):
                forward().backward()
            return
        for _ in range(6):
            loss = forward()
            loss.backward()
        found.append([loss, *(p.grad for p in (*first.parameters(), *last.parameters()))])
    for own, want in zip(*found, strict=True):
        assert torch.allclose(own, want, atol=1e-6)


@pytest.mark.parametrize("reentrant", WAYS, ids=["reentrant", "not reentrant"])
def test_loops_by_hand_behind_a_batch_without_checkpoints(reentrant):
    x, edges, y = graph_of(N)
    found = []
    for run in (partial(checkpoint, use_reentrant=reentrant), plain):
        torch.manual_seed(0)
        layers = GCNConv(K, 16, precision="bin"), GCNConv(16, CLASSES, precision="bin")
        for each in (plain, run, run):
            h = each(layers[0], x.clone().requires_grad_(), edges).relu()
            loss = functional.cross_entropy(each(layers[1], h, edges), y)
            loss.backward()
        assert [layer.role for layer in layers] == ["first", "last"]
        found.append([loss, *(p.grad for layer in layers for p in layer.parameters())])
    for own, want in zip(*found, strict=True):
        assert torch.allclose(own, want, atol=1e-6)


def test_forwards_without_gradients_are_not_kept():
    torch.manual_seed(0)
    x, edges, _ = graph_of(N)
    net = Recycled(GCNConv, plain, False)
    with torch.no_grad():
        for _ in range(20):
            net(x.clone(), edges)
    assert len(net.first.input_bits._calls) == 1
    assert float(net.first.input_bits.batches) == 0.0
    assert not net.first.is_trained
    checkpointed = Recycled(GCNConv, partial(checkpoint, use_reentrant=True), False)
    train(checkpointed, 5, graph_of(N))
    assert len(checkpointed.first.input_bits._calls) == 3
    assert checkpointed.first.is_trained


def dropping(net, x, edges, wrap=lambda part, *given: part(*given)):
    """Two layers with dropout, each of them and the rest perhaps inside of a checkpoint."""

    def rest(hidden):
        return net.last(functional.dropout(hidden.relu(), 0.5, net.training), edges)

    x = functional.dropout(x, 0.3, net.training).requires_grad_()
    return wrap(rest, wrap(net.first, x, edges))


@KINDS
@DATA
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("reentrant", [False, True], ids=["saved tensors", "reentrant"])
def test_checkpointing_gives_the_same_results_and_gradients(kind, x, when, reentrant):
    model = two(kind)
    model.way = dropping
    if when == "after":
        steps(model, 3, x, EDGES)

    def checkpointed(net, x, edges):
        return dropping(net, x, edges, partial(checkpoint, use_reentrant=reentrant))

    found = []
    for way in (dropping, checkpointed):
        net = copy.deepcopy(model)
        net.way = way
        net.zero_grad()
        torch.manual_seed(5)
        for _ in range(2):
            out = net(x, EDGES)
            functional.cross_entropy(out, Y).backward()
        assert roles(net.first, net.last) == ["first", "last"]
        gradients = {n: p.grad for n, p in net.named_parameters() if p.grad is not None}
        found.append((out.detach(), gradients, net.state_dict()))
    (plain, gradients, state), (out, others, after) = found
    torch.testing.assert_close(out, plain)
    torch.testing.assert_close(others, gradients)
    for name in state:
        if name.split(".")[-1] != "steps":
            torch.testing.assert_close(after[name], state[name], msg=name)


@KINDS
@DATA
@pytest.mark.parametrize("precision", ["bin", "full"])
def test_monte_carlo_dropout_computes_the_same_without_gradients(kind, x, precision):
    model = two(kind, precision=precision)
    model.way = dropping
    steps(model, 3, x, EDGES)
    state, results = copy.deepcopy(model.state_dict()), []
    for grad in (True, False):
        model.load_state_dict(state)
        torch.manual_seed(3)
        with torch.set_grad_enabled(grad):
            results.append(model(x, EDGES).detach())
    torch.testing.assert_close(*results, rtol=0, atol=1e-5)
    norms = [name for name in state if "norm" in name]
    assert all(  # batch norms count as torch's do, inputs where gradients are recorded
        torch.equal(state[name], value)
        for name, value in model.state_dict().items()
        if name not in norms
    )
