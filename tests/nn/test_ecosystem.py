"""Layers inside PyTorch's and PyG's tools: compile, script, to_hetero, caches."""

import copy

import pytest
import torch
import torch_geometric.nn
from compilers import compiles_training
from torch import nn
from torch_geometric.nn import to_hetero

from bitgnn import BitAdjacency
from bitgnn.nn import GCNConv, GraphConv, Linear, SAGEConv

N, IN, OUT = 30, 40, 12
LAYERS = [GCNConv, SAGEConv, GraphConv]
PRECISIONS = ["fp32", "full", "bin", "FBF+FBF", "FBB+BBF", "FBB+BBB"]


def _adjacency(layer, edges, num_nodes=N):
    normalize = {GCNConv: "sym", SAGEConv: "mean"}.get(layer)
    return BitAdjacency.from_edge_index(
        edges, num_nodes, normalize=normalize, add_self_loops=layer is GCNConv
    )


class Network(nn.Module):
    """Two graph layers and a linear one."""

    def __init__(self, layer, precision, in_channels=IN):
        super().__init__()
        self.first = layer(in_channels, 16, precision=precision)
        self.second = layer(16, 8, precision="fp32" if precision == "fp32" else "BBF+FBF")
        self.head = Linear(8, 3, precision="fp32" if precision == "fp32" else "full")

    def forward(self, x, edge_index):
        return self.head(self.second(self.first(x, edge_index), edge_index))


@compiles_training
@pytest.mark.parametrize(
    ("layer", "precision", "role"),
    [
        (GCNConv, "bin", "first"),
        (GCNConv, "FBB+BBF", "last"),
        (SAGEConv, "full", "inner"),
        (GraphConv, "full", "last"),
    ],
)
def test_compile_of_training_gives_the_same_gradients(graph, x, layer, precision, role):
    torch._dynamo.reset()
    conv = layer(IN, OUT, precision=precision)
    conv.set_role(role)
    conv(x, graph)  # Layers of named precision choose the form of their input in it.
    compiled = torch.compile(conv, backend="aot_eager")
    gradients, state = [], copy.deepcopy(conv.state_dict())
    for function in (conv, compiled):
        conv.load_state_dict(state)  # statistics go on
        inputs = x.clone().requires_grad_()
        function(inputs, graph).square().sum().backward()
        found = {name: p.grad for name, p in conv.named_parameters() if p.grad is not None}
        gradients.append(found | {"x": inputs.grad})
        conv.zero_grad()
    eager, other = gradients
    assert eager.keys() == other.keys()
    assert {"x", *(name for name in dict(conv.named_parameters()) if "lin" in name)} <= eager.keys()
    for name, grad in eager.items():
        assert torch.allclose(grad, other[name], atol=1e-5)


@pytest.mark.parametrize("layer", LAYERS)
def test_script_of_a_float_layer_is_pygs(simple, x, layer):
    conv = layer(IN, OUT, precision="fp32")
    scripted = torch.jit.script(conv)
    assert torch.allclose(scripted(x, simple), conv(x, simple), atol=1e-6)
    conv.decomposed_layers = 2
    assert torch.allclose(torch.jit.script(conv)(x, simple), scripted(x, simple), atol=1e-6)


class Renamed(GraphConv):
    """A user's own class."""


def test_script_refuses_what_it_would_change():
    with pytest.raises(RuntimeError, match="compiles precision 'fp32' alone, got 'full'"):
        torch.jit.script(SAGEConv(4, 4, precision="full"))
    with pytest.raises(RuntimeError, match="has no dropout in layers; call eval"):
        torch.jit.script(SAGEConv(4, 4, precision="fp32", dropout=0.5))
    with pytest.raises(RuntimeError, match="does not compile subclasses"):
        torch.jit.script(Renamed(4, 4, precision="fp32"))
    torch.jit.script(SAGEConv(4, 4, precision="fp32", dropout=0.5).eval())


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("layer", [SAGEConv, GraphConv])
def test_to_hetero(layer, precision):
    features = {"user": torch.randn(9, 7), "item": torch.randn(5, 4)}
    edges = {
        ("user", "buys", "item"): torch.tensor([[0, 1, 1, 8], [0, 0, 4, 2]]),
        ("item", "of", "user"): torch.tensor([[0, 3], [2, 2]]),
        ("user", "knows", "user"): torch.tensor([[0, 5, 6], [1, 1, 0]]),
    }
    model = to_hetero(Network(layer, precision, (-1, -1)), (list(features), list(edges)))
    out = model(features, edges)
    sizes = {name: tuple(scores.shape) for name, scores in out.items()}
    assert sizes == {"user": (9, 3), "item": (5, 3)}
    sum(scores.sum() for scores in out.values()).backward()
    first = dict(model.named_modules())["first.user__buys__item"]
    assert (type(first), first.precision) == (layer, precision)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_graph_is_kept_only_where_pyg_keeps_it(graph, x, precision, cached):
    theirs = torch_geometric.nn.GCNConv(IN, OUT, cached=cached)
    for conv in (theirs, GCNConv(IN, OUT, cached=cached, precision=precision)):
        first = conv(x, graph)
        second = conv(x, graph[:, :20])
        assert torch.equal(first, second) == cached
        assert (conv._cached_edge_index is not None) == cached
        conv._cached_edge_index = None  # As PyG's users clear it.
        assert not torch.equal(conv(x, graph[:, :20]), first)
    raw = GCNConv(IN, OUT, cached=cached, normalize=False, precision=precision)
    raw(x, graph)
    assert raw._cached_edge_index is None
    for layer in (SAGEConv, GraphConv):
        conv = layer(IN, OUT, precision=precision)
        assert not torch.equal(conv(x, graph), conv(x, graph[:, :20]))


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["full", "bin", "FBB+BBB", "BFF+FBF", "FBF+FFF"])
@pytest.mark.parametrize("layer", LAYERS)
def test_cuda_gives_the_values_of_the_cpu(graph, x, layer, precision):
    conv = layer(IN, OUT, precision=precision)
    conv(x, graph)  # Layers of named precision look at their input in it.
    conv(x, graph).square().sum().backward()
    expected = conv(x, graph)
    other = copy.deepcopy(conv).cuda()
    other.zero_grad()
    out = other(x.cuda(), graph.cuda())
    assert torch.allclose(out.cpu(), expected, rtol=1e-4, atol=1e-4)
    out.square().sum().backward()
    for here, there in zip(conv.parameters(), other.parameters(), strict=True):
        assert (here.grad is None) == (there.grad is None)
        if here.grad is not None:  # Norms of hidden layers have none in the last one.
            assert torch.allclose(here.grad, there.grad.cpu(), rtol=1e-3, atol=1e-3)
    dropping = layer(IN, OUT, precision=precision, dropout=0.4).cuda()
    dropping(x.cuda(), graph.cuda()).sum().backward()
    with pytest.raises(ValueError, match="aggregate: adjacency is on cpu, x on cuda"):
        layer(IN, OUT, precision="full").cuda()(x.cuda(), _adjacency(layer, graph))
