"""Which letters layers may have together, by what stands between them; pins."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import bitgnn
from bitgnn.models import GCN, GraphSAGE, GraphSAINT
from bitgnn.nn import GCNConv, LayerPrecision, Linear
from bitgnn.tune.letters import (
    LayerRule,
    LetterChoices,
    layer_rules,
    pin_patterns,
    pinned_choices,
)
from bitgnn.tune.space import Space
from bitgnn.tune.workload import Workload

F, C = 70, 4


class Net(nn.Module):
    """Two GCNConv with something between, and what else a test gives."""

    def __init__(self, between, scores=None):
        super().__init__()
        self.one, self.two = GCNConv(F, 16), GCNConv(16, C)
        self.between, self.scores = between, scores

    def forward(self, x, edge_index):
        h = self.two(self.between(self.one(x, edge_index)), edge_index)
        return h if self.scores is None else self.scores(h)


def choices(model, pins=None):
    return LetterChoices(layer_rules(model), pin_patterns(pins, layer_rules(model)))


def pairs(model):
    """Last letter of the first layer and first letter of the second one, and that of the scores."""
    chains = list(choices(model))
    first, second = layer_rules(model)[:2]
    return {(c[first.name][-1], c[second.name][0], c[second.name][-1]) for c in chains}


PASSED_ON = {("F", "F", "F"), ("B", "B", "F")}


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        (nn.Identity(), PASSED_ON),
        (nn.Dropout(0.3), PASSED_ON),
        (nn.Hardtanh(), PASSED_ON),
        (nn.BatchNorm1d(16), {("F", "F", "F"), ("F", "B", "F")}),
        (nn.Tanh(), {("F", "F", "F"), ("F", "B", "F")}),
        (nn.ReLU(), {("F", "F", "F")}),
        (nn.Sequential(nn.BatchNorm1d(16), nn.ReLU()), {("F", "F", "F")}),
        (nn.Linear(16, 16), {("F", "F", "F"), ("B", "F", "F")}),
        (nn.Sequential(nn.ReLU(), nn.Linear(16, 16)), {("F", "F", "F")}),
    ],
)
def test_what_stands_between(between, expected):
    assert pairs(Net(between)) == expected


@pytest.mark.parametrize(
    ("handed_over", "taken"), [("FF", "F"), ("BB", "B"), ("FB", "F"), ("TT", "T"), ("BT", "F")]
)
def test_what_all_sources_hand_over_alike_is_taken_as_it_is(handed_over, taken):
    rule = LayerRule("last", True, ("one", "two"), "nothing", "F")
    assert rule.activations(dict(zip(rule.sources, handed_over, strict=True))) == taken


def test_class_scores_are_floats():
    assert pairs(Net(nn.Identity(), nn.LogSoftmax(dim=-1))) == PASSED_ON
    free = pairs(Net(nn.Identity(), nn.Linear(C, C)))
    assert free == {(a, b, c) for a, b, _ in PASSED_ON for c in "FB"}


class Residual(nn.Module):
    def __init__(self, join):
        super().__init__()
        self.one, self.two = GCNConv(F, 16), GCNConv(16, 16)
        self.last, self.join = GCNConv(32 if join == "cat" else 16, C), join

    def forward(self, x, edge_index):
        a = self.one(x, edge_index)
        b = self.two(a, edge_index)
        both = torch.cat([a, b], dim=1) if self.join == "cat" else a + b
        return self.last(both, edge_index)


def test_sums_are_read_either_way_and_joins_as_they_are():
    for join in ("cat", "add"):
        model = Residual(join)
        sources = {rule.name: rule.sources for rule in layer_rules(model)}
        assert sources == {"one": (), "two": ("one",), "last": ("one", "two")}
        found = {(c["one"][-1], c["two"][-1], c["last"][0]) for c in choices(model)}
        outs = [(a, b) for a in "FB" for b in "FB"]
        if join == "cat":
            assert found == {(a, b, "B" if a == b == "B" else "F") for a, b in outs}
        else:
            assert found == {(a, b, c) for a, b in outs for c in "FB"}


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (GCN(F, 16, C), 128),
        (GCN(F, 16, C, precision="bin"), 128),
        (GCN(F, 16, C, inductive=True), 128),
        (GraphSAGE(F, 16, C, num_layers=3), 2048),
        (GraphSAINT(F, 16, C), 256),
        (pyg.GCN(F, 16, 2, C), 64),
        (bitgnn.binarize(pyg.GCN(F, 16, 2, C), bitgnn.GraphConfig(activation="drop")), 128),
        (Net(Linear(16, 16)), 16 * 4 * 8),
    ],
)
def test_numbers(model, count):
    chains = choices(model)
    made = list(chains)
    assert len(chains) == len(made) == count
    assert len({tuple(c.items()) for c in made}) == count
    assert made == list(chains)
    assert all(letters in chains for letters in made)
    for letters in made:
        for text in letters.values():
            (LayerPrecision.parse if "+" in text else LayerPrecision.parse_linear)(text)


def test_deep_models_are_counted_without_making_them():
    assert len(choices(GCN(F, 16, C, num_layers=12))) == 8 * 16**11


def test_what_is_no_chain():
    chains = choices(GCN(F, 16, C), {"convs.0": "F**+***"})
    good = {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}
    assert good in chains
    others = ({"convs.1": "FBF+FBF"}, {"convs.1": "BBF+FBB"}, {"x": "FBB"})
    for bad in (*({**good, **other} for other in others), {"convs.0": "FBB+BBB"}, "FBB"):
        assert bad not in chains


@pytest.mark.parametrize(
    ("pins", "expected"),
    [
        ({"convs.0": "FBB+BBB"}, {"convs.0": "FBB+BBB"}),
        ({0: "F**+***", -1: "full"}, {"convs.0": "F**+***", "convs.1": "FBF+FBF"}),
        ({"0": "F", "1": "fp32"}, {"convs.0": "FF*+*F*", "convs.1": "FFF+FFF"}),
        (["first layer stays F"], {"convs.0": "FF*+*F*"}),
        (["the last layer stays full"], {"convs.1": "FBF+FBF"}),
        (["convs.1=BBF+FBF", "layer 0 stays F**+***"],
         {"convs.1": "BBF+FBF", "convs.0": "F**+***"}),
        (None, {}),
    ],
)  # fmt: skip
def test_pins(pins, expected):
    model = GCN(F, 16, C)
    assert pin_patterns(pins, layer_rules(model)) == expected
    free, pinned = list(choices(model)), list(choices(model, pins))

    def fits(text, pattern):
        return all(p in ("*", c) for c, p in zip(text, pattern, strict=True))

    assert pinned == [c for c in free if all(fits(c[n], p) for n, p in expected.items())]
    assert pinned


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ({"conv9": "F"}, r"pins name the layer 'conv9', the model has \['convs.0', 'convs.1'\]"),
        ({5: "F"}, "pins name the layer 5"),
        ({"convs.0": "FBX+XXX"}, r"pin of 'convs.0' must read like .* got 'FBX\+XXX'"),
        ({"convs.0": "FBB"}, "pin of 'convs.0' must read like .* got 'FBB'"),
        (["convs.0=TBF+TXX"], r"pin of 'convs\.0' must read like"),
        ({0: "F", "convs.0": "F"}, "two pins for layer 'convs.0'"),
        (["everything fast"], "a pin must read like .* got 'everything fast'"),
    ],
)
def test_wrong_pins(pins, message):
    with pytest.raises(ValueError, match=message):
        pin_patterns(pins, layer_rules(GCN(F, 16, C)))


def test_layers_that_run_as_their_own_code_have_no_letters():
    class Largest(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.last = pyg.SAGEConv(F, 16, aggr="max"), GCNConv(16, C)

        def forward(self, x, edge_index):
            return self.last(self.conv(x, edge_index), edge_index)

    (rule,) = layer_rules(Largest())
    assert (rule.name, rule.sources, rule.between) == ("last", (), "floats")


def ternary(data, precision):
    torch.manual_seed(0)
    model = GCN(F, 40, C, precision=precision)
    model(data.x, data.edge_index)  # which starts the scales
    return model.eval()


def test_ternary_letters_are_those_of_trained_scales(data):
    assert len(choices(GCN(F, 40, C, precision="TBF+TBF"))) == 128
    chains = choices(ternary(data, "TBF+TBF"), ["convs.0=TBF+TBF"])
    assert {"convs.0": "TBF+TBF", "convs.1": "TBF+TBF"} in chains
    chains = choices(ternary(data, "TBF+TBF"))
    assert len(chains) == len(list(chains))
    letters = {text for chain in chains for text in chain.values()}
    assert {"TBF+TBF", "TBB+BBB", "FBF+TBB", "BBF+TBF", "TBF+FFF"} <= letters
    assert not {text for text in letters if "TF" in text or "FT" in text}
    first_alone = choices(ternary(data, ["TBF+FBF", "full"]))
    assert not any("T" in chain["convs.1"] for chain in first_alone)
    with pytest.raises(ValueError, match=r"pins .*TBF\+TBF"):
        pinned_choices(GCN(F, 40, C), ["convs.0=TBF+TBF"])
    model = nn.Sequential(Linear(8, 8, precision="TBF"), Linear(8, 3, precision="TBF"))
    model(torch.randn(20, 8))
    found = {tuple(chain.values()) for chain in choices(model)}
    assert {("TBF", "TBF"), ("TBB", "BBF")} <= found


def test_every_ternary_plan_runs(data):
    model = ternary(data, "TBF+TBF")
    space = Space.from_workload(Workload.of(model, data), {0: "TBF+***", 1: "***+TBF"})
    seen = set()
    for plan in space:
        frozen = bitgnn.freeze(model, plan)
        graph = frozen.prepare_graph(data.edge_index, data.num_nodes)
        assert frozen(data.x, graph).isfinite().all()
        seen.add(tuple(plan.letters.values()))
    assert ("TBF+TBF", "TBF+TBF") in seen
    assert len(seen) == space.num_choices
