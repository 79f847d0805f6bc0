"""Turns values of a convolutional network into steps: bits, integers, or floats."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bitgnn.convert.network.lower import Network
from bitgnn.convert.network.values import IMAGES, ROWS, Value
from bitgnn.convert.selection.chains import Chain, comparison, target_of
from bitgnn.convert.selection.comparisons import mask_of
from bitgnn.convert.selection.image_demands import ImageDemands, is_bit_flatten
from bitgnn.convert.selection.image_products import ImageProducts
from bitgnn.convert.selection.registers import ALSO_FLOATS
from bitgnn.inference.frozen import FreezeReport
from bitgnn.inference.frozen_images import FrozenImages, Takes
from bitgnn.inference.steps.aggregates import words_of
from bitgnn.ops import patches

__all__ = ["patches_reader", "select_image_steps"]

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


_READ_RAW = ("flatten", "call")
"""Kinds of steps that take images of any dtype, beside packing and first layers."""


def select_image_steps(network: Network) -> FrozenImages:
    """The frozen model of a network.

    Raises:
        ValueError: something in it does not fit; the message names the layer.
    """
    return _Selection(network).run()


class _Selection(ImageProducts):
    def run(self) -> FrozenImages:
        for value in self.demands.values:
            if self.demands.is_needed(value):
                self._emit(value)
        letters = {
            name: letters[:2] + ("B" if self.boundaries.get(name) == "bits" else "F")
            for name, letters in self.network.letters.items()
        }
        report = FreezeReport(letters, self.boundaries, self.reasons, self.network.folded)
        size = self.features.size
        rank = self.features.rank
        if rank is None:  # the user's own code alone reads it
            rank = (
                IMAGES
                if any(v.kind == "product" and v.rank == IMAGES for v in self.demands.values)
                else ROWS
            )
        takes: Takes = "images" if rank == IMAGES else "rows"
        if size is None and takes == "images":
            size, takes = _flattened_size(self.demands.values, self.features), "flattened"
        # What only the user's own code reads has channels that nothing tells.
        program, tensors, calls = self.out.parts(size or 0, self.floats[self.scores])
        return FrozenImages(program, tensors, report, calls, takes=takes)

    def _emit(self, value: Value) -> None:
        chains = self.demands.targets.get(value, [])
        has_sums = self.demands.writes_sums(value)
        if has_sums or self.residuals.get(value) is not None:
            chains = self._integers(value, chains, has_sums)
            if value in self.demands.floats or chains:
                self.floats[value] = self.out.step(
                    "sums_to_floats", value.layer, [self.sums[value]]
                )
        elif self.demands.writes_bits(value):
            self._product(value, chains[0])
            return
        elif value.kind != "input":
            self.floats[value] = self._float_base(value)
        for chain in chains:
            self._pack(value, chain)

    def _pack(self, base: Value, chain: Chain) -> None:
        """Pack the signs of a chain whose base exists in floats."""
        layer = (chain.links[-1] if chain.links else base).layer
        if base in self.behind_layers:
            self.reasons.setdefault(layer, self._why_packed(base))
        if base.size is None:
            raise ValueError(f"freeze: the channels of what {base.layer!r} gives are not known")
        threshold, flips = comparison(chain, of_sums=False)
        of_images = base.rank == IMAGES
        reader = None if flips is not None else patches_reader(self.demands, base, chain)
        if reader is not None:
            self._cut(base, chain, reader, threshold)
            return
        size = {"size": base.size}
        kind = "pack_images" if of_images else "pack"
        tensors = {"threshold": threshold}
        register = self.out.step(kind, layer, [self.floats[base]], size, tensors)
        if flips is not None:
            mask = {"mask": mask_of(flips)[0]}
            kind = "flip_images" if of_images else "flip"
            register = self.out.step(kind, layer, [register], size, mask)
        self._pooled(register, chain)

    def _cut(self, base: Value, chain: Chain, reader: Value, threshold: Tensor | None) -> None:
        """Pack the patches that one convolution reads."""
        layer = (chain.links[-1] if chain.links else base).layer
        sides = list(reader.tensors["weight"].shape[2:])
        attributes = {
            "channels": base.size, "size": patches.bits_of(base.size or 0), "kernel": sides,
            **{name: reader.attributes[name] for name in ("stride", "padding", "dilation")},
        }  # fmt: skip
        inputs, tensors = [self._float_register(base, "patches")], {"threshold": threshold}
        self.patches[reader] = self.out.step("pack_patches", layer, inputs, attributes, tensors)

    def _why_packed(self, base: Value) -> str:
        if base.kind == "add":
            return self.residuals.why_floats(base)
        if base.kind == "product":
            return ALSO_FLOATS
        return f"a sign is taken of floats that {base.name or base.kind} computes"

    # Floats.

    def _float_base(self, value: Value) -> int:
        kind, layer = value.kind, value.layer
        if kind == "product":
            register = self._product(value, None)
            assert register is not None
            return register
        if kind == "function" and value.name == "sign":
            return self._unpacked(value)
        if kind == "call":
            assert value.call is not None
            inputs = [self.floats[part] for part in value.inputs]
            return self.out.call(value.call, layer, inputs, value.needs_edges)
        inputs = [self._float_register(part, kind) for part in value.inputs]
        if kind == "function":
            return self.out.step(value.name, layer, inputs, dict(value.attributes), value.tensors)
        if kind in ("conv", "linear"):
            sizes = {"size": value.inputs[0].size, "out": value.size}
            name = "float_conv" if kind == "conv" else "linear"
            return self.out.step(name, layer, inputs, {**value.attributes, **sizes}, value.tensors)
        if kind == "shortcut":
            sizes = {"size": value.inputs[0].size, "out": value.size}
            return self.out.step(kind, layer, inputs, {**value.attributes, **sizes})
        if kind == "flatten":
            return self.out.step(kind, layer, inputs, {"size": value.size})
        name = "cat_channels" if kind == "cat" else kind
        return self.out.step(name, layer, inputs, dict(value.attributes))

    def _float_register(self, value: Value, reader: str) -> int:
        """Register of a value in floats; the images themselves may come in another dtype."""
        if value is not self.features or reader in _READ_RAW:
            return self.floats[value]
        if self.raw is None:
            self.raw = self.out.step("to_float", value.layer, [self.floats[value]])
        return self.raw

    def _unpacked(self, value: Value) -> int:
        """Signs that are read as floats."""
        source = value.inputs[0]
        target = target_of(source)
        of_images = value.rank == IMAGES
        if is_bit_flatten(target):
            images = self._bits_of(target.inputs[0])
            sizes = {"size": target.inputs[0].size}
            register = self.out.step("unpack_images", value.layer, [images], sizes)
            return self.out.step("flatten", value.layer, [register], {"size": target.size})
        kind = "unpack_images" if of_images else "unpack"
        return self.out.step(kind, value.layer, [self._bits_of(source)], {"size": source.size})


def _flattened_size(values: Sequence[Value], features: Value) -> int | None:
    """Features of images that nobody reads but flattened."""
    for value in values:
        if value.kind == "flatten" and features in value.inputs:
            return value.size
    return None
