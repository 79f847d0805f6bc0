"""A frozen model keeps the graph of its last call for as long as the edges are what they were."""

import copy

import pytest
import torch
from chains import CLASSES, FEATURES, HIDDEN, N
from torch import nn

from bitgnn.convert import freeze
from bitgnn.inference import FrozenModel
from bitgnn.nn import GCNConv


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = GCNConv(FEATURES, HIDDEN, precision="FBB+BBB")
        self.second = GCNConv(HIDDEN, CLASSES, precision="BBF+FBF")
        self.eval()

    def forward(self, x, edge_index, edge_weight=None):
        x = self.first(x, edge_index, edge_weight)
        return self.second(x, edge_index, edge_weight)


@pytest.fixture
def weight(edges):
    return torch.rand(edges.size(1), generator=torch.Generator().manual_seed(3)) + 0.1


def test_the_graph_of_a_call_is_remembered(x, edges, weight, monkeypatch):
    frozen = freeze(Weighted())
    made = []
    original = FrozenModel.prepare_graph

    def counting(self, *args, **kwargs):
        made.append(1)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(FrozenModel, "prepare_graph", counting)
    first = frozen(x, edges)
    for _ in range(3):
        assert frozen(x, edges).equal(first)
    assert len(made) == 1
    frozen(x, edges, weight)
    frozen(x, edges, weight)
    assert len(made) == 2
    changed = frozen(x, edges.clone())
    assert len(made) == 3
    assert changed.equal(first)
    assert frozen(x, edges[:]).equal(first)  # another tensor of the same storage
    assert len(made) == 4
    frozen(x, edges)
    assert len(made) == 5
    view = edges[0]
    view.copy_(view.roll(1))  # noticed through a view as well
    assert not frozen(x, edges).equal(first)
    assert len(made) == 6
    edges[0] = edges[0].roll(1)
    assert not frozen(x, edges).equal(first)
    assert frozen(x, edges).equal(freeze(Weighted())(x, edges))
    copied = copy.deepcopy(frozen)
    assert copied(x, edges).equal(frozen(x, edges))
    del edges
    assert len(frozen._graph_memory) == 1  # the fixture still holds it
    own = torch.randint(N, (2, 50))
    frozen(x, own)
    assert len(frozen._graph_memory) == 1
    del own
    assert len(frozen._graph_memory) == 0
