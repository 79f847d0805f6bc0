"""Decides for every value whether its readers need floats, its signs, or signs with a scale."""

from __future__ import annotations

import torch

from bitgnn.convert.network.values import Value, canonical, collapse, is_unit

__all__ = [
    "BIT_WRITERS", "Demands", "input_gain", "is_standardized", "ordered", "signs_beside",
    "standardized_source",
]  # fmt: skip

BIT_WRITERS = ("product", "aggregate", "add", "cat", "ternary_product", "ternary_aggregate")
"""Kinds of values whose operators can write bits themselves."""

JOINED = ("add", "mul", "maximum")


def ordered(scores: Value) -> list[Value]:
    """Every value the scores depend on, inputs first."""
    found: list[Value] = []
    seen: set[int] = set()
    stack = [(scores, False)]
    while stack:
        value, is_done = stack.pop()
        if is_done:
            found.append(value)
        elif id(value) not in seen:
            seen.add(id(value))
            stack.append((value, True))
            stack.extend((parent, False) for parent in reversed(value.inputs))
    return found


class Demands:
    """What the readers of each value need, found from the scores backwards.

    Attributes:
        values: all values, inputs first.
        floats: values needed in floats.
        signs: for each base (see :func:`~bitgnn.convert.network.values.collapse`), the values
            behind it whose signs are needed.
        scaled: values needed as signs with a row scale.
        drops_scale: products that are read by the sign of their dot product alone.
    """

    def __init__(self, scores: Value) -> None:
        self.values = ordered(scores)
        self.floats: set[Value] = set()
        self.signs: dict[Value, list[Value]] = {}
        self.scaled: set[Value] = set()
        self.drops_scale: set[Value] = set()
        self.floats.add(scores)
        for value in reversed(self.values):
            self._visit(value)

    def wants_signs(self, value: Value) -> None:
        """Note that a reader looks at the signs of ``value``."""
        target = canonical(value)
        base, _ = collapse(target)
        wanted = self.signs.setdefault(base, [])
        if target not in wanted:
            wanted.append(target)

    def writes_bits(self, base: Value) -> bool:
        """Whether the operator of ``base`` itself writes the bits its readers want."""
        return (
            base.kind in BIT_WRITERS
            and base not in self.floats
            and len(self.signs.get(base, ())) == 1
            and (base.kind != "cat" or self.signs[base] == [base])
            and (base.kind != "product" or base.binary_weight)
            and base not in self.scaled
        )

    def _visit(self, value: Value) -> None:
        if value in self.scaled and input_gain(value) is None and not is_standardized(value):
            self.floats.add(value)
        if value in self.signs:
            # Packing a value with its scale gives its signs as well.
            self.signs[value] = [t for t in self.signs[value] if t not in self.scaled]
        in_floats, targets = value in self.floats, self.signs.get(value, [])
        if value.kind == "function":
            (source,) = value.inputs
            if value.name == "sign":
                if in_floats:
                    self.wants_signs(source)
            elif is_standardized(value):
                self._visit_standardized(value)
            elif value.name == "levels":
                self.floats.add(source)
            elif in_floats or targets:
                self.floats.add(source)
                if targets:
                    self.floats.add(value)
        elif in_floats or targets:
            self._visit_base(value)

    def _visit_standardized(self, value: Value) -> None:
        """Its own signs and row scale follow from the rows in front of it."""
        targets = self.signs.get(value, [])
        if value in self.scaled or value in targets:
            self.floats.add(standardized_source(value)[0])
        if any(target is not value for target in targets):
            self.floats.add(value)
        if value in self.floats:
            self.floats.add(value.inputs[0])

    def _visit_base(self, value: Value) -> None:
        if value.kind == "product":
            source, *addend = value.inputs
            self.floats.update(addend)
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
        elif self.writes_bits(value) and (beside := signs_beside(value)) is not None:
            self.floats.add(value.inputs[0])
            self.wants_signs(beside[0])
        elif value.kind == "aggregate" or value.kind in JOINED:
            bits = all(map(is_unit, value.inputs)) and value.kind in ("aggregate", "add")
            for source in value.inputs:
                if bits:
                    self.wants_signs(source)
                else:
                    self.floats.add(source)
        elif value.kind == "cat" and self.writes_bits(value):
            for source in value.inputs:
                self.wants_signs(source)
        else:
            self.floats.update(value.inputs)


def signs_beside(value: Value) -> tuple[Value, float] | None:
    """The signs that a sum adds to its first part and their factor, where that is all it does."""
    if value.kind != "add":
        return None
    second = value.inputs[1]
    if second.kind != "function" or second.name != "scale":
        return None
    (signs,) = second.inputs
    if signs.kind != "function" or signs.name != "sign":
        return None
    return signs, second.attributes["factor"]


def is_standardized(value: Value) -> bool:
    """Whether a value is the standardisation of each row, whose signs compare with its mean."""
    return value.kind == "function" and value.name == "standardize"


def standardized_source(value: Value) -> tuple[Value, bool]:
    """What a standardised value is made of, and whether through a ReLU."""
    (source,) = value.inputs
    if source.kind == "function" and source.name == "relu":
        return source.inputs[0], True
    return source, False


def input_gain(value: Value) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Centre and gain of a batch norm on the features: ``|norm(x)| = |x - centre| * gain``.

    Returns:
        The two, or None where ``value`` is something else or a gain of 0 leaves a constant.
    """
    if value.kind == "input":
        zeros = torch.zeros(0)
        return zeros, zeros
    if value.kind != "function" or value.name != "batch_norm":
        return None
    if value.inputs[0].kind != "input":
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
