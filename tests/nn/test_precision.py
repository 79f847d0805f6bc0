"""LayerPrecision: what strings mean, which fields exist, what cannot be combined."""

import pytest

from bitgnn.nn import PRESETS, GCNConv, LayerPrecision, Linear

OPTIONS = {
    "surrogate": "approx",
    "weight_gradient": "ste",
    "hardtanh": True,
    "input_norm": "standardize",
    "hidden_norm": "batch",
    "output_norm": "batch",
}
LOOKED_UP = {"inputs": "looked_up", "order": "aggregate_first"}


@pytest.mark.parametrize("name", [*PRESETS, "FBB+BBB", "BFF+FBF"])
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


def test_letters_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"output of BMM \(B\) must be the activation .* \(F\)"):
        LayerPrecision("FBB", "FBF")
    with pytest.raises(ValueError, match="bmm must be three letters F or B, got 'FB'"):
        LayerPrecision("FB", "FBF")
    with pytest.raises(TypeError, match="bspmm must be a string, got int"):
        LayerPrecision("FBF", 1)
    with pytest.raises(ValueError, match=r"'fp32', 'full', 'bin' or letters .* got 'half'"):
        LayerPrecision.parse("half")
    with pytest.raises(ValueError, match=r"or three letters .* got 'FBB[+]BBF'"):
        LayerPrecision.parse_linear("FBB+BBF")
    with pytest.raises(ValueError, match="'looked_up' needs bits times binary weights, got 'BFF'"):
        LayerPrecision("BFF", "FBF", **LOOKED_UP)
    for parse in (LayerPrecision.parse, LayerPrecision.parse_linear):
        with pytest.raises(TypeError, match="a string or a LayerPrecision, got int"):
            parse(1)


def test_full_precision_has_no_norms_of_its_own():
    with pytest.raises(ValueError, match=r"\['hardtanh', 'output_norm'\] need a binary letter"):
        LayerPrecision("FFF", "FFF", hardtanh=True, output_norm="batch")
    assert LayerPrecision("FFF", "FFF", surrogate="approx").is_float
