"""Ternary letters in the tuner: of layers trained with them, with every plan runnable."""

import pytest
import torch

import bitgnn
from bitgnn.models import GCN
from bitgnn.nn import Linear
from bitgnn.tune.letter_choices import LetterChoices, layer_rules
from bitgnn.tune.pins import pin_patterns, pinned_choices
from bitgnn.tune.space import Space
from bitgnn.tune.workload import Workload

FEATURES, CLASSES = 70, 4


@pytest.fixture
def ternary(data):
    torch.manual_seed(0)
    model = GCN(FEATURES, 40, CLASSES, precision="TBF+TBF")
    model(data.x, data.edge_index)  # which starts the scales
    return model.eval()


def test_letters_are_those_of_trained_scales(ternary, data):
    assert len(LetterChoices(layer_rules(GCN(FEATURES, 40, CLASSES)), {})) == 128
    untrained = GCN(FEATURES, 40, CLASSES, precision="TBF+TBF")
    assert len(LetterChoices(layer_rules(untrained), {})) == 128
    chains = list(LetterChoices(layer_rules(ternary), {}))
    assert len(chains) == len(LetterChoices(layer_rules(ternary), {}))
    letters = {text for chain in chains for text in chain.values()}
    assert {"TBF+TBF", "TBB+BBB", "FBF+TBB", "BBF+TBF", "TBF+FFF"} <= letters
    assert not {text for text in letters if "TF" in text or "FT" in text}
    assert {"convs.0": "TBF+TBF", "convs.1": "TBF+TBF"} in LetterChoices(layer_rules(ternary), {})
    one = GCN(FEATURES, 40, CLASSES, precision=["TBF+FBF", "full"])
    one(data.x, data.edge_index)
    found = {chain["convs.1"] for chain in LetterChoices(layer_rules(one), {})}
    assert not any("T" in text for text in found)


def test_every_ternary_plan_runs(ternary, data):
    workload = Workload.of(ternary, data)
    space = Space.from_workload(workload, {0: "TBF+***", 1: "***+TBF"})
    seen = set()
    for plan in space:
        frozen = bitgnn.freeze(ternary, plan)
        graph = frozen.prepare_graph(data.edge_index, data.num_nodes)
        assert frozen(data.x, graph).isfinite().all()
        seen.add(tuple(plan.letters.values()))
    assert ("TBF+TBF", "TBF+TBF") in seen
    assert len(seen) == space.num_choices


def test_pins_name_ternary_letters(ternary):
    rules = layer_rules(ternary)
    assert pin_patterns(["convs.0=TBF+TBF"], rules) == {"convs.0": "TBF+TBF"}
    with pytest.raises(ValueError, match=r"pin of 'convs\.0' must read like"):
        pin_patterns(["convs.0=TBF+TXX"], rules)
    with pytest.raises(ValueError, match=r"pins .*TBF\+TBF"):
        pinned_choices(GCN(FEATURES, 40, CLASSES), ["convs.0=TBF+TBF"])


def test_linear_layers_have_them_too():
    model = torch.nn.Sequential(Linear(8, 8, precision="TBF"), Linear(8, 3, precision="TBF"))
    model(torch.randn(20, 8))
    found = {tuple(chain.values()) for chain in LetterChoices(layer_rules(model), {})}
    assert ("TBF", "TBF") in found
    assert ("TBB", "BBF") in found
