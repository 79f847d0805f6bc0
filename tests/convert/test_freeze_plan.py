"""freeze() with a plan: letters, forced orders, defaults that stay with the model, refusals."""

import json
import warnings

import pytest
import torch
import torch_geometric.nn
from graphs import odd_graph
from torch import nn

from bitgnn import GraphConfig, Plan, binarize, freeze, load, save
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


def planned(model, texts):
    return Plan(dict(zip(own_letters(model), texts, strict=True)), model=ModelShape.of(model))


@pytest.mark.parametrize("name", CHANGES)
def test_letters_as_the_model_in_them(name, x, graph, device):
    make, texts = CHANGES[name]
    torch.manual_seed(0)
    model = trained(make(), x, graph).to(device)
    x, graph = x.to(device), graph.to(device)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    plan = planned(model, texts)
    frozen = freeze(model, plan)
    copy = with_letters(model, plan.letters).eval()
    assert own_letters(copy) == dict(plan.letters)
    with torch.no_grad():
        torch.testing.assert_close(frozen(x, graph), copy(x, graph), rtol=1e-5, atol=1e-5)
    assert freeze(copy, plan, check=False)(x, graph).equal(frozen(x, graph))
    assert all(tensor.equal(before[key]) for key, tensor in model.state_dict().items())


def test_own_letters_change_nothing(x, graph):
    model = trained(GCN(FEATURES, 24, CLASSES, precision="bin"), x, graph)
    own = own_letters(model)
    assert own == {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}
    expected = freeze(model)(x, graph)
    assert freeze(model, Plan(own))(x, graph).equal(expected)
    assert freeze(model, Plan({}))(x, graph).equal(expected)
    copy = with_letters(model, own)
    assert copy is not model
    assert freeze(copy)(x, graph).equal(expected)


def test_letters_of_some_layers(x, graph):
    model = trained(GCN(FEATURES, 24, CLASSES, precision="bin"), x, graph)
    frozen = freeze(model, Plan({"convs.1": "BBF+FFF"}))
    assert frozen.report.letters == {"convs.0": "FBB+BBB", "convs.1": "BBF+FFF"}


def test_a_plan_may_name_floats_alone(x, graph):
    model = trained(GCN(FEATURES, 24, CLASSES, precision="fp32"), x, graph)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frozen = freeze(model, Plan(own_letters(model)))
    with torch.no_grad():
        torch.testing.assert_close(frozen(x, graph), model(x, graph), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="has no binary layer"):
        freeze(model)


ORDERS = ["transform_first", "aggregate_first"]


class PlainSage(nn.Module):
    """PyG's SAGEConv, which aggregates first, in front of a binary layer and behind it."""

    def __init__(self):
        super().__init__()
        self.first = GCNConv(FEATURES, 24, precision="FBF+FBF")
        self.second = torch_geometric.nn.SAGEConv(24, CLASSES)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def first_map(frozen, layer):
    """What the steps of a layer do first."""
    kinds = [step.kind for step in frozen.program.steps if step.layer == layer]
    aggregates = next(place for place, kind in enumerate(kinds) if kind.startswith("bspmm"))
    maps = next(place for place, kind in enumerate(kinds) if kind == "linear")
    return "aggregate_first" if aggregates < maps else "transform_first"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("adjacency", ["FFF", "FBF"])
def test_forced_orders_of_a_gcn(order, adjacency, x, graph):
    model = trained(GCN(FEATURES, 24, CLASSES, precision="fp32"), x, graph)
    letters = dict.fromkeys(own_letters(model), f"FFF+{adjacency}")
    plan = Plan(letters, dict.fromkeys(letters, order))
    frozen = freeze(model, plan)
    assert {layer: first_map(frozen, layer) for layer in letters} == dict(plan.order)
    assert frozen.report.orders == plan.order
    with torch.no_grad():
        torch.testing.assert_close(frozen(x, graph), model(x, graph), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", ORDERS)
def test_forced_orders_of_a_sage_layer(order, x, graph):
    model = trained(PlainSage(), x, graph)
    frozen = freeze(model, Plan({}, {"second": order}))
    assert frozen.report.orders == {"second": order}
    (sums,) = (
        step for step in frozen.program.steps if step.graph is not None and step.layer == "second"
    )
    assert sums.attributes["size"] == (24 if order == "aggregate_first" else CLASSES)
    with torch.no_grad():
        torch.testing.assert_close(frozen(x, graph), model(x, graph), rtol=1e-5, atol=1e-5)


def test_without_an_order_the_one_with_less_work(x, graph):
    wide = trained(GCN(FEATURES, 200, CLASSES, precision="fp32"), x, graph)
    frozen = freeze(wide, Plan(own_letters(wide)))
    assert frozen.report.orders == {"convs.0": "aggregate_first", "convs.1": "transform_first"}
    assert {layer: first_map(frozen, layer) for layer in frozen.report.orders} == dict(
        frozen.report.orders
    )


def test_orders_without_a_choice(x, graph):
    model = trained(GCN(FEATURES, 24, CLASSES, precision="fp32"), x, graph)
    plan = Plan({"convs.0": "FFF+FBB", "convs.1": "BBF+FBF"}, {"convs.0": "aggregate_first"})
    with pytest.raises(ValueError, match=r"plan orders \['convs.0'\], but only float maps"):
        freeze(model, plan)


def test_the_form_of_features_stays_with_the_model(x, graph, tmp_path):
    model = trained(GCN(FEATURES, 24, CLASSES, precision="bin"), x, graph)
    plan = Plan(own_letters(model), features="packed")
    frozen = freeze(model, plan)
    expected = freeze(model)(x, graph)
    for one in (frozen, load(save(frozen, tmp_path / "model"))):
        assert one.features == "packed"
        adjacency = one.prepare_graph(graph, N)
        assert one.executor()(one.pack_features(x), adjacency).equal(expected)
        with pytest.raises(ValueError, match="x must be the result of pack_features"):
            one(x, adjacency)
    assert freeze(model, plan, features="floats")(x, graph).equal(expected)


def test_older_checkpoints_still_load(x, graph, tmp_path):
    model = trained(GCN(FEATURES, 24, CLASSES, precision="bin"), x, graph)
    folder = save(freeze(model), tmp_path / "model")
    file = folder / "model.json"
    description = json.loads(file.read_text())
    del description["report"]["orders"]
    # What they say of layout, method and executor changed no result, and is passed over.
    run = {"layout": "frdc", "method": "if_else", "executor": "predicted"}
    for older in (description, {**description, "defaults": run}):
        file.write_text(json.dumps(sealed(older)))
        assert load(folder)(x, graph).equal(freeze(model)(x, graph))


def test_a_plan_in_a_file(x, graph, tmp_path):
    model = trained(GCN(FEATURES, 24, CLASSES, precision="bin"), x, graph)
    plan = Plan({"convs.0": "FBF+FBB"})
    frozen = freeze(model, str(plan.save(tmp_path / "plan.yaml")))
    assert frozen.report.letters["convs.0"] == "FBF+FBB"


def test_refusals(tmp_path):
    model = GCN(FEATURES, 24, CLASSES, precision="bin")
    other = ModelShape.of(GCN(FEATURES, 32, CLASSES))
    with pytest.raises(ValueError, match=r"plan is for GCN of .*32.*the model is GCN of .*24"):
        freeze(model, Plan(own_letters(model), model=other))
    with pytest.raises(ValueError, match="features must be 'floats', got 'packed'"):
        freeze(model, Plan({"convs.0": "FFF+FFF", "convs.1": "FBF+FBF"}, features="packed"))
    with pytest.raises(ValueError, match="last layer must return floats"):
        freeze(model, Plan({"convs.1": "BBB+BBB"}))
    with pytest.raises(FileNotFoundError):
        freeze(model, tmp_path / "none.yaml")
