"""Roles of layers of named precision, and the dropout in front, read from autograd's graph."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import bitgnn
from bitgnn.nn import GCNConv, GraphConv, SAGEConv
from bitgnn.nn.precision import named_forms
from bitgnn.nn.roles import kept_entries

N, K, H = 30, 12, 8
X = torch.randn(N, K, generator=torch.Generator().manual_seed(0))
EDGES = torch.randint(0, N, (2, 90), generator=torch.Generator().manual_seed(1))

NAMES = pytest.mark.parametrize("precision", ["bin", "full"])
LAYERS = pytest.mark.parametrize("layer", [GCNConv, SAGEConv, GraphConv])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def _roles(*layers):
    return [layer.role for layer in layers]


class _Net(nn.Module):
    """Layers by name and a forward that uses them."""

    def __init__(self, forward, **layers):
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.way = forward

    def forward(self, x, edges):
        return self.way(self, x, edges)


@NAMES
@LAYERS
def test_order_of_the_forward_counts(layer, precision):
    def forward(net, x, edges):
        x = functional.dropout(net.first(x, edges).relu(), 0.5, net.training)
        return net.last(net.middle(x, edges).relu(), edges)

    # Registered the other way round.
    net = _Net(
        forward,
        last=layer(H, 3, precision=precision),
        middle=layer(H, H, precision=precision),
        first=layer(K, H, precision=precision),
    )
    assert _roles(net.first, net.middle, net.last) == [None] * 3
    with torch.no_grad():
        net(X, EDGES)
    assert _roles(net.first, net.middle, net.last) == [None] * 3
    net(X, EDGES)
    assert _roles(net.first, net.middle, net.last) == ["hidden", "hidden", None]
    forms = named_forms(precision)
    assert net.first.letters == net.middle.letters == forms["hidden"]
    assert net.last.letters == forms["last"]
    net(X, EDGES)
    net.eval()(X, EDGES)
    assert _roles(net.first, net.middle, net.last) == ["hidden", "hidden", None]


JOINS = {
    "sum": lambda one, two: one + two,
    "concatenation": lambda one, two: torch.cat([one, two], dim=1),
    "maximum": torch.maximum,
    "mean of a stack": lambda one, two: torch.stack([one, two]).mean(0),
}


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("skips", [True, False], ids=["skip connection", "parallel"])
def test_all_that_is_joined_is_hidden(join, skips):
    def forward(net, x, edges):
        one = net.one(x, edges)
        two = net.two(one.relu() if skips else x, edges)
        return net.last(JOINS[join](one, two).relu(), edges)

    width = 2 * H if join == "concatenation" else H
    two = SAGEConv(H if skips else K, H)
    net = _Net(forward, one=GCNConv(K, H), two=two, last=GCNConv(width, 3))
    net(X, EDGES)
    assert _roles(net.one, net.two, net.last) == ["hidden", "hidden", None]


def test_named_roles_are_kept_and_wrong_ones_refused():
    conv = GCNConv(K, H)
    with pytest.raises(ValueError, match=r"^GCNConv: role must be one of .* got 'first'$"):
        conv.set_role("first")
    conv.set_role("hidden")
    assert conv.letters == named_forms("bin")["hidden"]
    other = GCNConv(K, H)
    other.load_state_dict(conv.state_dict())
    assert (other.role, other.letters) == ("hidden", conv.letters)
    plain = GCNConv(K, H, precision="FBF+FBF")
    plain.set_role("hidden")
    assert (plain.role, plain.has_role, conv.has_role) == (None, False, True)


def _two_layers(layer, width, hidden, precision="bin"):
    def forward(net, x, edges):
        return net.last(net.first(x, edges).relu(), edges)

    first = layer(width, hidden, precision=precision)
    return _Net(forward, first=first, last=layer(hidden, 3, precision=precision))


@LAYERS
@pytest.mark.parametrize("hidden", [K - 1, K, 4 * K])
def test_features_of_few_bits_are_summed_in_front_of_the_product(layer, hidden):
    x = (X > 0.5).float()
    net = _two_layers(layer, K, hidden)
    for _ in range(3):
        net(x, EDGES).square().sum().backward()
    forms = named_forms("bin")
    form = forms["few_bits" if hidden >= K else "hidden"]
    assert (net.first.role, net.first.letters) == ("hidden", form)
    wanted, other = net.eval()(x, EDGES), _two_layers(layer, K, hidden).eval()
    other.load_state_dict(net.state_dict())
    assert other.first.letters == form
    assert torch.equal(other(x, EDGES), wanted)
    assert torch.equal(bitgnn.freeze(net, check=False)(x, EDGES), wanted)
    # Bits of activations are summed behind the product however few they are.
    inner = _two_layers(layer, hidden, hidden)
    activations = torch.randn(N, hidden, requires_grad=True)
    inner(activations, EDGES)
    assert inner.first.letters == forms["hidden"]
    full = _two_layers(layer, K, hidden, "full")
    full(x, EDGES)
    assert full.first.letters == named_forms("full")["hidden"]


@LAYERS
def test_few_bits_are_those_of_thermometers(layer):
    net = _two_layers(layer, K, 4 * K)
    net(X, EDGES)
    assert net.first.input_bits.kind == "thermometer"
    assert net.first.input_bits.columns.numel() > 4 * K
    assert net.first.letters == named_forms("bin")["hidden"]


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (lambda x: x.relu(), 1.0),
        (lambda x: functional.dropout(x.relu(), 0.5), 0.5),
        (lambda x: functional.dropout(x, 0.25).relu(), 0.75),
        (lambda x: functional.dropout(functional.dropout(x, 0.5).relu(), 0.2), 0.4),
        (lambda x: functional.dropout(x.relu(), 0.5, training=False), 1.0),
        (lambda x: functional.dropout(x, 0.5).view(-1, 2 * H).reshape(N, H), 0.5),
        (lambda x: functional.dropout(functional.gelu(x).tanh(), 0.5).double(), 0.5),
        (lambda x: functional.dropout(x, 0.5) + 1.0, 1.0),
        (lambda x: nn.BatchNorm1d(H)(functional.dropout(x, 0.5)), 1.0),
        (lambda x: torch.cat([functional.dropout(x, 0.5)] * 2), 1.0),
        (lambda x: x * 2.0, 1.0),
        (lambda x: x * torch.rand(N, H), 1.0),
        (lambda x: x * torch.rand(N, 1).round().mul(2), 1.0),
    ],
)
@pytest.mark.parametrize("layer", [GCNConv, None], ids=["layer", "parameter"])
def test_kept_entries_are_read_from_the_graph(way, expected, layer):
    torch.manual_seed(0)
    x = torch.randn(N, H, requires_grad=True) if layer is None else layer(K, H)(X, EDGES)
    out = way(x)
    mask, share = kept_entries(out)
    assert share == pytest.approx(expected, rel=1e-6)
    if mask is not None:
        assert mask.shape == out.shape
        assert not bool(out[~mask].any())
        assert float(mask.float().mean()) == pytest.approx(expected, abs=0.15)
    assert (mask is None) == (share == 1.0)
