"""Decides for every value whether its readers need floats, integers, or signs."""

from __future__ import annotations

from bitgnn.convert.network.values import Value
from bitgnn.convert.selection.chains import Chain, chain_of, is_pool, target_of
from bitgnn.convert.selection.demands import ordered
from bitgnn.convert.selection.residuals import Residuals

__all__ = ["ImageDemands", "is_bit_flatten"]

WORD_BITS = 32


def is_bit_flatten(value: Value) -> bool:
    """Whether bits of rows are best taken from those of images, in another order.

    They are where the images come packed, or have whole words of channels: other words would hold
    padding for the most part.
    """
    if value.kind != "flatten" or value.size is None:
        return False
    (images,) = value.inputs
    if images.size is None:
        return False
    base = chain_of(target_of(images)).base
    return images.size % WORD_BITS == 0 or base.kind in ("product", "add")


class ImageDemands:
    """What the readers of each value need, found from the scores backwards.

    Args:
        scores: the end of the network.

    Attributes:
        values: all values, inputs first.
        floats: values needed in floats.
        sums: values needed in integers, as the addends of residual sums.
        targets: by base, the values whose signs are needed and follow from it.
        residuals: sums in integers.
    """

    def __init__(self, scores: Value) -> None:
        self.values = ordered(scores)
        self.residuals = Residuals(scores, self.values)
        self.floats: set[Value] = {scores}
        self.sums: set[Value] = set()
        self.targets: dict[Value, list[Chain]] = {}
        self._wanted: set[Value] = set()
        for value in reversed(self.values):
            self._visit(value)

    def wants_signs(self, value: Value) -> None:
        """Note that a reader looks at the signs of ``value``."""
        target = target_of(value)
        if target in self._wanted:
            return
        self._wanted.add(target)
        if is_pool(target) or is_bit_flatten(target):
            self.wants_signs(target.inputs[0])
            return
        chain = chain_of(target)
        self.targets.setdefault(chain.base, []).append(chain)

    def is_needed(self, value: Value) -> bool:
        """Whether anybody reads a value in any form."""
        return value in self.floats or value in self.sums or value in self.targets

    def writes_sums(self, value: Value) -> bool:
        """Whether an operator writes the integers of a value, perhaps beside its bits."""
        if self.residuals.get(value) is not None:
            several = len(self.targets.get(value, ())) > 1
            return value in self.sums or value in self.floats or several
        return value in self.sums

    def writes_bits(self, base: Value) -> bool:
        """Whether the operator of ``base`` itself writes the bits its readers want."""
        wanted = self.targets.get(base, ())
        if self.residuals.get(base) is not None or base in self.sums:
            return bool(wanted)
        return base.kind == "product" and len(wanted) == 1 and base not in self.floats

    def _visit(self, value: Value) -> None:
        if not self.is_needed(value):
            return
        residual = self.residuals.get(value)
        if residual is not None:
            self.sums.add(residual.addend)
            self.wants_signs(residual.product.inputs[0])
        elif value.kind == "product":
            (source,) = value.inputs
            if value.attributes["input_step"] is None:
                self.wants_signs(source)
            else:
                self.floats.add(source)
        elif value.kind == "function" and value.name == "sign":
            if value in self.floats:
                self.wants_signs(value.inputs[0])
        else:
            self.floats.update(value.inputs)
        if value in self.targets and not self.writes_bits(value):
            self.floats.add(value)
