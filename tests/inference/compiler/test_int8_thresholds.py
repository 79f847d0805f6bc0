"""Signs behind a product of 8-bit rows as a comparison of its integer, for every integer."""

import pytest
import torch

from bitgnn.convert.network.int8_rows import dot_comparison
from bitgnn.convert.network.values import Value, function_of
from bitgnn.inference.functions import FUNCTIONS

SIZE = 3
BOUND = 127 * 127 * SIZE
DOTS = torch.arange(-BOUND, BOUND + 1)
SCALES = [0.01, -0.01, 0.0, 1e-30, -3e38, 1e38, 0.3, -7.0, 1e-45, float("nan"), 0.25, 0.3]
SHIFTS = [0.4, 0.4, -1.0, 0.0, 1e30, -1e38, 120.7, -0.0, 0.0, 1.0, float("nan"), -1e30]
CHANNELS = len(SCALES)


def product(scale, shift):
    codes = Value("pack_int8", "layer", size=SIZE)
    tensors = {"weight": torch.zeros(CHANNELS, 16, dtype=torch.int8)}
    for name, values in (("scale", scale), ("shift", shift)):
        if values is not None:
            tensors[name] = torch.tensor(values)
    return Value("int8_product", "layer", (codes,), CHANNELS, tensors=tensors)


def norm(value, gain):
    """A batch norm of the user's own, with gains of both signs and one of 0."""
    weight = torch.linspace(-2, 2, CHANNELS) * gain
    weight[0] = 0.0
    tensors = {
        "mean": torch.linspace(-9, 40, CHANNELS),
        "var": torch.linspace(0.1, 4, CHANNELS),
        "weight": weight,
        "bias": torch.linspace(1, -1, CHANNELS),
    }
    return function_of("norm", "batch_norm", value, tensors, eps=1e-5)


def below(value, term):
    return function_of("shift", "shift", function_of("relu", "relu", value), term=term)


CHAINS = {
    "nothing": lambda value: value,
    "shifted": lambda value: function_of("shift", "shift", value, term=-17.3),
    "relu": lambda value: below(value, -0.5),
    "always": lambda value: function_of("relu", "relu", value),
    "never": lambda value: below(function_of("scale", "scale", value, factor=-1.0), -1e38),
    "norm": lambda value: norm(value, 1.0),
    "two norms": lambda value: norm(function_of("elu", "elu", norm(value, -1.0), alpha=1.0), 3.0),
}


@pytest.mark.parametrize("shift", [SHIFTS, None], ids=["shift", "no shift"])
@pytest.mark.parametrize("scale", [SCALES, None], ids=["scale", "no scale"])
@pytest.mark.parametrize("chain", CHAINS)
def test_the_comparison_is_that_of_the_floats_for_every_integer(chain, scale, shift):
    base = product(scale, shift)
    target = CHAINS[chain](base)
    values = DOTS.float().unsqueeze(1).expand(-1, CHANNELS)
    values = values if scale is None else torch.tensor(scale) * values
    values = values if shift is None else values + torch.tensor(shift)
    links = []
    while target is not base:
        links.append(target)
        (target,) = target.inputs
    for link in reversed(links):
        values = FUNCTIONS[link.name].apply(values, link.tensors, link.attributes)
    threshold, flip = dot_comparison(links[0] if links else base)
    found = DOTS.unsqueeze(1) >= (0 if threshold is None else threshold.long())
    found = found if flip is None else found ^ flip
    assert torch.equal(found.expand(-1, CHANNELS), values >= 0)
    if threshold is not None:
        assert threshold.dtype == torch.int32
        assert bool((threshold != 0).any())
    assert flip is None or bool(flip.any())


def test_a_plain_product_compares_with_zero():
    assert dot_comparison(product(None, None)) == (None, None)
    assert dot_comparison(product([1.5] * CHANNELS, None)) == (None, None)


def test_the_widest_rows_have_thresholds_within_int32():
    base = product([1.0, -1.0] * (CHANNELS // 2), [-3e9, 3e9] * (CHANNELS // 2))
    base.inputs[0].size = 133120
    threshold, flip = dot_comparison(base)
    # No product of so many features reaches 3e9 or falls below -3e9.
    bound = 127 * 127 * 133120
    assert threshold.tolist() == [bound + 1, -bound] * (CHANNELS // 2)
    assert flip is None
