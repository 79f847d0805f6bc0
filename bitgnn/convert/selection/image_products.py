"""Steps of binary products of images: to bits, to integer sums, to floats; pools behind them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.bits import BitImages
from bitgnn.convert.network.lower import Network
from bitgnn.convert.network.values import IMAGES, Value
from bitgnn.convert.selection.chains import Chain, comparison, is_pool, pool_flips, target_of
from bitgnn.convert.selection.comparisons import mask_of
from bitgnn.convert.selection.image_demands import ImageDemands, is_bit_flatten
from bitgnn.convert.selection.registers import behind
from bitgnn.convert.selection.writer import ProgramWriter
from bitgnn.inference.steps.aggregates import words_of
from bitgnn.ops import conv, patches

__all__ = ["LAYERS", "ImageProducts", "kernel_words", "row_words", "rows_behind_images"]

WORD_BITS = 32
_pack = torch.ops.bitgnn.pack.default


def kernel_words(weight: Tensor) -> Tensor:
    """Words ``[O, kh, kw, ceil(C / 32)]`` of the signs of ``[O, C, kh, kw]``."""
    return BitImages.from_float(weight.cpu()).words.to(weight.device)


def row_words(weight: Tensor) -> Tensor:
    """Words ``[O, ceil(K / 32)]`` of the signs of ``[O, K]``."""
    words: Tensor = _pack(weight.contiguous())
    return words


def rows_behind_images(weight: Tensor, channels: int) -> tuple[Tensor, int]:
    """Words of weights of flattened images, and the number of bits that count in a row.

    The columns of ``weight`` ``[O, channels * pixels]`` are ordered by channel, then pixel; the
    words of packed images by pixel, then channel, each pixel padded to whole words. Padding bits
    of the images are 0, which stands for -1: as many of the weight's are 1 as are 0 there, so that
    their products cancel. An odd one out is the last bit of a row, which is left out of its size.
    """
    out, features = weight.shape
    pixels, width = features // channels, words_of(channels) * WORD_BITS
    padding = width - channels
    by_pixel = weight.view(out, channels, pixels).transpose(1, 2)
    rows = functional.pad(by_pixel, (0, padding), value=-1.0).reshape(out, pixels * width)
    places = torch.arange(pixels * width, device=weight.device)
    places = places[places % width >= channels]
    rows[:, places[: padding * pixels // 2]] = 1.0
    size = pixels * width - padding * pixels % 2
    return row_words(rows[:, :size]), size


LAYERS = ("product", "conv", "linear", "call", "add")
"""Values made by layers: that signs of them are taken of floats is worth a word."""
_NOT_OF_FIXED = ("groups", "input_step")


class ImageProducts:
    """A program under way for a network of images: registers, and the products written so far.

    Args:
        network: values and what leads to its scores.
    """

    def __init__(self, network: Network) -> None:
        assert network.scores is not None
        assert network.features is not None
        self.network = network
        self.scores, self.features = network.scores, network.features
        self.demands = ImageDemands(network.scores)
        self.residuals = self.demands.residuals
        self.out = ProgramWriter()
        self.floats: dict[Value, int] = {self.features: 0}
        self.sums: dict[Value, int] = {}
        self.bits: dict[Value, int] = {}
        self.patches: dict[Value, int] = {}
        self.raw: int | None = None
        self.boundaries: dict[str, str] = {}
        live = {value.layer for value in self.demands.values}
        # What torch.fx began to trace and gave up is no part of the network.
        self.reasons = {name: why for name, why in network.calls.items() if name in live}
        self.behind_layers = behind(self.demands.values, LAYERS)

    def _product(self, value: Value, chain: Chain | None) -> int | None:
        """A binary product to the bits of a chain behind it, or to floats."""
        if value in self.patches and chain is not None:
            self._product_of_patches(value, chain)
            return None
        of_images, step = value.rank == IMAGES, value.attributes["input_step"]
        (source,) = value.inputs
        attributes: dict[str, Any] = {"out": value.size}
        if step is not None:
            name = "conv_f" if of_images else "linear_f"
            weight = value.tensors["weight"]
            words = kernel_words(weight if of_images else weight[:, :, None, None])
            numbers = {n: v for n, v in value.attributes.items() if n not in _NOT_OF_FIXED}
            numbers = numbers or {"stride": [1, 1], "padding": [0] * 4, "dilation": [1, 1]}
            attributes |= {**numbers, "size": weight.size(1), "input_step": step}
            register = self.floats[source]
        elif of_images:
            name, words = "conv_b", kernel_words(value.tensors["weight"])
            attributes |= _numbers(value)
            register = self._bits_of(source)
        else:
            name = "bmm_b"
            register, words, attributes["size"] = self._rows(value, source)
            attributes["scaled"] = False
        tensors: dict[str, Tensor | None] = {"weight": words}
        if chain is None:
            scale, bias = value.tensors.get("scale"), value.tensors.get("bias")
            tensors |= {"weight_scale": scale, "bias": bias}
            if step is None and of_images:
                tensors["prepared"] = _prepared(value, words)
            self.boundaries[value.layer] = "floats"
            return self.out.step(f"{name}bf", value.layer, [register], attributes, tensors)
        threshold, flip = comparison(chain, of_sums=True)
        tensors |= {"threshold": threshold, "flip": flip}
        if name != "bmm_b":
            tensors["prepared"] = _prepared(value, words, threshold, flip, step=step)
        self.boundaries[value.layer] = "bits"
        written = self.out.step(f"{name}bb", value.layer, [register], attributes, tensors)
        self._pooled(written, chain)
        return None

    def _product_of_patches(self, value: Value, chain: Chain) -> None:
        """A convolution whose input is packed as its own patches, to bits."""
        weight = value.tensors["weight"]
        threshold, flip = comparison(chain, of_sums=True)
        kernel = patches.kernel(
            BitImages.from_float(weight), scale=False, threshold=threshold, flip=flip
        )
        attributes = {
            "channels": weight.size(1), "taps": weight[0, 0].numel(), "out": value.size,
            "size": kernel.words.channels,
        }  # fmt: skip
        tensors: dict[str, Tensor | None] = {
            "weight": kernel.words.words, "threshold": kernel.threshold, "flip": kernel.flip,
            "prepared": conv.prepare(kernel.words, threshold=kernel.threshold, flip=kernel.flip),
        }  # fmt: skip
        self.boundaries[value.layer] = "bits"
        inputs = [self.patches[value]]
        written = self.out.step("patches_bbb", value.layer, inputs, attributes, tensors)
        self._pooled(written, chain)

    def _rows(self, value: Value, source: Value) -> tuple[int, Tensor, int]:
        """Bits that a linear map reads, its words in their order, and their number."""
        weight, target = value.tensors["weight"], target_of(source)
        if not is_bit_flatten(target):
            return self._bits_of(source), row_words(weight), weight.size(1)
        channels = target.inputs[0].size
        assert channels is not None
        if weight.size(1) % channels:
            raise ValueError(
                f"freeze: layer {value.layer!r} takes {weight.size(1)} features, gets those of "
                f"images of {channels} channels"
            )
        words, size = rows_behind_images(weight, channels)
        if target not in self.bits:
            attributes = {
                "channels": channels, "pixels": weight.size(1) // channels, "size": size,
            }  # fmt: skip
            inputs = [self._bits_of(target.inputs[0])]
            self.bits[target] = self.out.step("flatten_bits", value.layer, inputs, attributes)
        return self.bits[target], words, size

    def _integers(self, value: Value, chains: list[Chain], has_sums: bool) -> list[Chain]:
        """Sums of signs, perhaps with an addend, and the bits of the first chain behind them.

        Returns:
            The chains whose bits are still to be packed.
        """
        residual = self.residuals.get(value)
        product = value if residual is None else residual.product
        words = kernel_words(product.tensors["weight"])
        inputs = [self._bits_of(product.inputs[0])]
        stride = [1, 1]
        if residual is not None:
            inputs.append(self.sums[residual.addend])
            stride = residual.stride
        wide = self.residuals.is_wide(value)
        attributes = {
            **_numbers(product), "out": product.size, "addend_stride": stride, "wide": wide,
            "sums": has_sums, "bits": bool(chains),
        }  # fmt: skip
        tensors: dict[str, Tensor | None] = {"weight": words}
        threshold = flip = None
        if chains:
            threshold, flip = comparison(chains[0], of_sums=True)
            tensors |= {"threshold": threshold, "flip": flip}
        added = 0 if residual is None else self.residuals.bound(residual.addend)
        tensors["prepared"] = _prepared(product, words, threshold, flip, added=added)
        count = has_sums + bool(chains)
        written = self.out.steps_of("conv_add", product.layer, inputs, count, attributes, tensors)
        if has_sums:
            self.sums[value] = written[0]
        if chains:
            self._pooled(written[-1], chains[0])
        kept = [f"int{32 if wide else 16} sums"] * has_sums + ["bits"] * bool(chains)
        self.boundaries[product.layer] = " and ".join(kept)
        return chains[1:]

    def _pooled(self, register: int, chain: Chain) -> None:
        """Take the bits of a chain's base through its pools."""
        for pool, flips in pool_flips(chain):
            register = self._pool(pool, register, chain.base.size, flips)
        self.bits[chain.links[-1] if chain.links else chain.base] = register

    def _pool(self, pool: Value, register: int, size: int | None, flips: Tensor | None) -> int:
        attributes = {name: pool.attributes[name] for name in ("kernel", "stride")}
        height, width = pool.attributes["padding"]
        attributes["padding"] = [height, height, width, width]
        tensors = {} if flips is None else {"flip": mask_of(flips)[0]}
        attributes["size"] = size
        return self.out.step("pool_bits", pool.layer, [register], attributes, tensors)

    def _bits_of(self, value: Value) -> int:
        """Register of the signs of a value that is not flattened in bits."""
        target = target_of(value)
        if target not in self.bits:
            assert is_pool(target), f"no signs of {target.layer}"
            register = self._bits_of(target.inputs[0])
            self.bits[target] = self._pool(target, register, target.size, None)
        return self.bits[target]


def _numbers(value: Value) -> dict[str, Any]:
    """Attributes that steps of convolutions share."""
    numbers = {name: v for name, v in value.attributes.items() if name != "input_step"}
    channels = value.tensors["weight"].size(1) * value.attributes["groups"]
    return {**numbers, "size": channels, "out": value.size}


def _prepared(
    value: Value,
    words: Tensor,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """What kernels on a GPU would make of the weights and the comparison at each call."""
    weight = value.tensors["weight"]
    channels = weight.size(1)
    return conv.prepare(BitImages(words, channels), threshold=threshold, flip=flip, **options)
