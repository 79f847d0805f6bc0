"""Precisions of a whole model: presets, letters, one entry a layer, options, refusals."""

import pytest

from bitgnn.models.base import describe_precision, layer_precisions
from bitgnn.nn import LayerPrecision


def letters(precision, num_layers, **options):
    layers = layer_precisions(precision, num_layers, options)
    return [f"{layer.bmm}+{layer.bspmm}" for layer in layers]


PAIR = ["FBB+BBB", "BBF+FBF"]


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("fp32", ["FFF+FFF"] * 3),
        ("full", ["FBF+FBF"] * 2),
        ("bin", ["FBB+BBB", "BBB+BBB", "BBF+FBF"]),
        # One layer has no boundary to put bits on, and its scores need the scale.
        ("bin", ["FBF+FBF"]),
        ("FBB+BBB, BBF+FBF", PAIR),
        (tuple(PAIR), PAIR),
        ([LayerPrecision("FBB", "BBB"), LayerPrecision("BBF", "FBF")], PAIR),
        ("BBF+FBF", ["BBF+FBF"] * 3),
        (LayerPrecision("BBF", "FBF"), ["BBF+FBF"] * 2),
    ],
)
def test_presets_letters_and_one_entry_a_layer(precision, expected):
    assert letters(precision, len(expected)) == expected
    assert letters(describe_precision(precision), len(expected)) == expected


def test_options_go_where_they_act():
    first, last = layer_precisions(
        "bin", 2, {"hidden_norm": "batch", "output_norm": "batch", "surrogate": "approx"}
    )
    assert (first.hidden_norm, first.output_norm, first.surrogate) == ("batch", "batch", "approx")
    assert (last.hidden_norm, last.output_norm, last.surrogate) == (None, None, "approx")
    for layer in layer_precisions("fp32", 2, {"output_norm": "batch", "surrogate": "approx"}):
        assert layer == LayerPrecision.parse("fp32")


@pytest.mark.parametrize(
    ("precision", "num_layers", "error", "message"),
    [
        ("half", 2, ValueError, "got 'half'"),
        ("bin", 0, ValueError, "GCN: num_layers must be at least 1, got 0"),
        ("full, bin", 3, ValueError, "one entry for each of 3 layers, got 2"),
        ("FBB+BBB", 2, ValueError, "the last layer must return floats.*'FBB\\+BBB'"),
        (["full", 3], 2, TypeError, "precision must be"),
        (["FBF+BBF", "full"], 2, ValueError, "must be the activation of BSpMM"),
    ],
)
def test_impossible_precisions(precision, num_layers, error, message):
    with pytest.raises(error, match=message):
        layer_precisions(precision, num_layers, owner="GCN")


def test_unknown_options_are_named():
    with pytest.raises(TypeError, match=r"unknown options \['window'\], known are \['hidden_norm'"):
        layer_precisions("bin", 2, {"window": 4})
