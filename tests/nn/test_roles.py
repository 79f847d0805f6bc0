"""Roles of layers of named precision: from a pass over the model, from autograd, or by hand."""

import pytest
import torch
import torch_geometric.nn as pyg
from small_models import EDGES, WORDS, C, H, K, N, Net, X, chain, roles, steps, two
from torch import nn
from torch.nn import functional

import bitgnn
from bitgnn.nn import GCNConv, GraphConv, SAGEConv
from bitgnn.nn.precision import named_forms
from bitgnn.nn.roles.has_role import STEPS
from bitgnn.nn.roles.tape import kept_share

NAMES = pytest.mark.parametrize("precision", ["bin", "full"])
LAYERS = pytest.mark.parametrize("kind", [GCNConv, SAGEConv])  # GraphConv is SAGEConv's sibling
CALLS = pytest.mark.parametrize(
    "call", [lambda net: net(X, EDGES), lambda net: net.way(net, X, EDGES)], ids=["model", "loop"]
)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@CALLS
@NAMES
@LAYERS
def test_order_of_the_forward_counts(kind, precision, call):
    def forward(net, x, edges):
        x = functional.dropout(net.first(x, edges).relu(), 0.5, net.training)
        return net.last(net.middle(x, edges).relu(), edges)

    # Registered the other way round.
    net = Net(
        forward,
        last=kind(H, C, precision=precision),
        middle=kind(H, H, precision=precision),
        first=kind(K, H, precision=precision),
    )
    layers = net.first, net.middle, net.last
    call(net.eval())
    assert roles(*layers) == [None] * 3
    call(net.train())
    assert roles(*layers) == ["first", "inner", "last"]
    forms = named_forms(precision)
    assert net.first.letters == forms["hidden_rows"]
    assert net.middle.letters == forms["hidden"]
    assert net.last.letters == forms["last"]
    assert [layer.input_bits.kept_share for layer in layers] == [1.0, 0.5, 1.0]
    call(net)
    call(net.eval())
    assert roles(*layers) == ["first", "inner", "last"]


JOINS = {
    "sum": lambda one, two: one + two,
    "concatenation": lambda one, two: torch.cat([one, two], dim=1),
    "maximum": torch.maximum,
    "mean of a stack": lambda one, two: torch.stack([one, two]).mean(0),
    "difference in place": lambda one, two: one.clone().sub_(two),
    "attention": lambda one, two: torch.einsum("nk,nk->nk", one, two.softmax(1)),
}


@CALLS
@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("skips", [True, False], ids=["skip connection", "parallel"])
def test_all_that_is_joined_is_read(join, skips, call):
    def forward(net, x, edges):
        one = net.one(x, edges)
        other = net.two(one.relu() if skips else x, edges)
        return net.last(JOINS[join](one, other).relu(), edges)

    width = 2 * H if join == "concatenation" else H
    other = SAGEConv(H if skips else K, H)
    net = Net(forward, one=GCNConv(K, H), two=other, last=GCNConv(width, C))
    call(net)
    assert roles(net.one, net.two, net.last) == ["first", "inner" if skips else "first", "last"]


@CALLS
@LAYERS
def test_learnt_vectors_are_features(kind, call):
    def alone(net, x, edges):
        return chain(net, net.table.weight, edges)

    def beside(net, x, edges):
        return chain(net, torch.cat([x, net.table.weight], 1), edges)

    def beside_hidden(net, x, edges):
        hidden = net.first(x, edges).relu()
        return net.last(torch.cat([hidden, net.table.weight], 1), edges)

    for way, width, between in ((alone, 4, 0), (beside, K + 4, 0), (beside_hidden, K, 4)):
        net = Net(way, table=nn.Embedding(N, 4), first=kind(width, H), last=kind(H + between, C))
        call(net)
        joins = way is beside_hidden
        assert net.first.role == "first"
        assert net.first.input_bits.kind == "rows"
        # Signs of raw columns would lose them: what is mixed is taken as features.
        assert net.last.role == ("only" if joins else "last")
        assert net.last.input_bits.kind in (("rows", "pattern") if joins else ("activation",))


@CALLS
@LAYERS
@pytest.mark.parametrize("front", ["float", "binary"])
def test_a_layer_applied_several_times_takes_what_suits_all_of_its_inputs(kind, front, call):
    def forward(net, x, edges):
        x = net.front(x).relu() if front == "float" else net.front(x, edges).relu()
        for _ in range(3):
            x = net.conv(x, edges).relu()
        return net.head(x)

    first = nn.Linear(K, H) if front == "float" else kind(K, H)
    net = Net(forward, front=first, conv=kind(H, H), head=nn.Linear(H, C))
    for _ in range(2):
        call(net)
        assert net.conv.role == ("only" if front == "float" else "inner")
        assert front == "float" or net.front.role == "first"


@pytest.mark.parametrize("jk", [None, "cat", "max", "lstm"])
@pytest.mark.parametrize("options", [{}, {"norm": "batch"}, {"act": "elu", "act_first": True}])
def test_models_of_pyg(jk, options):
    model = pyg.GCN(K, H, 3, C, dropout=0.5, jk=jk, **options)
    swapped = bitgnn.binarize(model, "bin").train()
    swapped(X, EDGES)
    # A float layer reads what jumping knowledge joins.
    assert roles(*swapped.convs) == ["first", "inner", "last"]


def test_sequences_and_wrappers():
    layers = [
        (GCNConv(K, H), "x, e -> x"), nn.ReLU(), (GCNConv(H, H), "x, e -> h"),
        (lambda x, h: x + h, "x, h -> x"), (GCNConv(H, C), "x, e -> x"),
    ]  # fmt: skip
    inner = pyg.Sequential("x, e", layers)
    # Built first, wrapped later, called by keyword.
    outer = Net(lambda net, x, edges: net.inner(x=net.norm(x), e=edges), norm=nn.BatchNorm1d(K))
    outer.inner = inner
    outer(edges=EDGES, x=X)
    found = [module for module in inner.modules() if isinstance(module, GCNConv)]
    assert roles(*found) == ["first", "inner", "last"]


def reading(encoder, kind):
    """A new layer behind a model."""
    way = lambda net, x, edges: net.head(net.encoder(x, edges).relu(), edges)  # noqa: E731
    return Net(way, encoder=encoder, head=kind(encoder(X, EDGES).size(1), C))


@CALLS
@LAYERS
def test_a_trained_layer_stays_as_it_is_whoever_reads_it(kind, call):
    encoder = Net(lambda net, x, edges: net.conv(x, edges), conv=kind(K, C))
    steps(encoder, STEPS, X, EDGES).eval()
    letters, expected = encoder.conv.letters, encoder(X, EDGES).detach()
    net = reading(encoder, kind)
    for mode in (False, True):  # frozen, and trained on
        encoder.train(mode)
        call(net).sum().backward()
        assert (encoder.conv.role, encoder.conv.letters) == ("only", letters)
        # Its results are floats, and not the signs of a hidden layer.
        assert net.head.role == "only"
        torch.testing.assert_close(encoder.eval()(X, EDGES), expected)
    saved = reading(Net(lambda net, x, edges: net.conv(x, edges), conv=kind(K, C)).eval(), kind)
    saved.load_state_dict(net.state_dict())
    call(saved.train())
    assert saved.encoder.conv.role == "only"


@CALLS
@LAYERS
def test_a_new_layer_behind_trained_hidden_ones_is_the_last(kind, call):
    net = steps(two(kind), STEPS, X, EDGES)
    net.last = kind(H, C)
    call(net)
    assert roles(net.first, net.last) == ["first", "last"]
    assert net.last.input_bits.kind == "activation"


def test_a_trained_role_is_changed_by_nothing_but_a_reset():
    conv = GCNConv(K, C)
    steps(Net(lambda net, x, edges: net.conv(x, edges), conv=conv), STEPS, X, EDGES)
    with pytest.raises(
        ValueError, match=r"role must stay 'only', .* got 'first'; reset_parameters"
    ):
        conv.set_role("first")
    conv.set_role("hidden")
    assert conv.role == "only"
    conv.reset_parameters()
    assert (conv.role, conv.is_trained) == (None, False)
    conv.set_role("first")
    conv.reset_parameters()  # which keeps what was said by hand
    assert conv.role == "first"


@LAYERS
@pytest.mark.parametrize("detached", [False, True])
def test_models_called_one_behind_the_other(kind, detached):
    encoder = Net(lambda net, x, edges: net.conv(x, edges).relu(), conv=kind(K, H))
    decoder = Net(lambda net, x, edges: net.conv(x, edges), conv=kind(H, C))
    for _ in range(STEPS):
        hidden = encoder(X, EDGES)
        out = decoder(hidden.detach() if detached else hidden, EDGES)
        (out.sum() + hidden.sum()).backward()
    wanted = ["only", "only"] if detached else ["first", "last"]
    assert roles(encoder.conv, decoder.conv) == wanted
    assert encoder.conv.is_trained


def test_a_dry_run_or_two_settles_no_role():
    conv = GCNConv(K, H)
    for _ in range(STEPS - 1):
        conv(X, EDGES)
    assert conv.role == "only"
    conv(X, EDGES)
    net = two(GCNConv)
    net.first(X, EDGES)
    net(X, EDGES)
    assert roles(net.first, net.last) == ["first", "last"]
    assert conv.is_trained


@NAMES
@LAYERS
def test_roles_by_hand(kind, precision):
    forms = named_forms(precision)
    wanted = {"first": "hidden_rows", "inner": "hidden", "last": "last", "only": "last_rows"}
    for role, form in wanted.items():
        net = Net(chain, first=kind(K, H, precision=precision, role=role), last=kind(H, C))
        for call in (net, lambda *given, net=net: net.way(net, *given)):
            assert net.first.role == role
            call(X, EDGES)
            assert net.first.role == role
            assert net.first.letters == forms[form]
            net.first.reset_parameters()
        steps(net, STEPS, X, EDGES)
        with pytest.raises(ValueError, match=f"role must stay '{role}'"):
            net.first.set_role("only" if role == "first" else "first")
        # What reads it is told by its data flow all the same.
        assert net.last.role == "last"


def test_wrong_roles():
    for wrong in ("hidden", "middle", 1, ""):
        with pytest.raises(ValueError, match=r"^GCNConv: role must be one of .*'only'\), got"):
            GCNConv(K, H, role=wrong)
    for wrong in ("middle", None, 3):
        with pytest.raises(ValueError, match=r"^SAGEConv: role must be one of"):
            SAGEConv(K, H).set_role(wrong)
    for letters in ("FBF+FBF", "fp32"):
        with pytest.raises(ValueError, match=r"^GraphConv: role must be None where letters say"):
            GraphConv(K, H, precision=letters, role="first")
    plain = GCNConv(K, H, precision="FBF+FBF")
    plain.set_role("hidden")
    assert (plain.role, plain.has_role, GCNConv(K, H).has_role) == (None, False, True)


@NAMES
@LAYERS
@pytest.mark.parametrize("hidden", [K - 1, K, 4 * K])
def test_patterns_of_few_bits_are_summed_in_front_of_the_product(kind, hidden, precision):
    net = steps(two(kind, hidden=hidden, precision=precision), 3, WORDS, EDGES)
    forms = named_forms(precision)
    is_few = hidden >= K and precision == "bin"
    form = forms["few_bits" if is_few else "hidden"]
    assert (net.first.role, net.first.letters) == ("first", form)
    wanted = net.eval()(WORDS, EDGES).detach()
    other = two(kind, hidden=hidden, precision=precision).eval()
    other.load_state_dict(net.state_dict())
    assert other.first.letters == form
    assert torch.equal(other(WORDS, EDGES), wanted)
    assert torch.equal(bitgnn.freeze(net, check=False)(WORDS, EDGES), wanted)
    # Bits of activations are summed behind the product however few they are.
    inner = kind(K, hidden, precision=precision, role="inner")
    inner(X, EDGES)
    assert inner.letters == forms["hidden"]


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (lambda x: x.relu(), 1.0),
        (lambda x: functional.dropout(x.relu(), 0.5), 0.5),
        (lambda x: functional.dropout(x, 0.25).relu(), 0.75),
        (lambda x: functional.dropout(functional.dropout(x, 0.5).relu(), 0.2), 0.4),
        (lambda x: functional.dropout(x.relu(), 0.5, training=False), 1.0),
        # As a GPU has it, in one node of autograd.
        (lambda x: torch.native_dropout(torch.native_dropout(x, 0.5, True)[0], 0.2, True)[0], 0.4),
        (lambda x: nn.Dropout(0.25)(x), 0.75),
        (lambda x: torch.dropout(x, 0.25, True), 0.75),
        (lambda x: functional.dropout(x, 0.5).view(-1, 2 * H).reshape(N, H), 0.5),
        (lambda x: functional.dropout(functional.gelu(x).tanh(), 0.5).double(), 0.5),
        (lambda x: functional.dropout(x, 0.5) + 1.0, 1.0),
        (lambda x: nn.BatchNorm1d(H)(functional.dropout(x, 0.5)), 1.0),
        (lambda x: torch.cat([functional.dropout(x, 0.5)] * 2, 1)[:, :H], 1.0),
        (lambda x: x * 2.0, 1.0),
        (lambda x: x * torch.rand(N, H), 1.0),
        (lambda x: x * torch.rand(N, 1).round().mul(2), 1.0),
    ],
)
def test_share_that_dropout_keeps(way, expected):
    hidden = GCNConv(K, H, role="first")(X, EDGES)
    assert kept_share(way(hidden)) == pytest.approx(expected, rel=1e-6)
    parameter = torch.randn(N, H, requires_grad=True)
    assert kept_share(way(parameter)) == pytest.approx(expected, rel=1e-6)
    for call in (lambda net: net(X, EDGES), lambda net: net.way(net, X, EDGES)):
        net = Net(lambda net, x, e: net.last(way(net.first(x, e)).float(), e))
        net.first, net.last = GCNConv(K, H), GCNConv(H, C)
        call(net)
        assert net.last.input_bits.kept_share == pytest.approx(expected, rel=1e-6)
