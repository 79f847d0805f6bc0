"""Candidates: combinations of precisions, pins, and what is refused before anything is trained."""

import pytest
import torch_geometric.nn as pyg
from torch import nn

import bitgnn
from bitgnn.distillation import DistillError
from bitgnn.distillation.problems import Nodes
from bitgnn.tune.candidates import (
    MOST_COMBINATIONS,
    PRECISIONS,
    Candidate,
    candidates,
    combinations,
    pinned_layers,
)

F, C = 70, 4


def found(model, data, precisions=PRECISIONS, pins=None, widths=(1.0,)):
    problem = Nodes(data, model, None, None, 0)
    return candidates(model, problem, precisions, pins, widths)


def test_all_combinations_of_few_those_nearest_to_the_default_first():
    assert list(combinations([("a", "b"), ("a", "b", "c")])) == [
        ("a", "a"), ("a", "b"), ("a", "c"), ("b", "a"), ("b", "b"), ("b", "c"),
    ]  # fmt: skip
    assert len(list(combinations([PRECISIONS[:2]] * 4))) == MOST_COMBINATIONS


def test_one_layer_at_a_time_of_many():
    made = list(combinations([("a", "b", "c")] * 9))
    assert len(made) == len(set(made)) == 1 + 9 * 2
    assert made[0] == ("a",) * 9
    assert {row.count("a") for row in made[1:]} == {8}


def test_each_makes_another_binary_model(model, data):
    made = found(model, data, widths=(1.0, 2.0))
    assert made[0] == Candidate({"convs.0": "bin", "convs.1": "bin"}, 1.0)
    assert [one.widen for one in made[:4]] == [1.0, 2.0, 1.0, 2.0]
    # Of the nine, floats are no candidate, and a last layer of "full" is that of "bin".
    assert {tuple(one.precisions.values()) for one in made} == {
        ("bin", "bin"), ("bin", "fp32"), ("full", "bin"), ("fp32", "bin"),
    }  # fmt: skip
    assert len({one.folder for one in made}) == len(set(made)) == len(made) == 8
    for one in made:
        layers = bitgnn.binarize(model, one.config, example=data).convs
        floats = [layer.letters.is_float for layer in layers]
        assert floats == [precision == "fp32" for precision in one.precisions.values()]


class Own(nn.Module):
    """A graph layer, a norm, a sum, and a linear layer that stays in floats."""

    def __init__(self):
        super().__init__()
        self.graph, self.norm = pyg.SAGEConv(F, 16), nn.BatchNorm1d(16)
        self.skip, self.scores = nn.Linear(F, 16), nn.Linear(16, C)

    def forward(self, x, edge_index):
        return self.scores(self.norm(self.graph(x, edge_index) + self.skip(x)))


@pytest.mark.parametrize(
    ("make", "layers", "count"),
    [
        (Own, ["graph"], 1),
        (lambda: bitgnn.models.GCN(F, 16, C, precision="fp32"), ["convs.0", "convs.1"], 4),
        (lambda: pyg.GraphSAGE(F, 16, 5, C), [f"convs.{i}" for i in range(5)], 1 + 2 * 5 - 1),
    ],
)
def test_layers_of_other_models(make, layers, count, data):
    made = found(make(), data)
    assert [list(one.precisions) for one in made] == [layers] * len(made)
    assert len(made) == count


@pytest.mark.parametrize(
    ("pins", "expected"),
    [
        ({"convs.0": "fp32"}, {"convs.0": "fp32"}),
        ({0: "FBF+FBF", -1: "full"}, {"convs.0": "FBF+FBF", "convs.1": "full"}),
        (["convs.1=full", "0 = bin"], {"convs.1": "full", "convs.0": "bin"}),
        ("convs.1=full", {"convs.1": "full"}),
        (None, {}),
    ],
)
def test_pins(pins, expected, model, data):
    assert pinned_layers(pins, ["convs.0", "convs.1"]) == expected
    made = found(model, data, pins=pins)
    assert made
    for one in made:
        assert {**one.precisions, **expected} == one.precisions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pins": {"conv9": "bin"}}, r"pins name the layer 'conv9', the model has \['convs.0', "),
        ({"pins": {5: "bin"}}, "pins name the layer 5"),
        ({"pins": {"convs.0": "FBX+XXX"}}, "tune: the pin of 'convs.0': .*'FBX"),
        ({"pins": {0: "bin", "convs.0": "bin"}}, "must name a layer once, got 'convs.0' twice"),
        ({"pins": ["everything fast"]}, "pins must read like 'conv1=fp32', got 'everything fast'"),
        ({"pins": {0: "fp32", 1: "fp32"}}, "leave no binary model: all layers are in floats"),
        ({"precisions": "fp32"}, "leave no binary model"),
        ({"precisions": ()}, "precisions must name one at least"),
        ({"precisions": ("bin", "float16")}, "tune: precisions: .*'float16'"),
        ({"precisions": (3,)}, "tune: precisions: "),
        *(({"widths": w}, "widen must be numbers of at least 1") for w in ((), (0.5,), (1, 1e999))),
    ],
)
def test_what_is_refused(options, message, model, data):
    with pytest.raises(ValueError, match=message):
        found(model, data, **options)


def test_a_model_that_cannot_be_widened_is_refused_at_once(data):
    with pytest.raises(DistillError, match="widen"):
        found(pyg.GCN(F, 16, 1, C), data, widths=(1.0, 2.0))


def test_long_names_become_checksums():
    names = [
        Candidate({f"convs.{i}": "FBF+FBF" for i in range(40)} | {"last": last}).folder
        for last in ("bin", "full")
    ]
    assert len(set(names)) == 2
    assert max(map(len, names)) < 30
