"""Steps that cut images of few channels into packed patches, and multiply those with kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import BitImages
from bitgnn.inference.program import Register, Runner, Step, StepKind
from bitgnn.inference.steps._checks import expect, expect_attributes, expect_tensors, positive
from bitgnn.inference.steps.convolutions import check_prepared, expect_numbers
from bitgnn.ops import patches

__all__ = ["KINDS", "PRODUCT"]

PRODUCT = "patches_bbb"

_pack_patches = torch.ops.bitgnn.pack_patches.default
_conv_bbb = torch.ops.bitgnn.conv_bbb.default


def _check_bits(attributes: Mapping[str, Any]) -> tuple[int, int]:
    """Channels of the images and of their patches."""
    channels = positive("channels", attributes["channels"])
    if attributes["size"] != patches.bits_of(channels):
        raise ValueError(f"size must be {patches.bits_of(channels)}, got {attributes['size']}")
    return channels, attributes["size"]


def _check_pack(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    attributes = expect_attributes(
        step, channels=int, size=int, kernel=list, stride=list, padding=list, dilation=list
    )
    channels, size = _check_bits(attributes)
    expect_numbers(attributes)
    kernel = attributes["kernel"]
    if len(kernel) != 2 or not all(type(side) is int and side >= 1 for side in kernel):
        raise ValueError(f"kernel must be 2 numbers of at least 1, got {kernel}")
    if kernel[0] * kernel[1] > patches.WORD_BITS:
        raise ValueError(f"a kernel must have at most {patches.WORD_BITS} pixels, got {kernel}")
    expect(registers, "floats")
    if registers[0].size not in (channels, None):
        raise ValueError(f"the input must have {channels} channels, got {registers[0].size}")
    expect_tensors(tensors, {"threshold": channels})
    return (Register("image_bits", size),)


def _bind_pack(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), a = step.inputs, step.outputs, step.attributes
    numbers = (a["kernel"], a["stride"], a["padding"], a["dilation"], tensors.get("threshold"))

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _pack_patches(v[x].contiguous(), *numbers)

    return run


def _check_product(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    attributes = expect_attributes(step, channels=int, taps=int, size=int, out=int)
    _, size = _check_bits(attributes)
    out = positive("out", attributes["out"])
    if not 1 <= attributes["taps"] <= patches.WORD_BITS:
        raise ValueError(f"taps must be 1 to {patches.WORD_BITS}, got {attributes['taps']}")
    expect(registers, "image_bits")
    if registers[0].size != size:
        raise ValueError(f"the input must have {size} channels, got {registers[0].size}")
    own = dict(tensors)
    if not {"weight", "threshold"} <= own.keys():
        raise ValueError(f"tensors must hold a weight and a threshold, got {sorted(own)}")
    weight, prepared = own.pop("weight"), own.pop("prepared", None)
    BitImages(weight, size)
    if list(weight.shape[:3]) != [out, 1, 1]:
        raise ValueError(f"weight must be of {out} kernels of 1 x 1, got {list(weight.shape)}")
    check_prepared(prepared, out, taps=1)
    expect_tensors(own, {"threshold": out, "flip": out}, {"flip": torch.bool})
    return (Register("image_bits", out),)


def _bind_product(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), size = step.inputs, step.outputs, step.attributes["size"]
    weight, numbers = tensors["weight"], (size, [1, 1], [0] * 4, [1, 1], 1)
    compared = (tensors["threshold"], tensors.get("flip"), tensors.get("prepared"))

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _conv_bbb(v[x], weight, *numbers, None, None, *compared)

    return run


KINDS = (
    StepKind("pack_patches", _check_pack, _bind_pack),
    StepKind(PRODUCT, _check_product, _bind_product),
)
