"""Spaces and workloads: every plan runs, equal keys give equal bits, and scores are asked once."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import bitgnn
from bitgnn import Plan, freeze
from bitgnn.convert import ModelShape
from bitgnn.convert.swap.graphs import with_letters
from bitgnn.models import GCN, GraphSAGE, GraphSAINT
from bitgnn.nn import GraphConv, Linear
from bitgnn.tune.space import Accuracy, Space
from bitgnn.tune.workload import Workload

NODES, FEATURES, CLASSES = 90, 70, 4
BITS = {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}
FLOATS = {"convs.0": "FFF+FFF", "convs.1": "FFF+FFF"}


class Mixed(nn.Module):
    """Norms, a join and PyG's layers."""

    def __init__(self):
        super().__init__()
        self.one = pyg.GCNConv(FEATURES, 24)
        self.norm = nn.BatchNorm1d(24)
        self.two = pyg.SAGEConv(24, 24)
        self.last = pyg.GraphConv(48, CLASSES)

    def forward(self, x, edge_index):
        h = self.norm(self.one(x, edge_index))
        joined = torch.cat([h, self.two(h, edge_index)], dim=1)
        return self.last(joined, edge_index).log_softmax(-1)


class Perceptrons(nn.Module):
    """Linear layers of this package in front of a graph layer and behind it."""

    def __init__(self):
        super().__init__()
        self.into = Linear(FEATURES, 24, precision="FBF", dropout=0.1)
        self.conv = GraphConv(24, 24, precision="full")
        self.out = Linear(24, CLASSES)

    def forward(self, x, edge_index):
        return self.out(self.conv(self.into(x), edge_index))


MODELS = {
    "gcn": (lambda: GCN(FEATURES, 40, CLASSES, precision="bin", hidden_norm="batch"), 128, 3),
    "inductive": (lambda: GCN(FEATURES, 40, CLASSES, inductive=True), 128, 5),
    "sage": (lambda: GraphSAGE(FEATURES, 40, CLASSES, precision="full"), 128, 5),
    "saint": (lambda: GraphSAINT(FEATURES, 40, CLASSES), 256, 7),
    "three layers": (lambda: GCN(FEATURES, 40, CLASSES, num_layers=3), 2048, 205),
    "mixed": (Mixed, 2048, 205),
    "perceptrons": (Perceptrons, 4 * 16 * 2, 3),
    "binarized": (
        lambda: bitgnn.binarize(
            pyg.GraphSAGE(FEATURES, 24, 2, CLASSES), bitgnn.GraphConfig(activation="hardtanh")
        ),
        128,
        9,
    ),
}


def trained(model, data):
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data.x, data.edge_index), data.y).backward()
        optimizer.step()
    return model.eval()


def run_all(space, every):
    """Scores of every plan of some letters by what makes them equal, one dictionary a choice."""
    for letters in list(space.choices)[::every]:
        plans = space.plans(letters)
        assert len({*plans}) == len(plans) > 0
        found = {}
        for plan in plans:
            scores = space.make(plan).run()
            key = space.values_key(plan.letters, plan.order)
            assert found.setdefault(key, scores.clone()).equal(scores), plan.describe()
        yield letters, found


@pytest.mark.parametrize("name", MODELS)
def test_every_plan_runs_and_gives_what_the_model_gives(name, data):
    """Some of the choices of larger models: each with every plan."""
    make, count, every = MODELS[name]
    torch.manual_seed(0)
    space = Space.from_workload(Workload.of(trained(make(), data), data))
    assert space.num_choices == count
    for letters, found in run_all(space, every):
        model = with_letters(space.workload.model, letters).eval()
        with torch.no_grad():
            expected = model(data.x, data.edge_index)
        for scores in found.values():
            torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.cuda
def test_on_a_gpu(data):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    model = trained(GCN(FEATURES, 40, CLASSES, precision="bin"), data)
    space = Space.from_workload(Workload.of(model, data, device="cuda"))
    assert list(run_all(space, 9))


@pytest.fixture
def space(workload):
    return Space.from_workload(workload)


def test_the_same_plans_in_the_same_order(workload, monkeypatch):
    pin = {0: "FF*+***"}  # plans of other letters differ in these
    plans = list(Space.from_workload(workload, pin))
    assert len(plans) == len(set(plans))
    assert plans == list(Space.from_workload(workload, pin))
    assert all(plan.model == ModelShape.of(workload.model) for plan in plans)
    monkeypatch.setattr("bitgnn.tune.space.freeze", None)  # letters alone cost no model
    space = Space.from_workload(workload)
    assert len(list(space.choices)) == space.num_choices == 128


def test_plans_of_letters(space):
    assert space.plans(BITS) == [
        Plan(BITS, {}, features, space.shape) for features in ("floats", "packed")
    ]
    plans = space.plans({"convs.0": "FFF+FBF", "convs.1": "FFF+FFF"})
    assert len({tuple(plan.order.items()) for plan in plans}) == len(plans) == 4
    assert {plan.features for plan in plans} == {"floats"}
    with pytest.raises(ValueError, match="are no choice of this space"):
        space.plans({"convs.0": "FBB+BBB", "convs.1": "FBF+FBF"})


def test_orders_of_many_layers(data):
    model = GCN(FEATURES, 40, CLASSES, num_layers=6)
    model(data.x, data.edge_index)
    workload = Workload.of(model.eval(), data)
    floats = {f"convs.{i}": "FFF+FFF" for i in range(6)}
    space = Space.from_workload(workload)
    native = space.frozen(Plan(floats)).report.orders
    orders = [plan.order for plan in space.plans(floats)]
    assert orders[0] == native
    assert len(native) == 6
    changed = [sum(order[name] != native[name] for name in native) for order in orders]
    assert changed.count(1) == 6
    assert {"transform_first"} in [set(order.values()) for order in orders]
    assert len({tuple(order.items()) for order in orders}) == len(orders) <= 9
    one = Space.from_workload(workload, allow={"order": ["aggregate_first"]})
    assert [plan.order for plan in one.plans(floats)] == [dict.fromkeys(floats, "aggregate_first")]
    expected = model(data.x, data.edge_index)
    for plan in space.plans(floats):
        scores = space.make(plan).run()
        torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)


def test_values_key(space):
    assert len({space.values_key(letters) for letters in space.choices}) == 128
    assert space.values_key(BITS, {}) == space.values_key(dict(reversed(BITS.items())))
    chosen = space.frozen(Plan(FLOATS)).report.orders
    assert space.values_key(FLOATS) == space.values_key(FLOATS, chosen)
    (other,) = {"transform_first", "aggregate_first"} - {chosen["convs.0"]}
    turned = {**chosen, "convs.0": other}
    assert space.values_key(FLOATS, turned) != space.values_key(FLOATS)


def test_options_layer_by_layer(space):
    assert space.layers == ("convs.0", "convs.1")
    first = space.options("convs.0", {})
    assert len(first) == 16
    made = [
        {"convs.0": a, "convs.1": b}
        for a in first
        for b in space.options("convs.1", {"convs.0": a})
    ]
    assert made == list(space.choices)


def test_allow_and_pins(workload):
    pins = ["first layer stays FBB+BBB"]
    space = Space.from_workload(workload, pins, {"features": ["packed"]})
    assert space.num_choices == 8
    assert {letters["convs.0"] for letters in space.choices} == {"FBB+BBB"}
    assert {plan.features for plan in space} == {"packed"}
    ordered = Space.from_workload(workload, {0: "fp32", 1: "fp32"}, {"order": ["transform_first"]})
    assert [plan.order for plan in ordered] == [
        {"convs.0": "transform_first", "convs.1": "transform_first"}
    ]


def test_wrong_requests(workload):
    with pytest.raises(ValueError, match="no letters that fit together are left by the pins"):
        Space.from_workload(workload, {0: "FBB+BBB", 1: "F**+***"})
    for allow in ({"order": ["first"]}, {"layout": ["csr"]}, {"features": []}):
        with pytest.raises(ValueError, match="allow must name some of"):
            Space.from_workload(workload, allow=allow)


def test_candidates_share_models_graphs_and_packed_features(space):
    make = space.make
    first, packed = (make(Plan(BITS, features=form)) for form in ("floats", "packed"))
    for made in (first, packed):
        assert torch.equal(made.run(), made.frozen(made.x, made.graph))
        assert torch.equal(made.run(), made.kernels())
    assert packed.frozen is first.frozen
    assert packed.graph is first.graph
    assert packed.x.shape == first.x.shape
    assert not isinstance(packed.x, torch.Tensor)
    other = make(Plan({**BITS, "convs.1": "BBF+FFF"}, features="packed"))
    assert other.frozen is not first.frozen
    assert other.x is packed.x
    scaled = make(Plan(dict.fromkeys(BITS, "FBF+FBF"), features="packed"))
    assert scaled.x is not packed.x
    own = scaled.frozen.pack_features(space.workload.x)
    assert scaled.run().equal(scaled.frozen(own, scaled.graph))


def test_equal_results_are_scored_once_on_the_frozen_model(space, workload, monkeypatch):
    accuracy, made, make = Accuracy(space), [], space.make
    monkeypatch.setattr(space, "make", lambda plan: made.append(plan) or make(plan))
    logits = freeze(workload.model, Plan(BITS))(workload.x, workload.edge_index)
    right = (logits.argmax(1) == workload.y)[workload.val_mask]
    plans = space.plans(BITS)
    (found,) = {accuracy.of(plan) for plan in plans}
    assert found.validation == pytest.approx(right.double().mean().item())
    assert found.test is None
    assert (len(plans), len(made)) == (2, 1)  # two forms of the features
    for plan in space.plans(FLOATS):
        accuracy.of(plan)
    assert len(made) == 5  # four orders of the maps
    with pytest.raises(ValueError, match="are no choice of this space"):
        accuracy.of(Plan({"conv1": "FBB+BBB"}))
