"""Decides which packed images are better cut into patches, a word for each of few channels."""

from __future__ import annotations

from bitgnn.convert.images.chains import Chain, target_of
from bitgnn.convert.images.demands import ImageDemands
from bitgnn.convert.values import IMAGES, Value
from bitgnn.inference.steps.aggregates import words_of

__all__ = ["patches_reader"]

WORD_BITS = 32
WORDS_OF_PATCH = 2
"""Words for each channel of a patch: the pixels that are +1, and those that are -1."""
FEWEST_SAVED = 2
"""Patches take longer to pack than images: they pay where the product reads at most half the words,
as with 5x5 kernels of three channels; with 3x3 ones both take as long."""


def patches_reader(demands: ImageDemands, base: Value, chain: Chain) -> Value | None:
    """The convolution that alone reads the signs at the end of a chain, if it had better patches.

    Args:
        demands: of the whole network.
        base: the floats that the chain begins with.
        chain: functions behind them.
    """
    if base.rank != IMAGES or any(link.kind == "max_pool" for link in chain.links):
        return None
    target = target_of(chain.links[-1] if chain.links else base)
    readers = [
        value
        for value in demands.values
        if demands.is_needed(value) and target_of(value) is not target and _reads(value, target)
    ]
    if len(readers) != 1 or not _is_suitable(readers[0], demands):
        return None
    return readers[0]


def _reads(value: Value, target: Value) -> bool:
    return any(target_of(part) is target for part in value.inputs)


def _is_suitable(value: Value, demands: ImageDemands) -> bool:
    if value.kind != "product" or value.rank != IMAGES:
        return False
    a = value.attributes
    if a["input_step"] is not None or a["groups"] != 1:
        return False
    if demands.residuals.get(value) is not None or demands.writes_sums(value):
        return False
    if not demands.writes_bits(value):
        return False
    channels, height, width = value.tensors["weight"].shape[1:]
    words = height * width * words_of(channels)
    few = WORDS_OF_PATCH * channels * FEWEST_SAVED <= words
    return height * width <= WORD_BITS and few
