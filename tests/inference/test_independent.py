"""Frozen networks against forwards written out in plain torch, in double precision.

Nothing here calls an operator, a layer or a quantiser of the package: only the trained parameters
are taken from the model, so an error that training and inference share would show.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from bitgnn.convert import freeze
from bitgnn.models import GCN
from bitgnn.nn import GraphConv, SAGEConv


def sign(x):
    return torch.where(x >= 0, 1.0, -1.0).double()


def mean_magnitude(x):
    """Mean |x_i| of each row."""
    return x.abs().sum(1) / x.size(1)


def standardise(model, x):
    x = x.double()
    if model.norm is None:
        return x
    return (x - model.norm.running_mean.double()) / torch.sqrt(
        model.norm.running_var.double() + model.norm.eps
    )


def edges_with_loops(edge_index, num_nodes):
    """Sources, destinations and the degree of each node, one loop a node included."""
    source, destination = edge_index[:, edge_index[0] != edge_index[1]]
    nodes = torch.arange(num_nodes)
    source, destination = torch.cat([source, nodes]), torch.cat([destination, nodes])
    return source, destination, torch.bincount(destination, minlength=num_nodes).double()


def aggregate(y, edges, use_column_factor):
    """D^-1/2 (A + I) y, times D^-1/2 in front of y where the column factor acts."""
    source, destination, degree = edges
    if use_column_factor:
        y = y / degree.sqrt().unsqueeze(1)
    sums = torch.zeros_like(y).index_add_(0, destination, y[source])
    return sums / degree.sqrt().unsqueeze(1)


def parameters(conv):
    bias = torch.zeros(conv.out_channels) if conv.bias is None else conv.bias
    return conv.lin.weight.detach().double(), bias.detach().double()


def full_forward(model, x, edge_index):
    """Bi-GCN: binary products with both scales, full-precision aggregation, no ReLU."""
    h, edges = standardise(model, x), edges_with_loops(edge_index, len(x))
    for conv in model.convs:
        weight, bias = parameters(conv)
        dot = sign(h) @ sign(weight).t()
        y = mean_magnitude(h).unsqueeze(1) * mean_magnitude(weight) * dot
        h = aggregate(y, edges, use_column_factor=True) + bias
    return h


def bin_forward(model, x, edge_index):
    """BitGNN's "bin": bits in, bits aggregated, bits out; the last layer aggregates floats."""
    h, edges = sign(standardise(model, x)), edges_with_loops(edge_index, len(x))
    *hidden, last = model.convs
    for conv in hidden:
        weight, bias = parameters(conv)
        bits = sign(h @ sign(weight).t())
        h = sign(aggregate(bits, edges, use_column_factor=False) + bias)
    weight, bias = parameters(last)
    y = mean_magnitude(weight) * (h @ sign(weight).t())
    return aggregate(y, edges, use_column_factor=True) + bias


FORWARDS = {"full": full_forward, "bin": bin_forward}


def train(model, x, edge_index, y, mask, epochs, lr):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(epochs):
        optimizer.zero_grad()
        functional.cross_entropy(model(x, edge_index)[mask], y[mask]).backward()
        optimizer.step()
    return model.eval()


def assert_frozen_is(expected, frozen, x, edge_index):
    graph = frozen.prepare_graph(edge_index, len(x))
    for form in (x, frozen.pack_features(x)):
        found = frozen(form, graph)
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
        assert torch.equal(found.argmax(1), expected.argmax(1))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_layers", [2, 3])
@pytest.mark.parametrize("precision", ["full", "bin"])
@pytest.mark.parametrize("options", [{}, {"input_norm": False}, {"bias": False}], ids=str)
def test_random_graphs(precision, num_layers, options, seed):
    torch.manual_seed(seed)
    nodes, features, hidden, classes = 150 + 7 * seed, 61 + 17 * seed, 37 + 9 * seed, 3 + seed
    # Duplicates and loops occur; the last node has no edge.
    edge_index = torch.randint(nodes - 1, (2, (2 + 3 * seed) * nodes))
    x, y = torch.randn(nodes, features), torch.randint(classes, (nodes,))
    model = GCN(features, hidden, classes, num_layers, precision, dropout=0.2, **options)
    train(model, x, edge_index, y, torch.ones(nodes, dtype=torch.bool), epochs=10, lr=0.02)
    with torch.no_grad():
        expected = FORWARDS[precision](model, x, edge_index)
    assert_frozen_is(expected, freeze(model), x, edge_index)
    assert expected.argmax(1).unique().numel() > 1


def neighbours(y, edge_index, reduction):
    """Sum or mean over the neighbours of each node, duplicates counted, 0 without any."""
    source, destination = edge_index
    sums = torch.zeros_like(y).index_add_(0, destination, y[source])
    degree = torch.bincount(destination, minlength=len(y)).clamp(min=1)
    return sums / degree.unsqueeze(1) if reduction == "mean" else sums


def maps_of(conv):
    """Weight of the neighbours, bias, and weight of the node itself or None."""
    if isinstance(conv, SAGEConv):
        linear, root = conv.lin_l, conv.lin_r if conv.root_weight else None
    else:
        linear, root = conv.lin_rel, conv.lin_root
    bias = torch.zeros(conv.out_channels) if linear.bias is None else linear.bias
    weights = [None if m is None else m.weight.detach().double() for m in (linear, root)]
    return weights[0], bias.detach().double(), weights[1]


def neighbour_forward(convs, norm, x, edge_index, precision, reduction):
    """SAGEConv and GraphConv: product, aggregation, then the product of the node itself."""
    h, last = x.double(), len(convs) - 1
    if norm is not None:
        mean, var = norm.running_mean.double(), norm.running_var.double()
        h = (h - mean) / torch.sqrt(var + norm.eps)
        h = h * norm.weight.detach().double() + norm.bias.detach().double()
    for place, conv in enumerate(convs):
        weight, bias, root = maps_of(conv)
        # In "bin" only the first layer uses the magnitude of its input, for the node itself.
        has_scale = precision == "full" or place == 0
        scale = mean_magnitude(h).unsqueeze(1) if has_scale else 1.0
        dot = sign(h) @ sign(weight).t()
        to_bits = precision == "bin" and place < last
        y = sign(dot) if to_bits else scale * mean_magnitude(weight) * dot
        out = neighbours(y, edge_index, reduction) + bias
        if root is not None:
            out = out + scale * mean_magnitude(root) * (sign(h) @ sign(root).t())
        h = sign(out) if to_bits else out
    return h


class Neighbours(nn.Module):
    """A chain of SAGEConv or GraphConv behind a batch norm."""

    def __init__(self, kind, sizes, precision, norm, **options):
        super().__init__()
        hidden = ["FBB+BBB"] + ["BBB+BBB"] * (len(sizes) - 3)
        full = ["FBF+FBF"] * (len(sizes) - 1)
        letters = full if precision == "full" else [*hidden, "BBF+FBF"]
        self.norm = nn.BatchNorm1d(sizes[0]) if norm else None
        self.convs = nn.ModuleList(
            kind(a, b, precision=p, dropout=0.2, **options)
            for a, b, p in zip(sizes[:-1], sizes[1:], letters, strict=True)
        )

    def forward(self, x, edge_index):
        if self.norm is not None:
            x = self.norm(x)
        for conv in self.convs:
            x = conv(x, edge_index)
        return x


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_layers", [2, 3])
@pytest.mark.parametrize("precision", ["full", "bin"])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(
    ("kind", "options", "reduction"),
    [
        (SAGEConv, {}, "mean"),
        (SAGEConv, {"root_weight": False, "aggr": "sum"}, "sum"),
        (GraphConv, {}, "sum"),
        (GraphConv, {"aggr": "mean", "bias": False}, "mean"),
    ],
)
def test_layers_of_neighbours(kind, options, reduction, norm, precision, num_layers, seed):
    torch.manual_seed(seed)
    nodes, classes = 130 + 9 * seed, 4
    sizes = [45 + 20 * seed, *[39 + 11 * seed] * (num_layers - 1), classes]
    edge_index = torch.randint(nodes - 1, (2, 4 * nodes))  # the last node has no edge
    x, y = torch.randn(nodes, sizes[0]), torch.randint(classes, (nodes,))
    model = Neighbours(kind, sizes, precision, norm, **options)
    if norm:  # gains of both signs
        nn.init.normal_(model.norm.weight)
        nn.init.normal_(model.norm.bias, std=0.3)
    train(model, x, edge_index, y, torch.ones(nodes, dtype=torch.bool), epochs=10, lr=0.02)
    with torch.no_grad():
        parts = (model.convs, model.norm, x, edge_index, precision, reduction)
        expected = neighbour_forward(*parts)
    frozen = freeze(model)
    assert frozen.program.entry is not None
    assert_frozen_is(expected, frozen, x, edge_index)
    assert expected.std(0).min() > 0


def test_the_normalisation_above_is_that_of_pyg():
    torch.manual_seed(0)
    nodes = 40
    edge_index = torch.randint(nodes, (2, 200)).unique(dim=1)
    y = torch.randn(nodes, 3, dtype=torch.float64)
    (source, destination), weight = gcn_norm(edge_index, None, nodes, dtype=torch.float64)
    expected = torch.zeros_like(y).index_add_(0, destination, weight.unsqueeze(1) * y[source])
    found = aggregate(y, edges_with_loops(edge_index, nodes), use_column_factor=True)
    torch.testing.assert_close(found, expected)
