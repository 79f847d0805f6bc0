"""Forms in which each value is read: floats, signs, signs with a scale; sums kept as integers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bitgnn.bits.tensor import WORD_BITS
from bitgnn.convert.network.values import (
    IMAGES,
    PRODUCTS,
    SUMS,
    Value,
    canonical,
    collapse,
    is_pool,
    is_unit,
    ordered,
    readers_of,
)

INT16_MAX = 2**15 - 1
EXACT = 2**24
"""Integers up to which float32 is exact, so that the trained model adds them exactly."""


class Residual(NamedTuple):
    """A sum in integers that a convolution computes: its own product and an addend.

    Nobody else reads ``product``; ``stride`` is what the shortcut leaves out of ``addend``.
    """

    product: Value
    addend: Value
    stride: list[int]


class Demands:
    """Needs of the readers of each value, found from the scores backwards.

    Attributes:
        values: all values, inputs first.
        bounds: the largest magnitude of values that hold exact integers.
        residuals: the residual sums, in integers.
        floats: values needed in floats.
        sums: values needed in integers, as the addends of residual sums.
        signs: for each base (see :func:`~bitgnn.convert.network.values.collapse`), the values
            behind it whose signs are needed.
        scaled: values needed as signs with a row scale.
        drops_scale: products that are read by the sign of their dot product alone.
    """

    bit_writers: tuple[str, ...] = (*PRODUCTS, *SUMS, "add", "cat", "int8_product", "attend")
    """Kinds of values whose operators can write bits themselves."""

    def __init__(self, scores: Value) -> None:
        self.values = ordered(scores)
        self.bounds: dict[Value, int] = {}
        self.residuals: dict[Value, Residual] = {}
        self.floats: set[Value] = {scores}
        self.sums: set[Value] = set()
        self.signs: dict[Value, list[Value]] = {}
        self.scaled: set[Value] = set()
        self.drops_scale: set[Value] = set()
        self._find_integers(scores)
        for value in reversed(self.values):
            self._visit(value)

    def wants_signs(self, value: Value) -> None:
        """Note that a reader takes the signs of ``value``."""
        target = canonical(value)
        if is_pool(target) or is_bit_flatten(target):
            self.wants_signs(target.inputs[0])
            return
        wanted = self.signs.setdefault(collapse(target)[0], [])
        if target not in wanted:
            wanted.append(target)

    def is_needed(self, value: Value) -> bool:
        """True if a value has a reader in any form."""
        return value in self.floats or value in self.sums or bool(self.signs.get(value))

    def writes_sums(self, value: Value) -> bool:
        """True if an operator writes the integers of a value, with or without its bits."""
        several = value in self.floats or len(self.signs.get(value, ())) > 1
        return value in self.sums or (value in self.residuals and several)

    def writes_bits(self, base: Value) -> bool:
        """True if the operator of ``base`` writes the bits that its readers want."""
        wanted = self.signs.get(base, [])
        if base in self.residuals or base in self.sums:
            return bool(wanted)
        return (
            base.kind in self.bit_writers
            and base not in self.floats
            and len(wanted) == 1
            and (base.kind != "cat" or wanted == [base])
            and (base.kind != "product" or base.binary_weight)
            and base not in self.scaled
        )

    def why_no_integers(self, value: Value) -> str:
        """Reason why a sum cannot be a residual sum of integers."""
        for part in value.inputs:
            source = part.inputs[0] if part.kind == "shortcut" else part
            if source in self.bounds:
                continue
            if source.kind == "product" and source.rank == IMAGES:
                named = [name for name in ("scale", "bias") if name in source.tensors]
                what = f"has a {' and a '.join(named)}" if named else "is no sum of signs"
                return f"the sum is no integer, {source.layer} {what}"
            return f"the sum is no integer, {source.layer} computes floats"
        return "a sign is taken of floats that add computes"

    def _find_integers(self, scores: Value) -> None:
        readers = readers_of(scores)
        places = {value: place for place, value in enumerate(self.values)}
        for value in self.values:
            bound = self._bound(value)
            if bound is None:
                continue
            self.bounds[value] = bound
            if value.kind != "add":
                continue
            parts = sorted(value.inputs, key=lambda part: -places[part])
            for product, other in (parts, parts[::-1]):
                if product.kind != "product" or readers[product] != 1:
                    continue
                addend, stride = other, [1, 1]
                if other.kind == "shortcut":
                    (addend,), stride = other.inputs, other.attributes["stride"]
                is_product = addend.kind == "product" and addend in self.bounds
                if addend.size is not None and (is_product or addend in self.residuals):
                    self.residuals[value] = Residual(product, addend, stride)
                    break

    def _bound(self, value: Value) -> int | None:
        """The largest magnitude of integers, None where a value need not be one."""
        if value.rank != IMAGES:
            return None
        if value.kind == "product":
            plain = value.attributes["input_step"] is None and value.tensors.keys() == {"weight"}
            return value.tensors["weight"][0].numel() if plain else None
        if value.kind == "shortcut":
            return self.bounds.get(value.inputs[0])
        if value.kind == "add" and all(part in self.bounds for part in value.inputs):
            total = sum(self.bounds[part] for part in value.inputs)
            return total if total <= EXACT else None
        return None

    def _visit(self, value: Value) -> None:
        if value in self.scaled and input_gain(value) is None and not is_standardized(value):
            self.floats.add(value)
        if value in self.signs:
            # Packing a value with its scale gives its signs as well.
            self.signs[value] = [t for t in self.signs[value] if t not in self.scaled]
        if self.packs_standardized(value):
            # Its own signs and row scale follow from the rows in front of it.
            targets = self.signs.get(value, [])
            if value in self.scaled or value in targets:
                self.floats.add(standardized_source(value)[0])
            if any(target is not value for target in targets):
                self.floats.add(value)
            if value in self.floats:
                self.floats.add(value.inputs[0])
        elif self.is_needed(value):
            self._visit_inputs(value)
            if self._is_packed(value) and self.signs.get(value) and not self.writes_bits(value):
                self.floats.add(value)

    def packs_standardized(self, value: Value) -> bool:
        """True for standardised rows, which are packed from the rows in front of them."""
        return is_standardized(value)

    def _is_packed(self, value: Value) -> bool:
        """True if signs of a value are taken of its floats where no operator writes them."""
        return value.kind == "function"

    def _visit_inputs(self, value: Value) -> None:
        residual = self.residuals.get(value)
        if residual is not None:
            self.sums.add(residual.addend)
            self.wants_signs(residual.product.inputs[0])
        elif value.kind == "product":
            self._visit_product(value)
        elif value.is_function("sign"):
            if value in self.floats:
                self.wants_signs(value.inputs[0])
        elif value.kind == "attend":
            signs, floats = attended_inputs(value)
            self.floats.update(floats)
            for source in signs:
                self.wants_signs(source)
        else:
            self._visit_others(value)

    def _visit_others(self, value: Value) -> None:
        if self.writes_bits(value) and (beside := signs_beside(value)) is not None:
            self.floats.add(value.inputs[0])
            self.wants_signs(beside[0])
        elif (value.kind in ("aggregate", "add") and all(map(is_unit, value.inputs))) or (
            value.kind == "cat" and self.writes_bits(value)
        ):
            for source in value.inputs:
                self.wants_signs(source)
        else:
            self.floats.update(value.inputs)

    def _visit_product(self, value: Value) -> None:
        source, *addend = value.inputs
        self.floats.update(addend)
        if value.attributes.get("input_step") is not None:
            self.floats.add(source)
            return
        only_dot = (
            value.takes_sign_of_dot
            and self.signs.get(value) == [value]
            and value not in self.floats
        )
        if only_dot:
            self.drops_scale.add(value)
        if not value.scaled or only_dot or is_unit(source):
            self.wants_signs(source)
        else:
            self.scaled.add(source)


class ImageDemands(Demands):
    """The same in networks of images, where products alone write bits."""

    bit_writers = ("product",)

    def packs_standardized(self, value: Value) -> bool:
        """False: rows are standardised in floats."""
        return False

    def _is_packed(self, value: Value) -> bool:
        return True

    def _visit_others(self, value: Value) -> None:
        self.floats.update(value.inputs)


def is_bit_flatten(value: Value) -> bool:
    """True if bits of rows are best taken from those of images, reordered.

    They are where the images come packed, or have whole words of channels: other words would hold
    padding for the most part.
    """
    if value.kind != "flatten" or value.size is None or value.inputs[0].size is None:
        return False
    base, _ = collapse(canonical(value.inputs[0]))
    return value.inputs[0].size % WORD_BITS == 0 or base.kind in ("product", "add")


def attended_inputs(value: Value) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Inputs of an attention that it takes the signs of, and those of floats."""
    count = 1 if value.attributes.get("of_rows") else len(value.inputs)
    count -= bool(value.attributes["has_edges"])
    return value.inputs[:count], value.inputs[count:]


def signs_beside(value: Value) -> tuple[Value, float] | None:
    """The signs that a sum adds to its first part, and their factor; None for other sums."""
    if value.kind != "add" or not value.inputs[1].is_function("scale"):
        return None
    (signs,) = value.inputs[1].inputs
    return (signs, value.inputs[1].attributes["factor"]) if signs.is_function("sign") else None


def is_standardized(value: Value) -> bool:
    """True if a value is a standardised row, whose signs compare with its mean."""
    return value.is_function("standardize")


def standardized_source(value: Value) -> tuple[Value, bool]:
    """Source of a standardised value, and whether it went through a ReLU."""
    (source,) = value.inputs
    return (source.inputs[0], True) if source.is_function("relu") else (source, False)


def input_gain(value: Value) -> tuple[Tensor, Tensor] | None:
    """Centre and gain of a batch norm on the features: ``|norm(x)| = |x - centre| * gain``.

    None where ``value`` is something else or a gain of 0 leaves a constant.
    """
    if value.kind == "input":
        zeros = torch.zeros(0, dtype=torch.float32)
        return zeros, zeros
    if not value.is_function("batch_norm") or value.inputs[0].kind != "input":
        return None
    tensors = value.tensors
    gain = torch.rsqrt(tensors["var"].float() + value.attributes["eps"])
    centre = tensors["mean"]
    if "weight" in tensors:
        gain = gain * tensors["weight"]
        centre = centre - tensors.get("bias", torch.zeros_like(centre)) / gain
    if not bool(torch.isfinite(centre).all()) or not bool((gain != 0).all()):
        return None
    return centre, gain.abs()
