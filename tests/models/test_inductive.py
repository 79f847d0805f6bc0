"""GCN, GraphSAGE and GraphSAINT against the same arithmetic in plain torch."""

import pytest
import torch
from torch_geometric.nn import GCNConv, GraphConv, SAGEConv

from bitgnn.models import GCN, GraphSAGE, GraphSAINT


def mean_of_neighbours(h, edges):
    out = torch.zeros(len(h), h.size(1)).index_add_(0, edges[1], h[edges[0]])
    return out / torch.bincount(edges[1], minlength=len(h)).clamp(min=1)[:, None]


def sgn(h):
    return (h >= 0).float() * 2 - 1


def standardize(h):
    return (h - h.mean(1, keepdim=True)) / (h.std(1, keepdim=True) + 1e-4)


def scaled_signs(h, dim=1):
    return h.abs().mean(dim, keepdim=True) * sgn(h)


def bigcn(h, edges, layer, neighbours, root, aggr="mean"):
    """Bi-GCN: binary linear map of the neighbours' mean or sum, plus one of the node."""
    signs = scaled_signs(h)
    found = mean_of_neighbours(signs, edges)
    if aggr == "add":
        found = found * torch.bincount(edges[1], minlength=len(h))[:, None]
    own = getattr(layer, root, None)
    out = found @ scaled_signs(getattr(layer, neighbours).weight).t()
    out = out + getattr(layer, neighbours).bias
    return out if own is None else out + signs @ scaled_signs(own.weight).t()


@pytest.mark.parametrize("kind", [GraphSAGE, lambda *sizes, **o: GCN(*sizes, inductive=True, **o)])
def test_full_is_bigcns_recipe(kind, x, edges):
    model = kind(31, 32, 3, precision="full").eval()
    first, second = model.convs
    hidden = bigcn(standardize(x), edges, first, "lin_l", "lin_r").relu()
    expected = bigcn(standardize(hidden), edges, second, "lin_l", "lin_r")
    torch.testing.assert_close(model(x, edges), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("aggr", ["mean", "add"])
def test_full_saint_is_bigcns_recipe(aggr, x, edges):
    model = GraphSAINT(31, 32, 3, precision="full", aggr=aggr).eval()
    one = bigcn(standardize(x), edges, model.convs[0], "lin_rel", "lin_root", aggr)
    two = bigcn(one, edges, model.convs[1], "lin_rel", "lin_root", aggr)
    expected = model.lin(torch.cat([one, two], dim=1))
    torch.testing.assert_close(model(x, edges), expected, rtol=1e-4, atol=1e-4)


def test_bin_sage_takes_means_of_signs(x, edges):
    model = GraphSAGE(31, 32, 3, precision="bin").eval()
    first, second = model.convs
    h = standardize(x)
    products = sgn(h) @ sgn(first.lin_l.weight).t()
    root = scaled_signs(h) @ scaled_signs(first.lin_r.weight).t()
    hidden = sgn(mean_of_neighbours(sgn(products), edges) + root + first.lin_l.bias)
    out = mean_of_neighbours(hidden @ scaled_signs(second.lin_l.weight).t(), edges)
    out = out + second.lin_l.bias + hidden @ scaled_signs(second.lin_r.weight).t()
    torch.testing.assert_close(model(x, edges), out, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "layer", "aggr"),
    [(GCN, GCNConv, "add"), (GraphSAGE, SAGEConv, "mean"), (GraphSAINT, GraphConv, "mean")],
)
def test_fp32_is_pygs_network(kind, layer, aggr, x, edges):
    model = kind(31, 32, 3, input_norm=False).eval()
    first, second = layer(31, 32, aggr=aggr), layer(32, model.convs[1].out_channels, aggr=aggr)
    first.load_state_dict(model.convs[0].state_dict())
    second.load_state_dict(model.convs[1].state_dict())
    one = first(x, edges).relu()
    two = second(one, edges)
    if kind is GraphSAINT:
        two = model.lin(torch.cat([one, two.relu()], dim=1))
    assert torch.equal(model(x, edges), two)


def test_dropout_acts_on_hidden_activations_alone(x, edges):
    """With every hidden activation dropped but the expectation kept, only the biases are left."""
    model = GraphSAGE(31, 32, 3, precision="bin", dropout=0.999)
    inputs = []
    model.convs[1].register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    assert model.convs[0].dropout == 0.0
    assert model.convs[1].dropout == 0.999
    model(x, edges)
    assert set(inputs[0].unique().tolist()) == {-1.0, 1.0}
    full = GraphSAGE(31, 32, 3, precision="full", dropout=0.999)
    assert [conv.dropout for conv in full.convs] == [0.0, 0.0]
    full.convs[1].register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    full(x, edges)
    assert (inputs[1] == 0).float().mean() > 0.9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GraphSAINT(4, 4, 2, aggr="max"), "aggr must be 'mean' or 'add', got 'max'"),
        (lambda: GCN(4, 4, 2, inductive=True, cached=True), "cached keeps one graph, inductive"),
        (lambda: GraphSAGE(4, 0, 2), "hidden_channels must be at least 1, got 0"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()
