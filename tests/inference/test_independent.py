"""Frozen networks against forwards written out in plain torch, in double precision.

Nothing here calls an operator, a layer or a quantiser of the package: only the trained parameters
are taken from the model, so an error that training and inference share would show.
"""

import pytest
import torch
from torch.nn import functional
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from bitgnn.convert import freeze
from bitgnn.models import GCN


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


@pytest.mark.parametrize("seed", range(2))
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
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(10):
        optimizer.zero_grad()
        functional.cross_entropy(model(x, edge_index), y).backward()
        optimizer.step()
    with torch.no_grad():
        expected = FORWARDS[precision](model.eval(), x, edge_index)
    assert expected.argmax(1).unique().numel() > 1
    frozen = freeze(model)
    graph = frozen.prepare_graph(edge_index, nodes)
    for form in (x, frozen.pack_features(x)):
        found = frozen(form, graph)
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
        assert torch.equal(found.argmax(1), expected.argmax(1))


def test_the_normalisation_above_is_that_of_pyg():
    torch.manual_seed(0)
    nodes = 40
    edge_index = torch.randint(nodes, (2, 200)).unique(dim=1)
    y = torch.randn(nodes, 3, dtype=torch.float64)
    (source, destination), weight = gcn_norm(edge_index, None, nodes, dtype=torch.float64)
    expected = torch.zeros_like(y).index_add_(0, destination, weight.unsqueeze(1) * y[source])
    found = aggregate(y, edges_with_loops(edge_index, nodes), use_column_factor=True)
    torch.testing.assert_close(found, expected)
