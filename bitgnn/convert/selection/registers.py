"""Writes a program step by step: registers of values and of their signs, packed on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bitgnn.convert.network.values import Network, Value, canonical
from bitgnn.convert.selection.comparisons import (
    Comparison,
    comparison,
    folded,
    functions_of,
    mask_of,
)
from bitgnn.convert.selection.demands import (
    Demands,
    input_gain,
    is_standardized,
    standardized_source,
)
from bitgnn.inference.graph import GraphSpec
from bitgnn.inference.program import PACKING, Program
from bitgnn.inference.step import Step
from bitgnn.inference.steps.calls import FloatCall

GRAPH_OF_CALLS = -1
"""Calls read the graph behind the adjacencies, whose number is known at the end."""


class ProgramWriter:
    """Collects the steps of a frozen model; register 0 holds the features.

    Attributes:
        specs: the adjacencies in use.
    """

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._tensors: dict[str, Tensor] = {}
        self.specs: list[GraphSpec] = []
        self._calls: list[FloatCall] = []
        self._next_register = 1

    def step(
        self,
        kind: str,
        layer: str,
        inputs: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        tensors: Mapping[str, Tensor | None] | None = None,
        graph: int | None = None,
    ) -> int:
        """Add a step with one result; its register. Tensors that are None are left out."""
        return self.steps_of(kind, layer, inputs, 1, attributes, tensors, graph)[0]

    def steps_of(
        self,
        kind: str,
        layer: str,
        inputs: Sequence[int],
        outputs: int,
        attributes: Mapping[str, Any] | None = None,
        tensors: Mapping[str, Tensor | None] | None = None,
        graph: int | None = None,
    ) -> list[int]:
        """Add a step with several results; their registers."""
        names = {}
        for name, tensor in (tensors or {}).items():
            if tensor is not None:
                names[name] = f"step{len(self._steps)}_{name}"
                self._tensors[names[name]] = tensor.contiguous()
        written = list(range(self._next_register, self._next_register + outputs))
        self._next_register += outputs
        self._steps.append(
            Step(kind, layer, tuple(inputs), tuple(written), attributes or {}, names, graph)
        )
        return written

    def call(self, call: FloatCall, layer: str, inputs: Sequence[int], needs_edges: bool) -> int:
        """Add a step that runs the user's own code; its register."""
        self._calls.append(call)
        graph = GRAPH_OF_CALLS if needs_edges else None
        return self.step("call", layer, inputs, {"call": len(self._calls) - 1}, None, graph)

    def graph(self, spec: GraphSpec) -> int:
        """The number of an adjacency; layers that make the same of the graph share one."""
        if spec not in self.specs:
            self.specs.append(spec)
        return self.specs.index(spec)

    def parts(
        self, in_channels: int, output: int
    ) -> tuple[Program, Mapping[str, Tensor], Sequence[FloatCall]]:
        """The program, its buffers by name, and the calls of its user's own code."""
        steps = tuple(
            replace(step, graph=len(self.specs)) if step.graph == GRAPH_OF_CALLS else step
            for step in self._steps
        )
        return Program(in_channels, steps, output, self._entry()), self._tensors, self._calls

    def _entry(self) -> int | None:
        """Length of the packing prefix; see :class:`~bitgnn.inference.program.Program`."""
        for place, step in enumerate(self._steps):
            if step.kind in PACKING:
                hidden = {0, *(r for before in self._steps[:place] for r in before.outputs)}
                behind = {r for after in self._steps[place + 1 :] for r in after.inputs}
                return None if hidden & behind else place + 1
            if step.graph is not None:
                return None
        return None


BY_LETTERS = "its letters ask for"
"""Beginning of the reasons that the user gave."""
FIRST_LAYER = "its sign is that of the first layer, which is in floats"
"""Reason where binarize() or the user left the layer that reads the input as it is."""
ALSO_FLOATS = "its value is read in floats as well as by sign"
LAYERS = ("product", "linear", "aggregate", "ternary_product", "ternary_aggregate", "call")
LAYERS_OF_IMAGES = ("product", "conv", "linear", "call", "add")
"""Kinds of values that layers compute: that signs of them are taken of floats is worth a word."""
_READ_RAW = ("flatten", "call")
"""Kinds of steps that take images of any dtype, beside packing and first layers."""


class Bits(NamedTuple):
    """Register of some signs, and the channels that are flipped in it."""

    register: int
    size: int
    flipped: Tensor | None = None


class Registers:
    """A program under way: what was written so far, and the signs that are packed on demand."""

    def __init__(self, network: Network) -> None:
        assert network.scores is not None
        assert network.features is not None
        self.network = network
        self.features, self.scores = network.features, network.scores
        self.demands = Demands(network.scores, network.of_images)
        self.out = ProgramWriter()
        self.floats: dict[Value, int] = {network.features: 0}
        self.sums: dict[Value, int] = {}
        self.bits: dict[Value, Bits] = {}
        self.scaled: dict[Value, tuple[Bits, int]] = {}
        self.patches: dict[Value, int] = {}
        self.boundaries: dict[str, str] = {}
        self.raw: int | None = None
        live = {value.layer for value in self.demands.values}
        # Of images, what torch.fx began to trace and gave up is no part of the network.
        self.reasons: dict[str, str] = {
            name: why
            for name, why in network.calls.items()
            if name in live or not network.of_images
        }
        kinds = LAYERS_OF_IMAGES if network.of_images else LAYERS
        self.hidden = _behind(self.demands.values, kinds)
        tensors = (tensor for value in self.demands.values for tensor in value.tensors.values())
        self.device = next((tensor.device for tensor in tensors), torch.device("cpu"))

    def _pack_rows(self, base: Value, target: Value, compared: Comparison) -> None:
        size, tensors = width_of(base), {"threshold": compared[0]}
        register = self.out.step("pack", target.layer, [self.floats[base]], {"size": size}, tensors)
        self.bits[target] = Bits(register, size, compared[1])

    def _pack_standardized(self, value: Value) -> None:
        """Pack the signs of standardised rows, with their scale where it is wanted."""
        source, relu = standardized_source(value)
        scaled = value in self.demands.scaled
        attributes = {"size": width_of(value), "relu": relu, "scaled": scaled}
        inputs = [self.floats[source]]
        words, *scale = self.out.steps_of(
            "pack_standardized", value.layer, inputs, 1 + scaled, attributes
        )
        self.bits[value] = Bits(words, width_of(value))
        if scaled:
            self.scaled[value] = (self.bits[value], scale[0])

    def _pack_scaled(self, value: Value) -> None:
        """Pack signs and row scale of a value."""
        if is_standardized(value):
            self._pack_standardized(value)
            return
        size = width_of(value)
        centre_gain = input_gain(value)
        tensors: dict[str, Tensor | None] = {}
        source, flipped = value, None
        if centre_gain is not None and value.kind == "function":
            (source,) = value.inputs
            threshold, flipped = folded(functions_of([value]), size, self.device)
            tensors = {"threshold": threshold, "gain": centre_gain[1]}
        inputs = [self.floats[source]]
        words, scale = self.out.steps_of(
            "pack_scaled", value.layer, inputs, 2, {"size": size}, tensors
        )
        bits = Bits(words, size, flipped)
        self.scaled[value] = (bits, scale)
        self.bits.setdefault(canonical(value), bits)

    def _plain(self, value: Value) -> Bits:
        """The bits of a value's signs with no channel flipped."""
        target = canonical(value)
        self.bits[target] = self._unflipped(self.bits[target], target.layer)
        return self.bits[target]

    def _plain_scaled(self, value: Value) -> Bits:
        bits, scale = self.scaled[value]
        bits = self._unflipped(bits, value.layer)
        self.scaled[value] = (bits, scale)
        return bits

    def _unflipped(self, bits: Bits, layer: str) -> Bits:
        if bits.flipped is None:
            return bits
        mask, size = {"mask": mask_of(bits.flipped)[0]}, {"size": bits.size}
        return Bits(self.out.step("flip", layer, [bits.register], size, mask), bits.size)

    def _comparison(self, target: Value) -> Comparison:
        """Threshold on what the operator of a base compares, for the sign of ``target``."""
        return comparison(target, self.device, of_sums=True)

    def _float_register(self, value: Value, reader: str) -> int:
        """Register of a value in floats; images themselves may come in another dtype."""
        if value is not self.features or not self.network.of_images or reader in _READ_RAW:
            return self.floats[value]
        if self.raw is None:
            self.raw = self.out.step("to_float", value.layer, [self.floats[value]])
        return self.raw

    def _float_step(self, value: Value) -> int:
        """A step of the same kind as the value, which PyTorch computes."""
        kind, attributes = value.kind, dict(value.attributes)
        inputs = [self._float_register(part, kind) for part in value.inputs]
        if value.call is not None:
            return self.out.call(value.call, value.layer, inputs, value.needs_edges)
        if kind in ("linear", "conv", "shortcut"):
            attributes |= {"size": value.inputs[0].size, "out": value.size}
        elif kind == "flatten":
            attributes["size"] = value.size
        names = {"function": value.name, "conv": "float_conv"}
        if self.network.of_images:
            names["cat"] = "cat_channels"
        name = names.get(kind, kind)
        return self.out.step(name, value.layer, inputs, attributes, value.tensors)


def width_of(value: Value) -> int:
    """The features or channels of a value that is packed.

    Raises:
        ValueError: they are not known.
    """
    if value.size is None:
        raise ValueError(f"freeze: the width of what {value.layer!r} gives is not known")
    return value.size


def _behind(values: Sequence[Value], kinds: Sequence[str]) -> set[Value]:
    """Values of some kinds and all that depend on one; the others are made of the features."""
    found: set[Value] = set()
    for value in values:
        if value.kind in kinds or any(parent in found for parent in value.inputs):
            found.add(value)
    return found
