"""Hooks, pruning, weight norms, parametrisations and shared weights of maps inside of layers."""

import copy

import pytest
import torch
from small_models import EDGES, WORDS, C, K, Net, X, chain, roles, steps, two
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import bitgnn
from bitgnn.nn import GCNConv, GraphConv, SAGEConv

KINDS = pytest.mark.parametrize("kind", [GCNConv, SAGEConv, GraphConv])
WHEN = pytest.mark.parametrize("when", ["before", "after"])
DATA = pytest.mark.parametrize("x", [X, WORDS], ids=["dense", "words"])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


MAPS = {GCNConv: ("lin",), SAGEConv: ("lin_l", "lin_r"), GraphConv: ("lin_rel", "lin_root")}


@KINDS
@WHEN
@DATA
@pytest.mark.parametrize("precision", ["bin", "full", "FBF+FBF", "FFF+FFF"])
def test_hooks_on_maps_are_called(kind, when, x, precision):
    layer = kind(K, C, precision=precision)
    if when == "after":
        layer(x, EDGES).sum().backward()
    plain = copy.deepcopy(layer)
    calls = []
    for name in MAPS[kind]:
        linear = getattr(layer, name)
        linear.register_forward_pre_hook(lambda *_, name=name: calls.append((name, "in")))
        linear.register_forward_hook(lambda *_, name=name: calls.append((name, "out")))
        linear.register_full_backward_hook(lambda *_, name=name: calls.append((name, "back")))
    out, expected = layer(x, EDGES), plain(x, EDGES)
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    assert sorted(calls) == sorted((n, w) for n in MAPS[kind] for w in ("in", "out", "back"))
    torch.testing.assert_close(layer.eval()(x, EDGES), plain.eval()(x, EDGES))
    getattr(layer, MAPS[kind][0]).register_forward_hook(lambda *given: 0 * given[-1])
    assert not torch.allclose(layer(x, EDGES), plain(x, EDGES))


CHANGES = {
    "prune": lambda linear: prune.l1_unstructured(linear, "weight", 0.4),
    "prune rows": lambda linear: prune.ln_structured(linear, "weight", 0.4, n=2, dim=0),
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "old weight norm": nn.utils.weight_norm,
    "own": lambda linear: parametrize.register_parametrization(linear, "weight", Doubled()),
}


class Doubled(nn.Module):
    def forward(self, weight):
        return 2.0 * weight


@KINDS
@WHEN
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
def test_weights_that_are_made_anew_in_each_forward(kind, when, name):
    model = two(kind)
    if when == "after":
        model(X, EDGES).sum().backward()
    for layer in (model.first, model.last):
        for linear in MAPS[kind]:
            CHANGES[name](getattr(layer, linear))
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    steps(model, 3, X, EDGES)
    assert roles(model.first, model.last) == ["first", "last"]
    for key, value in model.named_parameters():
        if "lin" in key and "weight" in key:
            assert not torch.equal(value, start[key]), key
    weight = getattr(model.first, MAPS[kind][0]).weight
    if name == "prune":
        assert float((weight == 0).float().mean()) == pytest.approx(0.4, abs=0.01)
    with torch.no_grad():
        scores = model.eval()(X, EDGES)
    assert torch.equal(bitgnn.freeze(model, check=False)(X, EDGES), scores)


@KINDS
def test_layers_share_a_weight(kind):
    model = Net(chain, first=kind(K, K), last=kind(K, K))
    for name in MAPS[kind]:
        getattr(model.last, name).weight = getattr(model.first, name).weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(X, EDGES).square().sum().backward()
    optimizer.step()
    for name in MAPS[kind]:
        assert getattr(model.last, name).weight is getattr(model.first, name).weight
    with torch.no_grad():
        scores = model.eval()(X, EDGES)
    assert torch.equal(bitgnn.freeze(model, check=False)(X, EDGES), scores)
