"""Loops of users' own train whatever their first batch, their inputs and their modes were."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import global_mean_pool
from toy_problems import CLASSES, FEATURES, NODES, planted

import bitgnn
from bitgnn.nn import GCNConv, GraphConv, SAGEConv

KINDS = pytest.mark.parametrize("kind", [GCNConv, SAGEConv])  # GraphConv is SAGEConv's sibling
HIDDEN = 32
DATA = planted()
NOISE = 0.4 * torch.randn(NODES, FEATURES, generator=torch.Generator().manual_seed(1))
DENSE = 2 * DATA.x + NOISE
FORMS = pytest.mark.parametrize("x", [DENSE, DATA.x], ids=["dense", "words"])
NONE = torch.zeros(2, 0, dtype=torch.long)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


class Two(nn.Module):
    """Two layers, with dropout in front of each."""

    def __init__(self, kind, width=FEATURES, share=0.0, **options):
        super().__init__()
        self.first, self.last = kind(width, HIDDEN, **options), kind(HIDDEN, CLASSES, **options)
        self.share = share

    def forward(self, x, edges):
        x = self.first(functional.dropout(x, self.share, self.training), edges).relu()
        return self.last(functional.dropout(x, self.share, self.training), edges)


def train(model, x, epochs=40, parameters=None):
    """Epochs of Adam on the nodes with labels; ``model`` is called with ``x`` and edges."""
    parameters = model.parameters() if parameters is None else parameters
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    for _ in range(epochs):
        optimizer.zero_grad()
        scores = model(x, DATA.edge_index)[DATA.train_mask]
        functional.cross_entropy(scores, DATA.y[DATA.train_mask]).backward()
        optimizer.step()
    return model


@torch.no_grad()
def accuracy(model, x):
    right = model(x, DATA.edge_index).argmax(1) == DATA.y
    return float(right[DATA.test_mask].float().mean())


def check(model, x, least=0.85):
    """The model is accurate, and freezes to the same scores without a warning."""
    model.eval()
    assert accuracy(model, x) > least
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frozen = bitgnn.freeze(model)
    with torch.no_grad():
        assert torch.equal(frozen(x, DATA.edge_index), model(x, DATA.edge_index))


DRY = {
    "ones": lambda: torch.ones(1, FEATURES),
    "zeros": lambda: torch.zeros(1, FEATURES),
    "one row": lambda: torch.randn(1, FEATURES),
    "some rows": lambda: torch.randn(8, FEATURES),
    "no row": lambda: torch.zeros(0, FEATURES),
    "other units": lambda: 100 + 30 * torch.randn(8, FEATURES),
}


@FORMS
@pytest.mark.parametrize("name", DRY)
def test_dry_runs_on_made_up_features(x, name):
    model = Two(GCNConv, -1 if name == "ones" else FEATURES)
    with torch.set_grad_enabled(x is DENSE or name in ("ones", "some rows")):
        model(DRY[name](), NONE)
    check(train(model, x), x)


@KINDS
@FORMS
def test_no_evaluation_changes_a_trained_model(kind, x):
    model = train(Two(kind, share=0.5), x).eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    whole = x, DATA.edge_index
    with torch.no_grad():
        expected = model(*whole)
    frozen = bitgnn.freeze(model)
    for rows in (x.sum(1).argsort(descending=True)[:16], x.sum(1).argsort()[:1], slice(0, 0)):
        model(x[rows], NONE)
    model(x * 100, DATA.edge_index)
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    with torch.no_grad():
        assert torch.equal(model(*whole), expected)
    for each in (frozen, bitgnn.freeze(model)):
        each(x[:5], NONE)
        assert torch.equal(each(*whole), expected)
    assert accuracy(model, x) > 0.85


@KINDS
def test_another_run_behind_reset_parameters(kind):
    model = train(Two(kind), DATA.x)
    assert model.first.input_bits.kind == "pattern"
    model.first.reset_parameters()
    model.last.reset_parameters()
    fresh = Two(kind)
    for layer, other in ((model.first, fresh.first), (model.last, fresh.last)):
        held, start = layer.state_dict(), other.state_dict()
        assert held.keys() == start.keys()
        for name, value in start.items():
            assert torch.equal(held[name], value) or name.endswith("weight")
        assert (layer.role, layer.is_trained) == (None, False)
        assert not layer.input_bits.is_settled
        assert not layer.constant_bits()
    other = 4 * DENSE + 100  # another sensor: the same thing in other units
    check(train(model.train(), other), other)
    assert model.first.input_bits.kind == "rows"


@FORMS
@pytest.mark.parametrize("way", ["loop", "role"])
def test_loops_without_a_model(x, way):
    roles = ("first", "last") if way == "role" else (None, None)
    first = GCNConv(FEATURES, HIDDEN, role=roles[0])
    last = GCNConv(HIDDEN, CLASSES, role=roles[1])

    def run(x, edges):
        return last(first(x, edges).relu(), edges)

    train(run, x, parameters=[*first.parameters(), *last.parameters()])
    first.eval(), last.eval()
    assert (first.role, last.role) == ("first", "last")
    assert accuracy(run, x) > 0.85


def graphs_of(number):
    draw = torch.Generator().manual_seed(0)
    for label in torch.arange(number) % 2:
        nodes = int(torch.randint(4, 9, (1,), generator=draw))
        x = torch.randn(nodes, 8, generator=draw) + 1.5 * label
        edges = torch.randint(0, nodes, (2, 2 * nodes), generator=draw)
        yield Data(x=x, edge_index=edges, y=label.view(1))


class Pooled(nn.Module):
    def __init__(self, kind, precision):
        super().__init__()
        self.a, self.b = (kind(size, 16, precision=precision) for size in (8, 16))
        self.head = nn.Linear(16, 2)

    def forward(self, x, edges, batch):
        hidden = self.b(self.a(x, edges).relu(), edges).relu()
        return self.head(global_mean_pool(hidden, batch))


@pytest.mark.parametrize(
    ("size", "lonely", "kind", "precision"),
    [
        (16, False, GCNConv, "bin"),
        (1, True, GCNConv, "bin"),
        (1, False, GCNConv, "full"),
        (1, False, SAGEConv, "bin"),
        (1, False, GraphConv, "bin"),
    ],
)
def test_small_graphs_in_small_batches(size, lonely, kind, precision):
    graphs = list(graphs_of(112))
    model = Pooled(kind, precision)
    if lonely:
        model(torch.randn(1, 8), NONE, torch.zeros(1, dtype=torch.long)).sum().backward()
        model.zero_grad()
    optimizer, seen = torch.optim.Adam(model.parameters(), lr=0.01), 0
    for _ in range(4 if size == 1 else 8):
        for part in DataLoader(graphs[:64], size, shuffle=True):
            scores = model(part.x, part.edge_index, part.batch)
            (functional.cross_entropy(scores, part.y) * size / 16).backward()
            seen += size
            if seen % 16 == 0:
                optimizer.step()
                optimizer.zero_grad()
    test = next(iter(DataLoader(graphs[64:], 64)))
    scores = model.eval()(test.x, test.edge_index, test.batch)
    assert float((scores.argmax(1) == test.y).float().mean()) > 0.8
    bitgnn.freeze(model)


@KINDS
def test_columns_of_very_different_scales_are_learnt_from(kind):
    scales = 10.0 ** torch.linspace(-4, 6, FEATURES)
    scales[FEATURES // 2] = 0.0
    x = DENSE * scales
    model = train(Two(kind), x).eval()
    assert accuracy(model, x) > 0.9
    frozen = bitgnn.freeze(model)
    with torch.no_grad():
        assert torch.equal(frozen(x, DATA.edge_index), model(x, DATA.edge_index))
