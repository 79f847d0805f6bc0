"""Layers in evaluation sum integers, as frozen ones do: equal scores, NaN still seen."""

from itertools import product

import pytest
import torch
from torch_geometric.nn import GCN, GraphConv, GraphSAGE
from torch_geometric.nn.models.basic_gnn import BasicGNN

import bitgnn

N, K = 150, 50
SIZES = ((33, 1), (33, 70), (600, 7))  # hidden features and classes


class GraphConvs(BasicGNN):
    supports_edge_weight, supports_edge_attr = True, False

    def init_conv(self, in_channels, out_channels, **options):
        return GraphConv(in_channels, out_channels, **options)


def graph(device):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(N, K, generator=generator) * (torch.rand(N, K, generator=generator) > 0.8)
    # The last five nodes are isolated; some edges are there twice.
    edges = torch.randint(N - 5, (2, 900), generator=generator)
    return x.to(device), edges.to(device)


def trained(kind, hidden, classes, form, x, edges, layers=2):
    torch.manual_seed(0)
    model = bitgnn.binarize(kind(K, hidden, layers, classes), form).to(x.device)
    model(x, edges).square().sum().backward()
    return model.eval()


KINDS = pytest.mark.parametrize("kind", [GCN, GraphSAGE, GraphConvs])


@pytest.mark.parametrize(("form", "layers"), [("bin", 2), ("full", 2), ("full", 3)])
@KINDS
def test_equal_frozen_scores(kind, form, layers, device):
    sparse, edges = graph(device)
    dense = torch.randn(N, K, generator=torch.Generator().manual_seed(1)).to(device)
    for x, (hidden, classes) in product((sparse, dense), SIZES):
        model = trained(kind, hidden, classes, form, x, edges, layers)
        with torch.no_grad():
            scores = model(x, edges)
        frozen = bitgnn.freeze(model, check=False)
        assert torch.equal(frozen(x, edges), scores)
        assert torch.equal(model(x, edges).detach(), scores)
        steps = frozen.program.calls
        products = [step for step in steps if step.kind == "bmm_bbf"]
        assert "bias" not in products[-1].tensors
        if layers == 3:  # hidden layers of bits sum their shift with the integers
            assert sum("bias" in step.tensors for step in products) == 1 + (x is sparse)
            assert x is dense or not any(step.kind == "bspmm_fbb" for step in steps)


@KINDS
def test_without_a_gradient_the_integers_are_all(kind, monkeypatch):
    x, edges = graph("cpu")
    last = trained(kind, 33, 7, "bin", x, edges).convs[-1]
    hidden = torch.randn(N, 33)
    expected = last(hidden, edges).detach()

    def forbidden(*_):
        raise AssertionError("sums of floats")

    monkeypatch.setattr("bitgnn.nn.binary_layer.aggregate", forbidden)
    with torch.no_grad():
        assert torch.equal(last(hidden, edges), expected)


@KINDS
def test_gradient_is_that_of_the_floats(kind):
    x, edges = graph("cpu")
    model = trained(kind, 33, 7, "bin", x, edges)
    last = model.convs[-1]
    hidden = torch.randn(N, 33, requires_grad=True)
    last(hidden, edges)[:, 0].sum().backward()
    found, hidden.grad = hidden.grad, None
    last._integers = lambda *_: None
    last(hidden, edges)[:, 0].sum().backward()
    assert found.abs().sum() > 0
    assert torch.equal(found, hidden.grad)


@KINDS
def test_nan_is_seen(kind):
    x, edges = graph("cpu")
    last = trained(kind, 33, 7, "bin", x, edges).convs[-1]
    hidden = torch.randn(N, 33)
    hidden[3, 5], hidden[4, 0] = torch.nan, torch.inf
    seen = last(hidden, edges).isnan().any(1)
    with torch.no_grad():
        assert torch.equal(last(hidden, edges).isnan().any(1), seen)
    reached = torch.zeros(N, dtype=torch.bool)
    reached[[3, 4]] = True
    for source in (3, 4):
        reached[edges[1, edges[0] == source]] = True
    assert torch.equal(seen, reached)
