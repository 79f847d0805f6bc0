"""freeze() with a plan: letters, forced orders, defaults that stay with the model, refusals."""

import json
import warnings
from pathlib import Path

import pytest
import torch
import torch_geometric.nn
from graphs import odd_graph
from torch import nn

from bitgnn import GraphConfig, Plan, binarize, capture, freeze, load, save
from bitgnn._checksummed import sealed
from bitgnn.convert import ModelShape
from bitgnn.convert.swap.graphs import own_letters, with_letters
from bitgnn.models import GCN, GraphSAGE, GraphSAINT
from bitgnn.nn import GCNConv, LayerPrecision, Linear

N, FEATURES, CLASSES = 90, 70, 5


class Mixed(nn.Module):
    """A norm, a join and a linear layer between PyG's layers."""

    def __init__(self):
        super().__init__()
        self.first = torch_geometric.nn.GCNConv(FEATURES, 24)
        self.norm = nn.BatchNorm1d(24)
        self.second = torch_geometric.nn.SAGEConv(24, 24)
        self.lin = Linear(48, CLASSES)

    def forward(self, x, edge_index):
        h = self.norm(self.first(x, edge_index))
        return self.lin(torch.cat([h, self.second(h, edge_index)], dim=1))


@pytest.fixture
def graph():
    return odd_graph(N, 260, seed=1).unique(dim=1)


@pytest.fixture
def x():
    return torch.randn(N, FEATURES, generator=torch.Generator().manual_seed(2))


def trained(model, x, graph):
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x, graph), torch.arange(N) % CLASSES).backward()
        optimizer.step()
    return model.eval()


@pytest.fixture
def binary(x, graph):
    return trained(GCN(FEATURES, 24, CLASSES, precision="bin"), x, graph)


@pytest.fixture
def floats(x, graph):
    return trained(GCN(FEATURES, 24, CLASSES, precision="fp32"), x, graph)


def check(frozen, model, x, graph):
    with torch.no_grad():
        torch.testing.assert_close(frozen(x, graph), model(x, graph), rtol=1e-5, atol=1e-5)


CHANGES = {
    "gcn": (lambda: GCN(FEATURES, 24, CLASSES, precision="fp32"), ["FBB+BBB", "BBF+FBF"]),
    "norms": (
        lambda: GCN(FEATURES, 24, CLASSES, 3, "bin", hidden_norm="batch", output_norm="batch"),
        ["FBF+FBF", "FBB+BFB", "BBF+FFF"],
    ),
    "inductive": (
        lambda: GCN(FEATURES, 24, CLASSES, precision="bin", inductive=True),
        ["FBF+FBF", "FFF+FBF"],
    ),
    "sage": (lambda: GraphSAGE(FEATURES, 24, CLASSES, precision="full"), ["FBB+BBB", "BBF+FBF"]),
    "saint": (lambda: GraphSAINT(FEATURES, 24, CLASSES, precision="full"), ["FFF+FFF", "FBB+BBB"]),
    "mixed": (Mixed, ["FBF+FBF", "BBB+BBF", "FBF"]),
    "binarized": (
        lambda: binarize(Mixed(), GraphConfig(LayerPrecision("FBF", "FBF", output_norm="batch"))),
        ["FFF+FFF", "FBF+FBF", "FFF"],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_letters_as_the_model_in_them(name, x, graph, device):
    make, texts = CHANGES[name]
    torch.manual_seed(0)
    model = trained(make(), x, graph).to(device)
    x, graph = x.to(device), graph.to(device)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    plan = Plan(dict(zip(own_letters(model), texts, strict=True)), model=ModelShape.of(model))
    frozen = freeze(model, plan)
    copy = with_letters(model, plan.letters).eval()
    assert own_letters(copy) == dict(plan.letters)
    check(frozen, copy, x, graph)
    assert freeze(copy, plan, check=False)(x, graph).equal(frozen(x, graph))
    assert all(tensor.equal(before[key]) for key, tensor in model.state_dict().items())


def test_own_letters_change_nothing(binary, x, graph):
    own = own_letters(binary)
    assert own == {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}
    expected, copy = freeze(binary)(x, graph), with_letters(binary, own)
    assert copy is not binary
    for frozen in (freeze(binary, Plan(own)), freeze(binary, Plan({})), freeze(copy)):
        assert frozen(x, graph).equal(expected)


@pytest.mark.parametrize("in_file", [False, True])
def test_letters_of_some_layers(binary, in_file, tmp_path):
    plan = Plan({"convs.1": "BBF+FFF"})
    frozen = freeze(binary, str(plan.save(tmp_path / "plan.yaml")) if in_file else plan)
    assert frozen.report.letters == {"convs.0": "FBB+BBB", "convs.1": "BBF+FFF"}


def test_a_plan_may_name_floats_alone(floats, x, graph):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frozen = freeze(floats, Plan(own_letters(floats)))
    check(frozen, floats, x, graph)
    with pytest.raises(ValueError, match="has no binary layer"):
        freeze(floats)


ORDERS = ["transform_first", "aggregate_first"]


class PlainSage(nn.Module):
    """PyG's SAGEConv, which aggregates first, in front of a binary layer and behind it."""

    def __init__(self):
        super().__init__()
        self.first = GCNConv(FEATURES, 24, precision="FBF+FBF")
        self.second = torch_geometric.nn.SAGEConv(24, CLASSES)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def first_maps(frozen):
    """What the steps of each layer with an order do first."""
    found = {}
    for layer in frozen.report.orders:
        kinds = [step.kind for step in frozen.program.calls if step.layer == layer]
        aggregates = next(place for place, kind in enumerate(kinds) if kind.startswith("bspmm"))
        found[layer] = ORDERS[aggregates < kinds.index("linear")]
    return found


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("adjacency", ["FFF", "FBF"])
def test_forced_orders_of_a_gcn(order, adjacency, floats, x, graph):
    letters = dict.fromkeys(own_letters(floats), f"FFF+{adjacency}")
    plan = Plan(letters, dict.fromkeys(letters, order))
    frozen = freeze(floats, plan)
    assert first_maps(frozen) == frozen.report.orders == dict(plan.order)
    check(frozen, floats, x, graph)


@pytest.mark.parametrize("order", ORDERS)
def test_forced_orders_of_a_sage_layer(order, x, graph):
    model = trained(PlainSage(), x, graph)
    frozen = freeze(model, Plan({}, {"second": order}))
    assert frozen.report.orders == {"second": order}
    steps = [step for step in frozen.program.calls if step.layer == "second"]
    (size,) = (frozen.registers[call.outputs[0]].size for call in steps if call.graph is not None)
    assert size == (24 if order == "aggregate_first" else CLASSES)
    check(frozen, model, x, graph)


def test_without_an_order_the_one_with_less_work(x, graph):
    wide = trained(GCN(FEATURES, 200, CLASSES, precision="fp32"), x, graph)
    frozen = freeze(wide, Plan(own_letters(wide)))
    assert frozen.report.orders == {"convs.0": "aggregate_first", "convs.1": "transform_first"}
    assert first_maps(frozen) == frozen.report.orders


def test_the_form_of_features_stays_with_the_model(binary, x, graph, tmp_path):
    plan = Plan(own_letters(binary), features="packed")
    frozen = freeze(binary, plan)
    expected = freeze(binary)(x, graph)
    for one in (frozen, load(save(frozen, tmp_path / "model"))):
        assert one.features == "packed"
        adjacency = one.prepare_graph(graph, N)
        assert capture(one, one.pack_features(x), adjacency)().equal(expected)
        with pytest.raises(ValueError, match="x must be the result of pack_features"):
            one(x, adjacency)
    assert freeze(binary, plan, features="floats")(x, graph).equal(expected)


def test_older_checkpoints_still_load(binary, x, graph, tmp_path):
    folder = save(freeze(binary), tmp_path / "model")
    file = folder / "model.json"
    description = json.loads(file.read_text())
    del description["report"]["orders"]
    # What they say of layout, method and executor changed no result, and is passed over.
    run = {"layout": "frdc", "method": "if_else", "executor": "predicted"}
    for older in (description, {**description, "defaults": run}):
        file.write_text(json.dumps(sealed(older)))
        assert load(folder)(x, graph).equal(freeze(binary)(x, graph))


NO_CHOICE = Plan({"convs.0": "FFF+FBB"}, {"convs.0": "aggregate_first"})
OTHER = Plan({}, model=ModelShape.of(GCN(FEATURES, 32, CLASSES)))
FLOATS = Plan({"convs.0": "FFF+FFF", "convs.1": "FBF+FBF"}, features="packed")


@pytest.mark.parametrize(
    ("plan", "error", "message"),
    [
        (NO_CHOICE, ValueError, r"plan orders \['convs.0'\], but only float maps"),
        (OTHER, ValueError, r"plan is for GCN of .*32.*the model is GCN of .*24"),
        (FLOATS, ValueError, "features must be 'floats', got 'packed'"),
        (Plan({"convs.1": "BBB+BBB"}), ValueError, "last layer must return floats"),
        (Path("none.yaml"), FileNotFoundError, "none.yaml"),
    ],
)
def test_refusals(plan, error, message):
    with pytest.raises(error, match=message):
        freeze(GCN(FEATURES, 24, CLASSES, precision="bin"), plan)
