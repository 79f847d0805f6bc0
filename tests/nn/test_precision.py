"""LayerPrecision: what strings mean, which fields exist, what cannot be combined."""

import pytest
from wrong_calls import check_wrong_calls

from bitgnn.nn import (
    PRESETS,
    GCNConv,
    GraphConv,
    LayerPrecision,
    Linear,
    SAGEConv,
    default_precision,
)

OPTIONS = {
    "surrogate": "approx",
    "weight_gradient": "ste",
    "hardtanh": True,
    "input_norm": "standardize",
    "hidden_norm": "batch",
    "output_norm": "batch",
}
LOOKED_UP = {"inputs": "looked_up", "order": "aggregate_first"}


@pytest.mark.parametrize("name", [*PRESETS, "FBB+BBB", "BFF+FBF", "FIF+FBF", "FIB+BBF"])
def test_strings_round_trip(name):
    precision = LayerPrecision.parse(name)
    assert str(precision) == name
    assert LayerPrecision.parse(precision) is precision
    assert GCNConv(4, 4, precision=name).precision == name


@pytest.mark.parametrize(
    ("precision", "letters"), [("fp32", "FFF"), ("full", "FBF"), ("bin", "FBB"), ("BFF", "BFF")]
)
def test_linear_reads_three_letters(precision, letters):
    assert LayerPrecision.parse_linear(precision).bmm == letters
    assert Linear(4, 4, precision=precision).precision == precision
    assert LayerPrecision.parse_linear(LayerPrecision.parse("bin")).bmm == "FBB"


@pytest.mark.parametrize("name", [*OPTIONS, *LOOKED_UP])
def test_unknown_values_of_a_field_are_named(name):
    with pytest.raises(ValueError, match=rf"{name} must be one of .*, got 'soft'"):
        LayerPrecision("FBF", "FBF", **{name: "soft"})


@pytest.mark.parametrize("layer", [GCNConv, SAGEConv, GraphConv])
def test_default_is_nested_and_restored(layer):
    assert layer(4, 4).precision == "bin"
    with default_precision("fp32"):
        assert layer(4, 4).letters.is_float
        with default_precision(LayerPrecision("FBF", "FBF", output_norm="batch")):
            assert layer(4, 4).letters.output_norm == "batch"
            assert layer(4, 4, precision="full").precision == "full"
        assert layer(4, 4).letters.is_float
    for bad, error in (("binary", ValueError), ("", ValueError), (None, TypeError)):
        with pytest.raises(error), default_precision(bad):
            pytest.fail("the block must not be entered")
    assert layer(4, 4).precision == "bin"


WRONG = r"""
LayerPrecision("FBB", "FBF") -> ValueError: output of BMM \(B\) must be the activation .* \(F\)
LayerPrecision("FB", "FBF") -> ValueError: bmm must be three letters F or B, got 'FB'
LayerPrecision("FBF", 1) -> TypeError: bspmm must be a string, got int
LayerPrecision.parse("half") -> ValueError: 'fp32', 'full', 'bin' or letters .* got 'half'
LayerPrecision.parse_linear("FBB+BBF") -> ValueError: or three letters .* got 'FBB[+]BBF'
LayerPrecision("BFF", "FBF", **LOOKED_UP)
    -> ValueError: 'looked_up' needs binary or 8-bit weights, got 'BFF'
LayerPrecision("FIF", "FBF") -> ValueError: the letter I of 'FIF' needs inputs='looked_up'
LayerPrecision("BIF", "FBF", **LOOKED_UP) -> ValueError: bmm must be three letters .*'BIF'.*FIB
LayerPrecision("FIF", "FBF", shortcut=True) -> ValueError: shortcut needs inputs='looked_up'
LayerPrecision.parse(1) -> TypeError: a string or a LayerPrecision, got int
LayerPrecision.parse_linear(1) -> TypeError: a string or a LayerPrecision, got int
LayerPrecision("FFF", "FFF", hardtanh=True, output_norm="batch")
    -> ValueError: \['hardtanh', 'output_norm'\] need a binary letter
LayerPrecision("FBB", "BBF", shortcut=True) -> ValueError: shortcut needs inputs='looked_up'
LayerPrecision("FBB", "BBF", shortcut=3)
    -> ValueError: shortcut must be one of False, True, got 3
"""


def test_wrong_calls():
    check_wrong_calls(WRONG, globals())
    assert LayerPrecision("FFF", "FFF", surrogate="approx").is_float
