"""Registers of values and of their signs while a program is written; how signs are packed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bitgnn.convert.network.lower import Network
from bitgnn.convert.network.values import Value, canonical, collapse
from bitgnn.convert.selection.comparisons import Comparison, folded, function_of, mask_of
from bitgnn.convert.selection.demands import (
    BIT_WRITERS,
    Demands,
    input_gain,
    is_standardized,
    standardized_source,
)
from bitgnn.convert.selection.writer import ProgramWriter

__all__ = ["ALSO_FLOATS", "BY_LETTERS", "Bits", "Registers", "behind"]

BY_LETTERS = "its letters ask for"
"""How reasons begin that the user gave."""
LAYERS = ("product", "linear", "aggregate", "ternary_product", "ternary_aggregate", "call")
"""Kinds of values that layers compute."""
ALSO_FLOATS = "its value is read in floats as well as by sign"


class Bits:
    """Register of some signs, and the channels that are turned round in it."""

    def __init__(self, register: int, size: int, flipped: Tensor | None = None) -> None:
        self.register = register
        self.size = size
        self.flipped = flipped


class Registers:
    """A program under way for a network: what was written so far, and the signs packed on demand.

    Args:
        network: values and what leads to its scores.
    """

    def __init__(self, network: Network) -> None:
        assert network.scores is not None
        self.network = network
        self.demands = Demands(network.scores)
        self.out = ProgramWriter()
        self.floats: dict[Value, int] = {}
        self.bits: dict[Value, Bits] = {}
        self.scaled: dict[Value, tuple[Bits, int]] = {}
        self.reasons: dict[str, str] = dict(network.calls)
        self.hidden = behind(self.demands.values, LAYERS)

    def _pack_signs(self, base: Value, target: Value) -> None:
        """Pack the signs of a target whose base exists in floats."""
        _, chain = collapse(target)
        if base in self.hidden:
            self.reasons.setdefault(target.layer, self._why_packed(base))
        if target is base and is_standardized(base):
            self._pack_standardized(base)
            return
        if base.kind == "function" and base.name == "levels":
            size, source = _width(base), self.floats[base.inputs[0]]
            sizes = {"size": size, "features": _width(base.inputs[0])}
            register = self.out.step("pack_levels", base.layer, [source], sizes, base.tensors)
            self.bits[target] = Bits(register, size)
            return
        size = _width(target)
        threshold, flipped = folded([function_of(step) for step in chain], size, self._device)
        tensors = {"threshold": threshold}
        register = self.out.step("pack", target.layer, [self.floats[base]], {"size": size}, tensors)
        self.bits[target] = Bits(register, size, flipped)

    def _pack_standardized(self, value: Value) -> None:
        """Pack the signs of standardised rows, with their scale where it is wanted."""
        source, relu = standardized_source(value)
        scaled = value in self.demands.scaled
        attributes = {"size": _width(value), "relu": relu, "scaled": scaled}
        inputs = [self.floats[source]]
        words, *scale = self.out.steps_of(
            "pack_standardized", value.layer, inputs, 1 + scaled, attributes
        )
        self.bits[value] = Bits(words, _width(value))
        if scaled:
            self.scaled[value] = (self.bits[value], scale[0])

    def _why_packed(self, base: Value) -> str:
        if base.kind not in BIT_WRITERS:
            return f"a sign is taken of floats that {base.name or base.kind} computes"
        if len(self.demands.signs[base]) > 1:
            return "its signs are needed behind different functions"
        return ALSO_FLOATS

    def _pack_scaled(self, value: Value) -> None:
        """Pack signs and row scale of a value."""
        if is_standardized(value):
            self._pack_standardized(value)
            return
        size = _width(value)
        centre_gain = input_gain(value)
        tensors: dict[str, Tensor | None] = {}
        source, flipped = value, None
        if centre_gain is not None and value.kind == "function":
            (source,) = value.inputs
            threshold, flipped = folded([function_of(value)], size, self._device)
            tensors = {"threshold": threshold, "gain": centre_gain[1]}
        inputs = [self.floats[source]]
        words, scale = self.out.steps_of(
            "pack_scaled", value.layer, inputs, 2, {"size": size}, tensors
        )
        bits = Bits(words, size, flipped)
        self.scaled[value] = (bits, scale)
        self.bits.setdefault(canonical(value), bits)

    def _plain(self, target: Value) -> Bits:
        """The bits of a target with no channel turned round."""
        bits = self._unflipped(self.bits[target], target.layer)
        self.bits[target] = bits
        return bits

    def _plain_scaled(self, value: Value) -> Bits:
        bits, scale = self.scaled[value]
        bits = self._unflipped(bits, value.layer)
        self.scaled[value] = (bits, scale)
        return bits

    def _unflipped(self, bits: Bits, layer: str) -> Bits:
        if bits.flipped is None:
            return bits
        mask = {"mask": mask_of(bits.flipped)[0]}
        return Bits(
            self.out.step("flip", layer, [bits.register], {"size": bits.size}, mask), bits.size
        )

    def _comparison(self, base: Value, target: Value) -> Comparison:
        """Threshold on what the operator of ``base`` compares, for the sign of ``target``."""
        _, chain = collapse(target)
        functions = [function_of(step) for step in chain]
        bias = base.tensors.get("bias")
        if bias is not None and len(base.inputs) == 1:
            functions.insert(0, lambda v: v + bias)
        assert base.size is not None
        return folded(functions, base.size, self._device)

    @property
    def _device(self) -> torch.device:
        for value in self.demands.values:
            for tensor in value.tensors.values():
                return tensor.device
        return torch.device("cpu")


def _width(value: Value) -> int:
    """The features of a value that is packed.

    Raises:
        ValueError: they are not known.
    """
    if value.size is None:
        raise ValueError(f"freeze: the width of what {value.layer!r} gives is not known")
    return value.size


def behind(values: Sequence[Value], kinds: Sequence[str]) -> set[Value]:
    """Values of some kinds and all that depend on one; the others are made of the features."""
    found: set[Value] = set()
    for value in values:
        if value.kind in kinds or any(parent in found for parent in value.inputs):
            found.add(value)
    return found
