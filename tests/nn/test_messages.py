"""Where single messages count: hooks, masks, messages of one's own, other aggregations."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation

from bitgnn import BitAdjacency
from bitgnn.nn import GCNConv, GraphConv, SAGEConv
from bitgnn.quantize import sgn

N, IN, OUT = 30, 40, 12
LAYERS = [GCNConv, SAGEConv, GraphConv]
BINARY = ["full", "bin", "FBF+FBF", "FBB+BBF", "FBF+FFF"]


@pytest.mark.parametrize("precision", BINARY)
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (GCNConv, {}),
        (GCNConv, {"aggr": "mean"}),
        (GCNConv, {"normalize": False}),
        (SAGEConv, {}),
        (GraphConv, {}),
        (GraphConv, {"aggr": "mean"}),
    ],
)
def test_hooks_see_every_message_of_the_same_result(graph, x, layer, options, flow, precision):
    conv = layer(IN, OUT, precision=precision, flow=flow, **options)
    weights = () if layer is SAGEConv else (torch.rand(graph.size(1)),)
    if layer is GraphConv:  # Weights of rank one, so that no letter changes the values.
        weights = ((torch.rand(N) + 0.5)[graph[1 if flow == "source_to_target" else 0]],)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # GCNConv's random weights are no product of factors.
        expected = conv(x, graph, *weights)
        seen = []
        conv.register_message_forward_hook(lambda *found: seen.append(found[2].shape[-1]))
        for layers in (1, 2):
            conv.decomposed_layers = layers
            assert torch.allclose(conv(x, graph, *weights), expected, atol=1e-5)
    assert seen == [OUT, OUT // 2, OUT // 2]


@pytest.mark.parametrize("precision", BINARY)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_mask_of_zeros_removes_the_neighbours(graph, x, layer, precision):
    conv = layer(IN, OUT, precision=precision)
    conv(x, graph)
    conv.explain = True
    if precision != "FBF+FFF":
        with pytest.raises(ValueError, match="explain mode and message hooks need an edge index"):
            conv(x, BitAdjacency.from_edge_index(graph, N))
    conv._edge_mask = nn.Parameter(torch.zeros(graph.size(1)))
    conv._loop_mask = graph[0] != graph[1]
    conv._apply_sigmoid = False
    loops = torch.stack([torch.arange(N)] * 2)
    out = conv(x, graph)
    out.square().sum().backward()
    assert conv._edge_mask.grad.abs().sum() > 0
    alone = copy.deepcopy(conv)
    alone.explain = False
    if layer is GCNConv:  # Self loops stay, with the weights of the whole graph.
        adjacency = BitAdjacency.from_edge_index(graph, N, normalize="sym", add_self_loops=True)
        uses_col = conv._use_col or precision == "FBF+FFF"
        row = adjacency.row_scale * adjacency.col_scale if uses_col else adjacency.row_scale
        loop_adjacency = BitAdjacency.from_edge_index(loops, N, edge_weight=row)
        if precision == "FBF+FFF":
            alone = layer(IN, OUT, precision="FBF+FBF")
            alone.load_state_dict(conv.state_dict(), strict=False)
        expected = alone(x, loop_adjacency)
    else:
        expected = alone(x, graph[:, :0])
    assert torch.allclose(out, expected, atol=1e-5)


def product(v, weight):
    dot = sgn(v) @ sgn(weight).t()
    return v.abs().mean(1, keepdim=True) * weight.abs().mean(1) * dot


@pytest.mark.parametrize("precision", ["FBF+FBF", "FBB+BBF"])
@pytest.mark.parametrize("layer", [SAGEConv, GraphConv])
@pytest.mark.parametrize("aggr", ["max", MaxAggregation()])
def test_max_aggregates_floats_in_front_of_the_binary_product(graph, x, layer, aggr, precision):
    with pytest.warns(UserWarning, match=r"is neither a sum nor a mean; .* 32 bits for each"):
        conv = layer(IN, OUT, precision=precision, aggr=aggr)
    linear, root = (conv.lin_l, conv.lin_r) if layer is SAGEConv else (conv.lin_rel, conv.lin_root)
    sources = [graph[0, graph[1] == node] for node in range(N)]
    held = torch.stack([x[s].amax(0) if len(s) else torch.zeros(IN) for s in sources])
    expected = product(held, linear.weight) + linear.bias + product(x, root.weight)
    assert torch.allclose(conv(x, graph), expected, atol=1e-5)
    with pytest.raises(ValueError, match="aggregates messages, got a BitAdjacency"):
        conv(x, BitAdjacency.from_edge_index(graph, N))


def test_gcn_mean_divides_by_the_number_of_neighbours(graph, x):
    conv = GCNConv(IN, OUT, precision="FBF+FBF", aggr="mean")
    exact = GCNConv(IN, OUT, precision="FBF+FFF", aggr=MeanAggregation())
    exact.load_state_dict(conv.state_dict())
    assert torch.allclose(conv(x, graph), exact(x, graph), atol=1e-5)


class Doubled(GraphConv):
    """A user's own message."""

    def message(self, x_j, edge_weight):
        return 2 * edge_weight.view(-1, 1) * x_j


def test_a_message_of_ones_own_is_never_passed_over(graph, x):
    weight = torch.rand(graph.size(1))
    with pytest.warns(UserWarning, match="overrides how messages are made"):
        conv = Doubled(IN, OUT, precision="FBF+FBF")
    held = torch.zeros(N, IN).index_add_(0, graph[1], 2 * weight.unsqueeze(1) * x[graph[0]])
    plain = torch.zeros(N, IN).index_add_(0, graph[1], weight.unsqueeze(1) * x[graph[0]])
    assert not torch.allclose(held, plain)
    expected = product(held, conv.lin_rel.weight) + product(x, conv.lin_root.weight)
    expected = expected + conv.lin_rel.bias
    assert torch.allclose(conv(x, graph, weight), expected, atol=1e-5)
