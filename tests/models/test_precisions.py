"""Precisions of a whole model: presets, letters, one entry a layer, options, refusals."""

import pytest

from bitgnn.models.base import describe_precision, layer_precisions
from bitgnn.nn import LayerPrecision


def letters(precision, num_layers, **options):
    layers = layer_precisions(precision, num_layers, options)
    return [f"{layer.bmm}+{layer.bspmm}" for layer in layers]


def test_presets():
    assert letters("fp32", 3) == ["FFF+FFF"] * 3
    assert letters("full", 2) == ["FBF+FBF"] * 2
    assert letters("bin", 3) == ["FBB+BBB", "BBB+BBB", "BBF+FBF"]
    # One layer has no boundary to put bits on, and its scores need the scale.
    assert letters("bin", 1) == ["FBF+FBF"]


@pytest.mark.parametrize(
    "precision",
    [
        "FBB+BBB, BBF+FBF",
        ("FBB+BBB", "BBF+FBF"),
        [LayerPrecision("FBB", "BBB"), LayerPrecision("BBF", "FBF")],
    ],
)
def test_one_entry_a_layer(precision):
    assert letters(precision, 2) == ["FBB+BBB", "BBF+FBF"]
    assert letters(describe_precision(precision), 2) == ["FBB+BBB", "BBF+FBF"]


def test_letters_and_objects_hold_for_every_layer():
    assert letters("BBF+FBF", 3) == ["BBF+FBF"] * 3
    assert letters(LayerPrecision("BBF", "FBF"), 2) == ["BBF+FBF"] * 2


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
