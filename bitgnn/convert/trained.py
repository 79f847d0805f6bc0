"""Checks of freeze(): layers that never looked at their input, and constant bits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch_geometric.nn import MessagePassing

from bitgnn._warn import warn
from bitgnn.convert.network.layers import letters_of
from bitgnn.nn import LayerPrecision
from bitgnn.nn.binary_product import BinaryProduct
from bitgnn.nn.seen_bits import ConstantBits

GO_ON = "freeze(model, check=False) packs it as it is"
CALL = "call the model once in evaluation before, so that it knows how many there are"
MANY = 0.5
"""Share of constant bits from which on there is a warning."""
CENTRE = "centre what it reads, or put a norm in front"
BY_NAME = "centre what it reads, put a norm in front, or give it precision 'bin' or 'full'"
TRAIN = "train it further, or put a batch norm in front of the sign (hidden_norm='batch')"


def check_trained(
    model: nn.Module, names: Iterable[str], plan: Mapping[int, LayerPrecision]
) -> None:
    """Refuse layers whose bits cannot be those of a trained model.

    Raises:
        ValueError: a layer never looked at its input, or all bits of one were constant in the last
            forwards looked at.
    """
    modules = dict(model.named_modules())
    found: list[str] = []
    for name in names:
        layer: Any = modules.get(name, model)  # a layer alone has the name of its class
        if not isinstance(layer, BinaryProduct):
            continue
        where = f"layer {name!r} ({type(layer).__name__})"
        if layer.input_bits is not None and not layer.input_bits.is_settled:
            raise ValueError(
                f"freeze: {where} must have looked at its input, got a model that was never "
                f"trained; train it, or pass example to binarize(); {GO_ON}"
            )
        looked_up = (bits for bits in (layer.input_bits, layer.root_bits) if bits is not None)
        if any(bits.needs_evaluation for bits in looked_up):
            found.append(f"{where} was trained on features that dropout may have thinned; {CALL}")
        letters = letters_of(modules.get(name, model), plan)
        for what, seen in layer.constant_bits().items():
            if not _is_read(what, letters):
                continue
            if seen.constant == seen.size:
                raise ValueError(
                    f"freeze: {where} must have {what} bits that vary, got all {seen.size} of them "
                    f"the same in all {_rows(seen)}; {_cure(what, layer, letters)}; {GO_ON}"
                )
            if seen.constant > MANY * seen.size:
                found.append(
                    f"{seen.constant} of the {seen.size} {what} bits of {where} are the same in "
                    f"all {_rows(seen)}"
                )
    if found:
        warn(f"freeze: {'; '.join(found)}")


def _is_read(what: str, letters: LayerPrecision) -> bool:
    """Whether the frozen layer computes with these bits."""
    if what == "hidden":
        return letters.bspmm[0] == "B"
    return "B" in letters.bmm[:2] and not letters.takes_ternary


def _cure(what: str, layer: Any, letters: LayerPrecision) -> str:
    """Advice against constant bits; only graph layers can look theirs up."""
    if what == "hidden":
        return TRAIN
    return BY_NAME if isinstance(layer, MessagePassing) and not letters.looks_up else CENTRE


def _rows(seen: ConstantBits) -> str:
    last = "batch of training looked at" if seen.training else "evaluation"
    return f"{seen.rows} rows of the last {last}"
