"""The loop of PyG's tutorials trains layers that were swapped by their import alone."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import bitgnn
import bitgnn.nn
from bitgnn.nn import default_precision

NODES, CLASSES, HIDDEN, EPOCHS = 300, 3, 32, 60
NAMES = ["GCNConv", "SAGEConv", "GraphConv"]
KINDS = ["words", "gaussian"]


def _graph(kind):
    """A stochastic block model whose features tell the classes apart, but not well."""
    generator = torch.Generator().manual_seed(5)
    y = torch.arange(NODES) % CLASSES
    same = y.unsqueeze(0) == y.unsqueeze(1)
    chance = torch.where(same, 0.045, 0.003)
    upper = torch.rand(NODES, NODES, generator=generator).triu(1)
    edges = ((upper > 0) & (upper < chance)).nonzero().t()
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    if kind == "words":
        frequency = torch.rand(CLASSES, 100, generator=generator).square() * 0.15
        x = (torch.rand(NODES, 100, generator=generator) < frequency[y]).float()
    else:
        centre = torch.randn(CLASSES, 16, generator=generator) * 0.6
        x = centre[y] + torch.randn(NODES, 16, generator=generator)
    order = torch.randperm(NODES, generator=generator)
    return x, edges, y, order[:120], order[120:]


class _Net(nn.Module):
    def __init__(self, layers, name, width):
        super().__init__()
        self.conv1 = getattr(layers, name)(width, HIDDEN)
        self.conv2 = getattr(layers, name)(HIDDEN, CLASSES)

    def forward(self, x, edge_index):
        x = functional.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index).relu()
        x = functional.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index)


def _trained(layers, name, kind):
    """The model in evaluation, and its accuracy on nodes that it has not learnt from."""
    torch.manual_seed(0)
    x, edges, y, train, test = _graph(kind)
    model = _Net(layers, name, x.size(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(EPOCHS):
        model.train()
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x, edges)[train], y[train])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        found = model(x, edges).argmax(1)
    return model, float((found[test] == y[test]).float().mean())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", [None, "full"], ids=["default", "full"])
def test_swapped_layers_learn_it_and_freeze_exactly(precision, name, kind):
    with default_precision(precision or "bin"):
        model, accuracy = _trained(bitgnn.nn, name, kind)
    assert accuracy > 0.85
    assert (model.conv1.role, model.conv2.role) == ("hidden", None)
    assert (model.conv1.precision, model.conv2.precision) == (precision or "bin",) * 2
    assert model.conv1.input_bits.kind == ("pattern" if kind == "words" else "thermometer")
    assert model.conv2.input_bits.kind == "activation"
    x, edges, *_ = _graph(kind)
    with torch.no_grad():
        expected = model(x, edges)
    assert expected.std(0).min() > 0.1
    frozen = bitgnn.freeze(model)
    assert torch.equal(frozen(x, edges), expected)
