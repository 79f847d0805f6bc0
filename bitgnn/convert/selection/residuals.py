"""Values that are integers throughout, and residual sums that one operator can add up."""

from __future__ import annotations

from collections import Counter

from bitgnn.convert.network.fold_linear import readers_of
from bitgnn.convert.network.values import IMAGES, Value

__all__ = ["Residual", "Residuals"]

INT16_MAX = 2**15 - 1
EXACT_FLOATS = 2**24
"""Integers up to here are floats exactly, so that the trained model adds them exactly."""


class Residual:
    """A sum that a convolution computes: its own product and an addend.

    Attributes:
        product: the convolution, which nobody else reads.
        addend: integers that are added.
        stride: what the shortcut leaves out of them.
    """

    def __init__(self, product: Value, addend: Value, stride: list[int]) -> None:
        self.product = product
        self.addend = addend
        self.stride = stride


class Residuals:
    """The residual sums of a network.

    Args:
        scores: its end.
        values: all its values, inputs first.
    """

    def __init__(self, scores: Value, values: list[Value]) -> None:
        self.readers: Counter[Value] = readers_of(scores)
        self._bounds: dict[Value, int | None] = {}
        self._places = {value: place for place, value in enumerate(values)}
        self._found: dict[Value, Residual] = {}
        for value in values:
            self._bounds[value] = self._bound(value)
            residual = self._residual(value)
            if residual is not None:
                self._found[value] = residual

    def get(self, value: Value) -> Residual | None:
        """The form of a residual sum in integers, or None."""
        return self._found.get(value)

    def is_wide(self, value: Value) -> bool:
        """Whether the integers of a value need more than 16 bits."""
        bound = self._bounds[value]
        return bound is None or bound > INT16_MAX

    def is_integer(self, value: Value) -> bool:
        """Whether a value holds exact integers: sums of signs, sums and shortcuts of such."""
        return self._bounds[value] is not None

    def bound(self, value: Value) -> int:
        """The largest magnitude of the integers of a value that holds such."""
        bound = self._bounds[value]
        assert bound is not None, f"{value.layer} holds integers"
        return bound

    def has_sums(self, value: Value) -> bool:
        """Whether an operator can write the integers of a value."""
        return value in self._found or (value.kind == "product" and self.is_integer(value))

    def _bound(self, value: Value) -> int | None:
        """The largest magnitude of integers, or None where a value need not be one."""
        if value.rank != IMAGES:
            return None
        if value.kind == "product":
            plain = value.attributes["input_step"] is None and value.tensors.keys() == {"weight"}
            return value.tensors["weight"][0].numel() if plain else None
        if value.kind == "shortcut":
            return self._bounds[value.inputs[0]]
        if value.kind == "add":
            bounds = [self._bounds[part] for part in value.inputs]
            known = [bound for bound in bounds if bound is not None]
            if len(known) == len(bounds) and sum(known) <= EXACT_FLOATS:
                return sum(known)
        return None

    def _residual(self, value: Value) -> Residual | None:
        if value.kind != "add" or not self.is_integer(value):
            return None
        parts = sorted(value.inputs, key=lambda part: -self._places[part])
        for product, other in (parts, parts[::-1]):
            if product.kind != "product" or self.readers[product] != 1:
                continue
            addend, stride = other, [1, 1]
            if other.kind == "shortcut":
                (addend,), stride = other.inputs, other.attributes["stride"]
            if addend.size is not None and self.has_sums(addend):
                return Residual(product, addend, stride)
        return None

    def why_floats(self, value: Value) -> str:
        """Why a sum is no residual sum in integers."""
        for part in value.inputs:
            source = part.inputs[0] if part.kind == "shortcut" else part
            if self.is_integer(source):
                continue
            if source.kind == "product" and source.rank == IMAGES:
                named = [name for name in ("scale", "bias") if name in source.tensors]
                what = f"has a {' and a '.join(named)}" if named else "is no sum of signs"
                return f"the sum is no integer, {source.layer} {what}"
            return f"the sum is no integer, {source.layer} computes floats"
        return "a sign is taken of floats that add computes"
