"""Steps of binary products of images: to bits, integer sums and floats, and pools after them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.bits import BitImages
from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.convert.network.demands import INT16_MAX, ImageDemands, is_bit_flatten
from bitgnn.convert.network.registers import (
    Bits,
    Comparison,
    Registers,
    folded,
    functions_of,
    mask_of,
)
from bitgnn.convert.network.values import IMAGES, Network, Value, canonical, collapse, is_pool
from bitgnn.ops import conv, patches

_pack = torch.ops.bitgnn.pack.default

WORDS_OF_PATCH = 2
"""Words for each channel of a patch: the pixels that are +1, and those that are -1."""
FEWEST_SAVED = 2
"""Patches take longer to pack than images: they pay where the product reads at most half the words,
as with 5x5 kernels of three channels; with 3x3 ones both take as long."""
_READ_RAW = ("flatten", "call")
"""Kinds of parts that take images of any dtype, beside packing and first layers."""
_POINT = {"stride": [1, 1], "padding": [0] * 4, "dilation": [1, 1]}
"""Numbers of the convolution that a linear map of fixed point is."""


def _kernel_words(weight: Tensor) -> Tensor:
    """Words ``[O, kh, kw, ceil(C / 32)]`` of the signs of ``[O, C, kh, kw]``."""
    return BitImages.from_float(weight.cpu()).words.to(weight.device)


def _rows_behind_images(weight: Tensor, channels: int) -> tuple[Tensor, int]:
    """Weights of flattened images in the order of packed ones, and how many bits of a row count.

    The columns of ``weight`` ``[O, channels * pixels]`` are ordered by channel, then pixel; the
    words of packed images by pixel, then channel, each pixel padded to whole words. Padding bits
    of the images are 0, which stands for -1: as many of the weight's are 1 as are 0 there, so that
    their products cancel. An odd one out is the last bit of a row, which is left out of its size.
    """
    out, features = weight.shape
    pixels, width = features // channels, words_for(channels) * WORD_BITS
    padding = width - channels
    by_pixel = weight.view(out, channels, pixels).transpose(1, 2)
    rows = functional.pad(by_pixel, (0, padding), value=-1.0).reshape(out, pixels * width)
    places = torch.arange(pixels * width, device=weight.device)
    places = places[places % width >= channels]
    rows[:, places[: padding * pixels // 2]] = 1.0
    size = pixels * width - padding * pixels % 2
    return rows[:, :size].contiguous(), size


class ImageProducts(Registers):
    """Registers of networks of images: products, integer sums, and signs after pools."""

    demands_of = ImageDemands
    layers = ("product", "conv", "linear", "call", "add")
    names: Mapping[str, str] = {**Registers.names, "cat": "cat_channels"}

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.raw: int | None = None
        # What torch.fx began to trace and gave up is no part of the network.
        live = {value.layer for value in self.demands.values}
        self.reasons = {name: why for name, why in self.reasons.items() if name in live}

    def _float_register(self, value: Value, reader: str) -> int:
        """Register of a value in floats; images themselves may come in another dtype."""
        if value is not self.features or reader in _READ_RAW:
            return self.floats[value]
        if self.raw is None:
            self.raw = self.step("to_float", value.layer, [self.floats[value]])
        return self.raw

    def _image_product(self, value: Value, target: Value | None) -> int:
        """A binary product to the bits of a target, or to floats; the register it writes."""
        if value in self.patches and target is not None:
            return self._product_of_patches(value, target)
        of_images, step = value.rank == IMAGES, value.attributes["input_step"]
        weight = value.tensors["weight"]
        (source,) = value.inputs
        attributes: dict[str, Any] = {"out": value.size}
        if step is not None:
            name, register = "conv_f" if of_images else "linear_f", self.floats[source]
            words = _kernel_words(weight if of_images else weight[:, :, None, None])
            numbers = {key: value.attributes.get(key, one) for key, one in _POINT.items()}
            attributes |= {**numbers, "size": weight.size(1), "input_step": step}
        elif of_images:
            name, register, words = "conv_b", self._framed_bits(value), _kernel_words(weight)
            attributes |= _numbers(value)
        else:
            name = "bmm_b"
            register, weight, size = self._rows(value, source)
            words = _pack(weight)
            attributes |= {"size": size, "scaled": False}
        tensors: dict[str, Tensor | None] = {"weight": words}
        if target is None:
            scale, bias = value.tensors.get("scale"), value.tensors.get("bias")
            tensors |= {"weight_scale": scale, "bias": bias}
            if step is None and of_images:
                tensors["prepared"] = _prepared(value, words)
        else:
            threshold, flip = self._comparison(target)
            tensors |= {"threshold": threshold, "flip": flip}
            if name != "bmm_b":
                tensors["prepared"] = _prepared(value, words, threshold, flip, step=step)
        kind = f"{name}bf" if target is None else f"{name}bb"
        return self.step(kind, value.layer, [register], attributes, **tensors)

    def _product_of_patches(self, value: Value, target: Value) -> int:
        """A convolution whose input is packed as its own patches, to bits."""
        weight = value.tensors["weight"]
        threshold, flip = self._comparison(target)
        kernel = patches.kernel(
            BitImages.from_float(weight), scale=False, threshold=threshold, flip=flip
        )
        attributes = {
            "channels": weight.size(1), "taps": weight[0, 0].numel(), "out": value.size,
            "size": kernel.words.channels,
        }  # fmt: skip
        threshold, flip, words = kernel.threshold, kernel.flip, kernel.words.words
        prepared = conv.prepare(kernel.words, threshold=threshold, flip=flip)
        tensors = {"weight": words, "threshold": threshold, "flip": flip, "prepared": prepared}
        inputs = [self.patches[value]]
        return self.step("patches_bbb", value.layer, inputs, attributes, **tensors)

    def _rows(self, value: Value, source: Value) -> tuple[int, Tensor, int]:
        """Bits that a linear map reads, its weight in their order, and their number."""
        weight, target = value.tensors["weight"], canonical(source)
        if not is_bit_flatten(target):
            return self._bits_of(source), weight.contiguous(), weight.size(1)
        (images,) = target.inputs
        channels = images.size
        assert channels is not None
        if weight.size(1) % channels:
            raise ValueError(
                f"freeze: layer {value.layer!r} takes {weight.size(1)} features, gets those of "
                f"images of {channels} channels"
            )
        rows, size = _rows_behind_images(weight, channels)
        if target not in self.bits:
            pixels = weight.size(1) // channels
            attributes = {"channels": channels, "pixels": pixels, "size": size}
            inputs = [self._bits_of(images)]
            register = self.step("flatten_bits", value.layer, inputs, attributes)
            self.bits[target] = Bits(register, size)
        return self.bits[target].register, rows, size

    def _integers(self, value: Value, targets: list[Value], has_sums: bool) -> None:
        """Sums of signs, perhaps with an addend, and the bits of the first target behind them."""
        residual = self.demands.residuals.get(value)
        product = value if residual is None else residual.product
        words = _kernel_words(product.tensors["weight"])
        inputs, stride, added = [self._framed_bits(product)], [1, 1], 0
        if residual is not None:
            inputs.append(self.sums[residual.addend])
            stride, added = residual.stride, self.demands.bounds[residual.addend]
        wide = self.demands.bounds[value] > INT16_MAX
        attributes = {
            **_numbers(product), "out": product.size, "addend_stride": stride, "wide": wide,
            "sums": has_sums, "bits": bool(targets),
        }  # fmt: skip
        threshold, flip = self._comparison(targets[0]) if targets else (None, None)
        prepared = _prepared(product, words, threshold, flip, added=added)
        tensors: dict[str, Any] = {"weight": words, "threshold": threshold, "flip": flip}
        tensors["prepared"] = prepared
        written = self.steps_of("conv_add", product.layer, inputs, attributes, **tensors)
        if has_sums:
            self.sums[value] = written[0]
        if targets:
            self._pooled(written[-1], targets[0])
        kept = [f"int{32 if wide else 16} sums"] * has_sums + ["bits"] * bool(targets)
        self.boundaries[product.layer] = " and ".join(kept)

    def _framed_bits(self, product: Value) -> int:
        """Bits that a convolution reads; words of 0 are the pixels outside that count as -1."""
        register, frame = self._bits_of(product.inputs[0]), product.attributes.get("frame")
        if not any(frame or ()):
            return register
        attributes = {"frame": frame, "size": product.inputs[0].size}
        return self.step("pad_images", product.layer, [register], attributes)

    def _pooled(self, register: int, target: Value) -> None:
        """Take the bits of a target's base through the pools in front of it."""
        base, links = collapse(target)
        assert base.size is not None
        for place, link in enumerate(links):
            if link.kind == "max_pool":
                # The maximum in front of a falling function is the minimum behind it.
                behind = functions_of(links[place + 1 :], base.rank)
                flips = folded(behind, base.size, self.device)[1]
                register = self._pool(link, register, base.size, flips)
        self.bits[target] = Bits(register, base.size)

    def _pool(self, pool: Value, register: int, size: int, flips: Tensor | None) -> int:
        attributes = {name: pool.attributes[name] for name in ("kernel", "stride")}
        height, width = pool.attributes["padding"]
        attributes |= {"padding": [height, height, width, width], "size": size}
        flip = None if flips is None else mask_of(flips)[0]
        return self.step("pool_bits", pool.layer, [register], attributes, flip=flip)

    def _bits_of(self, value: Value) -> int:
        """Register of the signs of a value that is not flattened in bits."""
        target = canonical(value)
        if target not in self.bits:
            assert is_pool(target), f"no signs of {target.layer}"
            assert target.size is not None
            register = self._pool(target, self._bits_of(target.inputs[0]), target.size, None)
            self.bits[target] = Bits(register, target.size)
        return self.bits[target].register

    def _unpacked_images(self, value: Value) -> int:
        """Signs that are read as floats."""
        source, kind = value.inputs[0], "unpack_images" if value.rank == IMAGES else "unpack"
        target = canonical(source)
        if not is_bit_flatten(target):
            sizes = {"size": source.size}
            return self.step(kind, value.layer, [self._bits_of(source)], sizes)
        images, sizes = self._bits_of(target.inputs[0]), {"size": target.inputs[0].size}
        register = self.step("unpack_images", value.layer, [images], sizes)
        return self.step("flatten", value.layer, [register], {"size": target.size})

    def _pack_images(self, base: Value, target: Value, compared: Comparison) -> None:
        """Pack the signs of images or rows, or the patches that one convolution reads."""
        threshold, flips = compared
        layer = target.layer
        reader = None if flips is not None else self._patches_reader(base, target)
        if reader is not None:
            attributes = {
                "channels": base.size, "size": patches.bits_of(base.size or 0),
                "kernel": list(reader.tensors["weight"].shape[2:]),
                **{name: reader.attributes[name] for name in ("stride", "padding", "dilation")},
            }  # fmt: skip
            read = [self._float_register(base, "patches")]
            register = self.step("pack_patches", layer, read, attributes, threshold=threshold)
            self.patches[reader] = register
            return
        size, end = {"size": base.size}, "_images" if base.rank == IMAGES else ""
        read = [self.floats[base]]
        register = self.step(f"pack{end}", layer, read, size, threshold=threshold)
        if flips is not None:
            mask = mask_of(flips)[0]
            register = self.step(f"flip{end}", layer, [register], size, mask=mask)
        self._pooled(register, target)

    def _patches_reader(self, base: Value, target: Value) -> Value | None:
        """The only reader of some signs, if it is a convolution that should read patches."""
        if base.rank != IMAGES or any(link.kind == "max_pool" for link in collapse(target)[1]):
            return None
        target, demands = canonical(target), self.demands
        readers = [
            value
            for value in demands.values
            if demands.is_needed(value)
            and canonical(value) is not target
            and any(canonical(part) is target for part in value.inputs)
        ]
        if len(readers) != 1:
            return None
        (value,) = readers
        if value.kind != "product" or value.rank != IMAGES:
            return None
        if value.attributes["input_step"] is not None or value.attributes["groups"] != 1:
            return None
        if "frame" in value.attributes:  # patches leave out the pixels outside
            return None
        if demands.writes_sums(value) or not demands.writes_bits(value):
            return None
        channels, height, width = value.tensors["weight"].shape[1:]
        words = height * width * words_for(channels)
        few = WORDS_OF_PATCH * channels * FEWEST_SAVED <= words
        return value if few and height * width <= WORD_BITS else None


def _numbers(value: Value) -> dict[str, Any]:
    """Attributes that steps of convolutions share."""
    numbers = {
        name: v for name, v in value.attributes.items() if name not in ("input_step", "frame")
    }
    channels = value.tensors["weight"].size(1) * value.attributes["groups"]
    return {**numbers, "size": channels, "out": value.size}


def _prepared(
    value: Value,
    words: Tensor,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Tables of weights and comparison that GPU kernels would otherwise make at each call."""
    images = BitImages(words, value.tensors["weight"].size(1))
    return conv.prepare(images, threshold=threshold, flip=flip, **options)
