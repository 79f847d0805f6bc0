"""Edge weights: exact in every precision, frozen too, with gradients, and worth learning with."""

import warnings

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional
from torch_geometric.nn.conv.gcn_conv import gcn_norm

import bitgnn
import bitgnn.nn as bits
from bitgnn import BitAdjacency
from bitgnn.nn.adjacencies import gcn_adjacency, neighbour_adjacency
from bitgnn.nn.aggregation import aggregate

N, WIDTH, CLASSES = 30, 40, 6
LETTERS = ["bin", "full", "FBF+FBF", "FBB+BBF", "FBB+BBB", "TBF+TBF", "FBF+FFF"]


@pytest.fixture
def weight(graph):
    """Weights over four orders of magnitude; an edge of weight 0 among them."""
    generator = torch.Generator().manual_seed(8)
    found = 10.0 ** (4 * torch.rand(graph.size(1), generator=generator) - 3)
    found[5] = 0
    return found


def summed(edges, weight):
    """Dense matrix of the edges, destinations as rows."""
    return torch.zeros(N, N).index_put_((edges[1], edges[0]), weight, accumulate=True)


class Net(nn.Module):
    """Two layers of one kind."""

    def __init__(self, layer, precision, **options):
        super().__init__()
        torch.manual_seed(1)
        self.first = layer(WIDTH, 33, precision=precision, **options)
        self.second = layer(33, CLASSES, precision=precision, **options)

    def forward(self, x, edge_index, edge_weight=None):
        x = functional.relu(self.first(x, edge_index, edge_weight))
        return self.second(x, edge_index, edge_weight)


def trained(model, *inputs):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        functional.cross_entropy(model(*inputs), torch.arange(N) % CLASSES).backward()
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("aggr", ["add", "mean"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"improved": True},
        {"add_self_loops": False},
        dict.fromkeys(("normalize", "add_self_loops"), False),
    ],
    ids=str,
)
def test_adjacencies_of_gcn_are_those_of_pyg(graph, weight, options, aggr):
    matrix = gcn_adjacency(graph, N, weight, reduction=aggr, **options)
    layer = pyg.GCNConv(N, N, bias=False, aggr=aggr, **options)
    nn.init.eye_(layer.lin.weight)
    expected = layer(torch.eye(N), graph, weight)
    torch.testing.assert_close(matrix.to_dense(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("aggr", ["add", "mean"])
def test_negative_weights_are_exact_without_a_normalisation(graph, weight, aggr):
    weight = weight - 1
    matrix = neighbour_adjacency(graph, N, N, weight, reduction=aggr)
    layer = pyg.GraphConv(N, N, bias=False, aggr=aggr)
    nn.init.eye_(layer.lin_rel.weight)
    nn.init.zeros_(layer.lin_root.weight)
    torch.testing.assert_close(matrix.to_dense(), layer(torch.eye(N), graph, weight))
    with pytest.raises(ValueError, match="no root of a negative degree"):
        bits.GCNConv(WIDTH, 5)(torch.randn(N, WIDTH), graph, -weight.abs() - 1)


@pytest.mark.parametrize("letters", ["FBF+FBF", "FBB+BBF"])
@pytest.mark.parametrize("name", ["GCNConv", "GraphConv"])
def test_layers_sum_what_they_hand_on_with_exact_weights(graph, weight, x, name, letters):
    conv = getattr(bits, name)(WIDTH, 12, precision=letters).eval()
    matrix = summed(*gcn_norm(graph, weight, N)) if name == "GCNConv" else summed(graph, weight)
    loop = torch.arange(N).expand(2, N)
    # One loop of weight 1 a node gives what a node hands on.
    alone = BitAdjacency.from_edge_index(loop, N)
    with torch.no_grad():
        bias = conv.bias if name == "GCNConv" else conv.lin_rel.bias
        own = 0 if name == "GCNConv" else conv.lin_root(torch.zeros_like(x))
        if name == "GraphConv":
            nn.init.zeros_(conv.lin_root.weight)
        handed = conv(x, alone) - bias - own
        expected = matrix @ handed + bias
        torch.testing.assert_close(conv(x, graph, weight), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", LETTERS)
@pytest.mark.parametrize("name", ["GCNConv", "GraphConv"])
@pytest.mark.parametrize("aggr", ["add", "mean"])
def test_frozen_models_equal_trained_ones(graph, weight, x, name, precision, aggr):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = trained(Net(getattr(bits, name), precision, aggr=aggr), x, graph, weight)
    frozen = bitgnn.freeze(model, check=False)
    prepared = frozen.prepare_graph(graph, N, weight)
    with torch.no_grad():
        expected, found = model(x, graph, weight), frozen(x, graph, weight)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for again in range(4):  # from the third call on a recording
        assert torch.equal(frozen(x, prepared), found), again
    run = bitgnn.capture(frozen, x, prepared)
    assert torch.equal(run(), found)


@pytest.mark.parametrize("name", ["GCNConv", "GraphConv"])
@pytest.mark.parametrize("precision", ["bin", "full"])
def test_frozen_bits_are_those_of_training(graph, weight, x, name, precision):
    model = trained(Net(getattr(bits, name), precision), x, graph, weight)
    frozen = bitgnn.freeze(model, check=False)
    with torch.no_grad():
        assert torch.equal(frozen(x, graph, weight), model(x, graph, weight))


@pytest.mark.parametrize("precision", ["bin", "full"])
def test_values_in_bits_freeze_to_what_was_trained(graph, weight, x, precision):
    options = {"normalize": "sym", "add_self_loops": True, "value_bits": 4}
    rounded = BitAdjacency.from_edge_index(graph, N, weight, **options)
    model = trained(Net(bits.GCNConv, precision), x, rounded)
    frozen = bitgnn.freeze(model, check=False)
    with torch.no_grad():
        expected = model(x, rounded)
        for _ in range(3):
            assert torch.equal(frozen(x, rounded), expected)


@pytest.mark.parametrize("precision", ["FBF+FBF", "FBB+BBF"])
@pytest.mark.parametrize("name", ["GCNConv", "GraphConv"])
def test_gradients_are_those_of_a_dense_product(graph, weight, x, name, precision):
    conv = getattr(bits, name)(WIDTH, 12, precision=precision)
    slope = torch.randn(N, 12)
    weight.requires_grad_()
    (conv(x, graph, weight) * slope).sum().backward()
    own = weight.detach().clone().requires_grad_()
    conv.register_message_forward_hook(lambda *found: None)  # PyG's own messages
    (conv(x, graph, own) * slope).sum().backward()
    assert own.grad.abs().sum() > 0
    torch.testing.assert_close(weight.grad, own.grad, rtol=1e-4, atol=1e-4)


def test_second_derivatives():
    edges = torch.tensor([[0, 1, 2, 2, 0, 1], [1, 1, 0, 2, 2, 0]])

    def sums(x, weight):
        matrix = BitAdjacency.from_edge_index(edges, 3, weight)
        return aggregate(x, matrix).square()  # its slope depends on both

    generator = torch.Generator().manual_seed(2)
    x = torch.randn(3, 4, generator=generator).requires_grad_()
    weight = torch.rand(6, generator=generator).requires_grad_()

    def dense(x, weight):
        matrix = torch.zeros(3, 3).index_put((edges[1], edges[0]), weight, accumulate=True)
        return (matrix @ x).square()

    for first in (x, weight):
        found = []
        for of in (sums, dense):
            (slope,) = torch.autograd.grad(of(x, weight).sum(), first, create_graph=True)
            found.append(torch.autograd.grad(slope.square().sum(), (x, weight)))
        torch.testing.assert_close(*found)


def test_learnt_weights_leave_the_noise_out(x):
    """A gradient through a binary layer finds which edges help."""
    generator = torch.Generator().manual_seed(4)
    y = torch.arange(200) % 4
    features = torch.randn(200, 16, generator=generator) + 2 * functional.one_hot(y, 16)
    ends = torch.randint(200, (2, 2400), generator=generator)
    level = nn.Parameter(torch.zeros(2400))
    torch.manual_seed(0)
    conv = bits.GCNConv(16, 4)
    optimizer = torch.optim.Adam([level, *conv.parameters()], lr=0.05)
    for _ in range(40):
        optimizer.zero_grad()
        functional.cross_entropy(conv(features, ends, level.sigmoid()), y).backward()
        optimizer.step()
    same = y[ends[0]] == y[ends[1]]
    assert level[same].mean() > 0.5 + level[~same].mean()


def test_weights_that_matter_are_learnt_with():
    """Four edges in five are noise that only their weights tell."""
    generator = torch.Generator().manual_seed(11)
    nodes, classes = 800, 4
    y = torch.randint(classes, (nodes,), generator=generator)
    x = torch.randn(nodes, 24, generator=generator) + functional.one_hot(y, 24)
    ends = torch.randint(nodes, (2, 40000), generator=generator)
    same = y[ends[0]] == y[ends[1]]
    edges = torch.cat([ends[:, same][:, :4000], ends[:, ~same][:, :16000]], 1)
    weight = torch.cat([torch.ones(4000), torch.full((16000,), 0.005)])
    train = torch.rand(nodes, generator=generator) < 0.4

    def accuracy(precision, *graph):
        torch.manual_seed(3)
        model = pyg.GCN(24, 48, 2, classes)
        model = model if precision is None else bitgnn.binarize(model, precision)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(60):
            optimizer.zero_grad()
            functional.cross_entropy(model(x, *graph)[train], y[train]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            scores = model(x, *graph)
            if precision is not None:
                assert torch.equal(bitgnn.freeze(model)(x, *graph), scores)
        return float((scores.argmax(1) == y)[~train].float().mean())

    exact = accuracy(None, edges, weight)
    assert exact > accuracy(None, edges) + 0.3
    for precision in ("bin", "full"):
        assert accuracy(precision, edges, weight) > exact - 0.05
