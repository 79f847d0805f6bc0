"""Steps between float images, packed images, their sums and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitImages, BitTensor
from bitgnn.inference.program import Register, Runner, Step, StepKind
from bitgnn.inference.steps._checks import expect, expect_attributes, expect_tensors, positive
from bitgnn.inference.steps.bits import bind_flip
from bitgnn.inference.steps.layouts import words_of

__all__ = ["KINDS"]

_pack_images = torch.ops.bitgnn.pack_images.default
_pool_bits = torch.ops.bitgnn.pool_bits.default


def _expect_channels(step: Step, registers: Sequence[Register], form: str, size: int) -> None:
    expect(registers, form)
    if registers[0].size not in (size, None):
        raise ValueError(f"the input must have {size} channels, got {registers[0].size}")


def _check_pack(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    size = positive("size", expect_attributes(step, size=int)["size"])
    _expect_channels(step, registers, "floats", size)
    expect_tensors(tensors, {"threshold": size})
    return (Register("image_bits", size),)


def _bind_pack(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), threshold = step.inputs, step.outputs, tensors.get("threshold")

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _pack_images(v[x], threshold)

    return run


def _check_unpack(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    size = positive("size", expect_attributes(step, size=int)["size"])
    _expect_channels(step, registers, "image_bits", size)
    expect_tensors(tensors, {})
    return (Register("floats", size),)


def _bind_unpack(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), size = step.inputs, step.outputs, step.attributes["size"]

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = BitImages._trusted(v[x], size).to_float()

    return run


def _check_mask(tensors: Mapping[str, Tensor], name: str, size: int) -> None:
    """A row of words whose set bits are channels."""
    BitTensor(tensors[name].unsqueeze(0), size).validate()


def _check_flip(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    size = positive("size", expect_attributes(step, size=int)["size"])
    _expect_channels(step, registers, "image_bits", size)
    _only(tensors, "mask")
    _check_mask(tensors, "mask", size)
    return (Register("image_bits", size),)


def _only(tensors: Mapping[str, Tensor], *names: str) -> None:
    if tensors.keys() != set(names):
        raise ValueError(f"tensors must be {list(names)}, got {sorted(tensors)}")


def _check_pool(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    """``flip`` holds a row of words whose set bits are channels that take the minimum."""
    attributes = expect_attributes(step, size=int, kernel=list, stride=list, padding=list)
    size = positive("size", attributes["size"])
    _expect_channels(step, registers, "image_bits", size)
    for name, count, least in (("kernel", 2, 1), ("stride", 2, 1), ("padding", 4, 0)):
        values = attributes[name]
        if len(values) != count or not all(type(v) is int and v >= least for v in values):
            raise ValueError(f"{name} must be {count} numbers of at least {least}, got {values}")
    if tensors:
        _only(tensors, "flip")
        _check_mask(tensors, "flip", size)
    return (Register("image_bits", size),)


def _bind_pool(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), a = step.inputs, step.outputs, step.attributes
    numbers = (a["kernel"], a["stride"], a["padding"], tensors.get("flip"))

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _pool_bits(v[x], *numbers)

    return run


def _check_flatten(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    """Rows of all words of an image; ``size`` leaves out at most one bit, of the padding."""
    attributes = expect_attributes(step, channels=int, pixels=int, size=int)
    channels = positive("channels", attributes["channels"])
    bits = positive("pixels", attributes["pixels"]) * words_of(channels) * 32
    _expect_channels(step, registers, "image_bits", channels)
    if attributes["size"] not in (bits, bits - 1):
        raise ValueError(f"size must be {bits} or one less, got {attributes['size']}")
    expect_tensors(tensors, {})
    return (Register("bits", attributes["size"]),)


def _bind_flatten(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), a = step.inputs, step.outputs, step.attributes
    pixels, features = a["pixels"], a["pixels"] * a["channels"]

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        words = v[x]
        if words.size(1) * words.size(2) != pixels:
            found = words.size(1) * words.size(2) * a["channels"]
            raise ValueError(f"the layer behind it takes {features} features, gets {found}")
        v[out] = words.flatten(1)

    return run


def _check_sums(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    expect_attributes(step)
    expect(registers, "sums")
    expect_tensors(tensors, {})
    return (Register("floats", registers[0].size),)


def _bind_sums(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,) = step.inputs, step.outputs

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = v[x].float().permute(0, 3, 1, 2)

    return run


KINDS = (
    StepKind("pack_images", _check_pack, _bind_pack),
    StepKind("unpack_images", _check_unpack, _bind_unpack),
    StepKind("flip_images", _check_flip, bind_flip),
    StepKind("pool_bits", _check_pool, _bind_pool),
    StepKind("flatten_bits", _check_flatten, _bind_flatten),
    StepKind("sums_to_floats", _check_sums, _bind_sums),
)
