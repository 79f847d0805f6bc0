"""Models compiled before their first batch train as eager ones do, without a warning."""

import warnings

import pytest
import torch
from small_models import EDGES, K, N, X, Y, two
from torch import nn
from torch.nn import functional

from bitgnn import BitAdjacency
from bitgnn.nn import GCNConv, SAGEConv

OPTIONS = {
    GCNConv: {"normalize": "sym", "add_self_loops": True},
    SAGEConv: {"normalize": "mean"},
}


def compiled(net):
    return torch.compile(net, backend="aot_eager")


def compiled_in_place(net):
    net.compile(backend="aot_eager")
    return net


def compiled_function(net):
    return torch.compile(lambda x, graph: net(x, graph), backend="aot_eager")


def train(layer, make):
    torch._dynamo.reset()
    graph, net = BitAdjacency.from_edge_index(EDGES, N, **OPTIONS[layer]), two(layer)
    run, losses = make(net), []
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss = functional.cross_entropy(run(X, graph), Y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, (net.first.role, net.last.role)


@pytest.mark.parametrize(
    ("make", "layer"),
    [(compiled, GCNConv), (compiled_in_place, SAGEConv), (compiled_function, GCNConv)],
)
def test_training_is_that_of_an_eager_model(make, layer):
    expected = train(layer, lambda net: net)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Using .torch.compile")
        losses, roles = train(layer, make)
    assert losses == pytest.approx(expected[0], abs=1e-4)
    assert roles == expected[1] == ("first", "last")


def test_other_models_are_compiled_without_a_warning_while_a_layer_waits():
    waiting = GCNConv(K, 4, precision="bin")
    run = torch.compile(nn.Linear(K, 3), backend="eager")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Using .torch.compile")
        run(torch.randn(2, K))
    handle = nn.modules.module.register_module_forward_hook(lambda *call: None)
    try:
        with pytest.warns(UserWarning, match="global hooks"):
            run(torch.randn(2, K))
    finally:
        handle.remove()
    assert waiting.role is None
