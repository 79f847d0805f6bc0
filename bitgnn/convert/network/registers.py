"""Writes a program call by call: registers of values and of their signs, packed on demand.

Signs behind functions and pools become comparisons with thresholds, with flipped channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bitgnn.convert.network.demands import (
    Demands,
    input_gain,
    is_standardized,
    standardized_source,
)
from bitgnn.convert.network.values import (
    IMAGES,
    PRODUCTS,
    SUMS,
    Network,
    Value,
    canonical,
    collapse,
)
from bitgnn.inference.emit import BEHIND, Emitter
from bitgnn.inference.functions import FUNCTIONS, sign_threshold
from bitgnn.inference.graph import GraphSpec
from bitgnn.inference.own_code.calls import FloatCall
from bitgnn.inference.program import Program, Register
from bitgnn.ops.conv_shape import integer_limits

Function = Callable[[Tensor], Tensor]
Comparison = tuple[Tensor | None, Tensor | None]
"""Threshold and flipped channels of a sign; None where they are 0 and none."""

BY_LETTERS = "its letters ask for"
"""Beginning of the reasons that the user gave."""
FIRST_LAYER = "its sign is that of the first layer, which is in floats"
"""Reason where binarize() or the user left the layer that reads the input as it is."""
ALSO_FLOATS = "its value is read in floats as well as by sign"

_SIDE = 2
"""Rows and columns of the images that functions are evaluated on: as many take the loops of images
in channels_last, which one pixel might not."""
_pack = torch.ops.bitgnn.pack.default


def functions_of(links: Iterable[Value], rank: int | None = None) -> list[Function]:
    """Functions of values of kind ``"function"``, on channels ``[1, C]`` of the one in front."""
    on_images = rank == IMAGES
    return [partial(_applied, link, on_images) for link in links if link.kind == "function"]


def _applied(link: Value, on_images: bool, v: Tensor) -> Tensor:
    """Apply a function to channels ``[1, C]``, for images with the arithmetic of images."""
    if on_images:
        v = v[:, :, None, None].expand(1, -1, _SIDE, _SIDE)
        v = v.contiguous(memory_format=torch.channels_last)
    result = FUNCTIONS[link.name].apply(v, link.tensors, link.attributes)
    return result[:, :, 0, 0] if on_images else result


def comparison(target: Value, device: torch.device, of_sums: bool) -> Comparison:
    """Threshold and flipped channels of the signs of a value, as a comparison of its base.

    With ``of_sums`` it is one of what the operator computes in front of the scale and bias of the
    base (a first layer's sums times the step of fixed point), these being the first functions.
    """
    base, links = collapse(target)
    functions = functions_of(links, base.rank)
    scale = base.tensors.get("scale") if base.kind == "product" else None
    has_addend = len(base.inputs) > 1 and base.kind != "attend"
    bias = None if has_addend else base.tensors.get("bias")
    if of_sums and bias is not None:
        functions.insert(0, lambda v: v + bias)
    if of_sums and scale is not None:
        functions.insert(0, lambda v: scale * v)
    assert base.size is not None
    return folded(functions, base.size, device)


def folded(functions: Sequence[Function], size: int, device: torch.device) -> Comparison:
    """Comparison of ``[size]`` channels for the sign after functions monotone in each channel."""
    if not functions:
        return None, None

    def chain(v: Tensor) -> Tensor:
        for function in functions:
            v = function(v)
        return v

    return _plain(*sign_threshold(chain, size, device))


def folded_scale(
    size: int, scale: Tensor, threshold: Tensor | None, flipped: Tensor | None
) -> Comparison:
    """The comparison ``(scale * dot >= threshold) ^ flipped`` as one of dot products themselves.

    They lie in ``[-size, size]``, where float32 is exact; ``scale`` may have any sign.
    """
    least_value = torch.zeros_like(scale) if threshold is None else threshold
    least, turned = integer_limits(lambda dot: scale * dot.float() >= least_value, size, scale)
    if flipped is not None:
        turned = turned ^ flipped
    return _plain(least.float(), turned)


def _plain(threshold: Tensor, flipped: Tensor) -> Comparison:
    """Replace zeros, or no flipped channel, by None."""
    has_flips = bool(flipped.any())
    if not has_flips and bool((threshold == 0).all()):
        return None, None
    return threshold, flipped if has_flips else None


def mask_of(flipped: Tensor) -> Tensor:
    """Words ``[1, ceil(size / 32)]`` whose set bits are the flipped channels."""
    words: Tensor = _pack(torch.where(flipped, 1.0, -1.0).unsqueeze(0))
    return words


class Bits(NamedTuple):
    """Register of some signs, and the channels that are flipped in it."""

    register: int
    size: int
    flipped: Tensor | None = None


class Registers:
    """A program being written: its calls, their registers, and signs packed on demand.

    Register 0 holds the features; ``specs`` are the adjacencies in use.
    """

    demands_of: type[Demands] = Demands
    layers: tuple[str, ...] = (*PRODUCTS, *SUMS, "linear", "int8_product", "attend", "call")
    """Kinds of values that layers compute; reports tell why signs of them are taken of floats."""
    names: Mapping[str, str] = {"conv": "float_conv"}
    """Kinds of parts that PyTorch computes and emit knows by another name."""

    def __init__(self, network: Network) -> None:
        assert network.scores is not None
        assert network.features is not None
        self.network = network
        self.features, self.scores = network.features, network.scores
        self.demands = self.demands_of(network.scores)
        values = self.demands.values
        self._emitter = Emitter([value.size for value in network.inputs])
        self._calls: list[FloatCall] = []
        self.specs: list[GraphSpec] = []
        self.floats: dict[Value, int] = {value: n for n, value in enumerate(network.inputs)}
        self.sums: dict[Value, int] = {}
        self.bits: dict[Value, Bits] = {}
        self.scaled: dict[Value, tuple[Bits, int]] = {}
        self.patches: dict[Value, int] = {}
        self.boundaries: dict[str, str] = {}
        self.reasons = dict(network.calls)
        self.hidden: set[Value] = set()  # what layers compute, and all that depends on it
        for value in values:
            if value.kind in self.layers or any(parent in self.hidden for parent in value.inputs):
                self.hidden.add(value)
        tensors = (tensor for value in values for tensor in value.tensors.values())
        self.device = next((tensor.device for tensor in tensors), torch.device("cpu"))

    def step(self, *part: Any, **tensors: Any) -> int:
        """Write a part with one result, as :meth:`steps_of` does; its register."""
        return self.steps_of(*part, **tensors)[0]

    def steps_of(
        self,
        kind: str,
        layer: str,
        inputs: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        graph: int | None = None,
        **tensors: Tensor | None,
    ) -> tuple[int, ...]:
        """Write the calls of a part of the network; the registers of its results.

        Tensors that are None are left out. See :mod:`bitgnn.inference.emit`.
        """
        names = {}
        for name, tensor in tensors.items():
            if tensor is not None:
                names[name] = f"call{len(self._emitter.calls)}_{name}"
                self._emitter.tensors[names[name]] = tensor.contiguous()
        return self._emitter.write(kind, layer, inputs, attributes or {}, names, graph)

    def graph(self, spec: GraphSpec | None) -> int:
        """Number of an adjacency; layers with the same graph options share one."""
        assert spec is not None
        if spec not in self.specs:
            self.specs.append(spec)
        return self.specs.index(spec)

    def parts(
        self, in_channels: Sequence[int], output: int
    ) -> tuple[Program, Mapping[str, Tensor], Sequence[FloatCall]]:
        """The program, its buffers by name, and the user's own code."""
        for number, size in enumerate(in_channels):
            self._emitter.registers[number] = Register("floats", size or None)
        program = self._emitter.program(output, len(self.specs))
        return program, self._emitter.tensors, self._calls

    def _pack_standardized(self, value: Value) -> None:
        """Pack the signs of standardised rows, with their scale where it is wanted."""
        source, relu = standardized_source(value)
        size, scaled = width_of(value), value in self.demands.scaled
        attributes = {"size": size, "relu": relu, "scaled": scaled}
        words, *scale = self.steps_of(
            "pack_standardized", value.layer, [self.floats[source]], attributes
        )
        self.bits[value] = Bits(words, size)
        if scaled:
            self.scaled[value] = (self.bits[value], scale[0])

    def _pack_scaled(self, value: Value) -> None:
        """Pack signs and row scale of a value."""
        if is_standardized(value):
            self._pack_standardized(value)
            return
        size, source, flipped = width_of(value), value, None
        centre_gain = input_gain(value)
        tensors: dict[str, Any] = {}
        if centre_gain is not None and value.kind == "function":
            (source,) = value.inputs
            threshold, flipped = folded(functions_of([value]), size, self.device)
            tensors = {"threshold": threshold, "gain": centre_gain[1]}
        read, sizes = [self.floats[source]], {"size": size}
        words, scale = self.steps_of("pack_scaled", value.layer, read, sizes, **tensors)
        bits = Bits(words, size, flipped)
        self.scaled[value] = (bits, scale)
        self.bits.setdefault(canonical(value), bits)

    def _plain(self, value: Value) -> Bits:
        """The bits of a value's signs with no channel flipped."""
        target = canonical(value)
        self.bits[target] = self._unflipped(self.bits[target], target.layer)
        return self.bits[target]

    def _unflipped(self, bits: Bits, layer: str) -> Bits:
        if bits.flipped is None:
            return bits
        mask, size = mask_of(bits.flipped)[0], {"size": bits.size}
        return Bits(self.step("flip", layer, [bits.register], size, mask=mask), bits.size)

    def _comparison(self, target: Value) -> Comparison:
        """Threshold on what the operator of a base compares, for the sign of ``target``."""
        return comparison(target, self.device, of_sums=True)

    def _float_register(self, value: Value, reader: str) -> int:
        """Register of a value in floats, for a reader of this kind."""
        return self.floats[value]

    def _float_step(self, value: Value) -> int:
        """A part of the same kind as the value, which PyTorch computes."""
        kind, attributes = value.kind, dict(value.attributes)
        inputs = [self._float_register(part, kind) for part in value.inputs]
        if value.call is not None:
            self._calls.append(value.call)
            self._emitter.sizes.append(value.call.size)
            graph = BEHIND if value.needs_edges else None
            held = {"call": len(self._calls) - 1, "form": attributes.get("form", "floats")}
            return self.step("call", value.layer, inputs, held, graph)
        if kind in ("linear", "edge_scores", "conv", "shortcut"):
            attributes |= {"size": value.inputs[0].size, "out": value.size}
        elif kind in ("flatten", "pack_int8"):
            attributes["size"] = value.size
        name = value.name if kind == "function" else self.names.get(kind, kind)
        return self.step(name, value.layer, inputs, attributes, **value.tensors)


def width_of(value: Value) -> int:
    """The features or channels of a value that is packed."""
    if value.size is None:
        raise ValueError(f"freeze: the width of what {value.layer!r} gives is not known")
    return value.size
