"""Steps that convolve packed or fixed-point images with packed kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitImages
from bitgnn.inference.program import Register, Runner, Step, StepKind
from bitgnn.inference.steps._checks import expect, expect_attributes, expect_tensors, positive

__all__ = ["ADDS", "CONVOLUTIONS", "FIXED", "KINDS", "check_prepared", "expect_numbers"]

_conv_bbb = torch.ops.bitgnn.conv_bbb.default
_conv_bbf = torch.ops.bitgnn.conv_bbf.default
_conv_add = torch.ops.bitgnn.conv_add.default
_conv_fbb = torch.ops.bitgnn.conv_fbb.default
_conv_fbf = torch.ops.bitgnn.conv_fbf.default

ADDS = "conv_add"
FIXED = ("conv_fbb", "conv_fbf", "linear_fbb", "linear_fbf")
"""First layers: their input is rounded to fixed point, not binarised."""
CONVOLUTIONS = ("conv_bbb", "conv_bbf", ADDS, *FIXED)

Numbers = tuple[list[int], list[int], list[int]]

_NUMBERS: dict[str, type | tuple[type, ...]] = {
    "size": int, "out": int, "stride": list, "padding": list, "dilation": list, "groups": int,
}  # fmt: skip
_FIXED_NUMBERS: dict[str, type | tuple[type, ...]] = {
    "size": int, "out": int, "stride": list, "padding": list, "dilation": list, "input_step": float,
}  # fmt: skip
_PADDED_SIDES = 4


def _vector(attributes: Mapping[str, Any], name: str, length: int, least: int) -> None:
    values = attributes[name]
    if len(values) != length or not all(type(v) is int and v >= least for v in values):
        raise ValueError(f"{name} must be {length} numbers of at least {least}, got {values}")


def expect_numbers(attributes: Mapping[str, Any]) -> None:
    """Strides, padding of the four sides and dilation must be in order."""
    _vector(attributes, "stride", 2, 1)
    _vector(attributes, "padding", _PADDED_SIDES, 0)
    _vector(attributes, "dilation", 2, 1)


def check_prepared(prepared: Tensor | None, out: int, taps: int) -> None:
    """What was made of the weights beforehand, if it was."""
    columns = taps + 2
    if prepared is not None and (
        prepared.dtype != torch.int32 or list(prepared.shape) != [out, columns]
    ):
        raise ValueError(
            f"prepared must be torch.int32 [{out}, {columns}], got {prepared.dtype} "
            f"{list(prepared.shape)}"
        )


def _check_numbers(attributes: Mapping[str, Any]) -> tuple[int, int]:
    """Channels and outputs of a convolution whose numbers are in order."""
    expect_numbers(attributes)
    size, out = positive("size", attributes["size"]), positive("out", attributes["out"])
    groups = positive("groups", attributes.get("groups", 1))
    if size % groups or out % groups:
        raise ValueError(f"groups must divide {size} channels and {out} outputs, got {groups}")
    return size, out


def _check_weight(
    tensors: Mapping[str, Tensor], channels: int, out: int, allowed: Sequence[str]
) -> None:
    """The packed kernels, what was made of them beforehand, and vectors of the outputs."""
    own = dict(tensors)
    weight, prepared = own.pop("weight", None), own.pop("prepared", None)
    if weight is None:
        raise ValueError("tensor weight is missing")
    BitImages(weight, channels)
    if weight.size(0) != out:
        raise ValueError(f"weight must have {out} kernels, got {weight.size(0)}")
    check_prepared(prepared, out, weight.size(1) * weight.size(2))
    expect_tensors(own, dict.fromkeys(allowed, out), {"flip": torch.bool})


def _check(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    attributes = expect_attributes(step, **_NUMBERS)
    size, out = _check_numbers(attributes)
    expect(registers, "image_bits")
    if registers[0].size != size:
        raise ValueError(f"the input must have {size} channels, got {registers[0].size}")
    to_bits = step.kind == "conv_bbb"
    allowed = ["threshold", "flip"] if to_bits else ["weight_scale", "bias"]
    _check_weight(tensors, size // attributes["groups"], out, allowed)
    return (Register("image_bits" if to_bits else "floats", out),)


def _numbers(attributes: Mapping[str, Any]) -> Numbers:
    return attributes["stride"], attributes["padding"], attributes["dilation"]


def _bind_bits(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), a = step.inputs, step.outputs, step.attributes
    weight, numbers = tensors["weight"], (a["size"], *_numbers(a), a["groups"])
    threshold, flip, prepared = (tensors.get(n) for n in ("threshold", "flip", "prepared"))

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _conv_bbb(v[x], weight, *numbers, None, None, threshold, flip, prepared)

    return run


def _bind_floats(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), a = step.inputs, step.outputs, step.attributes
    weight, numbers = tensors["weight"], (a["size"], *_numbers(a), a["groups"])
    scale, bias, prepared = (tensors.get(n) for n in ("weight_scale", "bias", "prepared"))

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        result = _conv_bbf(v[x], weight, *numbers, scale, bias, False, prepared)
        v[out] = result.permute(0, 3, 1, 2)

    return run


def _check_add(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    """Inputs: words and perhaps the sums that are added; writes the sums, their bits, or both."""
    attributes = expect_attributes(
        step, **_NUMBERS, addend_stride=list, wide=bool, sums=bool, bits=bool
    )
    size, out = _check_numbers(attributes)
    _vector(attributes, "addend_stride", 2, 1)
    expect(registers, *["image_bits", "sums"][: max(1, len(registers))])
    if registers[0].size != size:
        raise ValueError(f"the input must have {size} channels, got {registers[0].size}")
    if len(registers) > 1 and not (registers[1].size or 0) <= out:
        raise ValueError(f"{registers[1].size} channels cannot be added to {out}")
    if not (attributes["sums"] or attributes["bits"]):
        raise ValueError("it writes neither sums nor bits")
    allowed = ["threshold", "flip"] if attributes["bits"] else []
    _check_weight(tensors, size // attributes["groups"], out, allowed)
    written = [Register("sums", out)] * attributes["sums"]
    return (*written, *[Register("image_bits", out)] * attributes["bits"])


def _bind_add(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    x, *addends = step.inputs
    a, outputs = step.attributes, step.outputs
    addend = addends[0] if addends else None
    weight, numbers = tensors["weight"], (a["size"], *_numbers(a), a["groups"])
    threshold, flip, prepared = (tensors.get(n) for n in ("threshold", "flip", "prepared"))
    rest = (a["addend_stride"], threshold, flip, a["wide"], a["sums"], a["bits"], prepared)
    wanted = (a["sums"], a["bits"])

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        added = None if addend is None else v[addend]
        sums, bits = _conv_add(v[x], weight, *numbers, added, *rest)
        if wanted == (True, True):
            v[outputs[0]], v[outputs[1]] = sums, bits
        else:
            v[outputs[0]] = sums if wanted[0] else bits

    return run


def _check_fixed(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    attributes = expect_attributes(step, **_FIXED_NUMBERS)
    size, out = _check_numbers(attributes)
    expect(registers, "floats")
    if registers[0].size not in (size, None):
        raise ValueError(f"the input must have {size} channels, got {registers[0].size}")
    of_rows, to_bits = step.kind.startswith("linear"), step.kind.endswith("fbb")
    allowed = ["threshold", "flip"] if to_bits else ["weight_scale", "bias"]
    _check_weight(tensors, size, out, allowed)
    if of_rows and list(tensors["weight"].shape[1:3]) != [1, 1]:
        raise ValueError(f"weight must be of 1 x 1 images, got {list(tensors['weight'].shape)}")
    if not to_bits:
        return (Register("floats", out),)
    return (Register("bits" if of_rows else "image_bits", out),)


def _in_place(x: Tensor) -> Tensor:
    """Images in a format that the operators read; others are copied."""
    if x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last):
        return x
    return x.contiguous()


def _bind_fixed(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), a = step.inputs, step.outputs, step.attributes
    weight, numbers = tensors["weight"], (a["input_step"], *_numbers(a))
    names = ("threshold", "flip") if step.kind.endswith("fbb") else ("weight_scale", "bias")
    first, second, prepared = (tensors.get(name) for name in (*names, "prepared"))

    def readable(images: Tensor) -> Tensor:
        # The operators take bytes as multiples of 1; of another step they are floats.
        is_of_bytes = images.dtype == torch.uint8 and a["input_step"] != 1
        return images.float() if is_of_bytes else images

    def to_bits(images: Tensor) -> Tensor:
        images = readable(images)
        result: Tensor = _conv_fbb(images, weight, *numbers, None, None, first, second, prepared)
        return result

    def to_floats(images: Tensor) -> Tensor:
        result: Tensor = _conv_fbf(readable(images), weight, *numbers, first, second)
        return result

    def image_bits(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = to_bits(_in_place(v[x]))

    def image_floats(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = to_floats(_in_place(v[x])).permute(0, 3, 1, 2)

    def row_bits(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = to_bits(v[x].contiguous()[:, :, None, None]).flatten(1)

    def row_floats(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = to_floats(v[x].contiguous()[:, :, None, None]).flatten(1)

    runners: dict[str, Callable[[list[Any], Sequence[Any]], None]] = {
        "conv_fbb": image_bits,
        "conv_fbf": image_floats,
        "linear_fbb": row_bits,
        "linear_fbf": row_floats,
    }
    return runners[step.kind]


KINDS = (
    StepKind("conv_bbb", _check, _bind_bits),
    StepKind("conv_bbf", _check, _bind_floats),
    StepKind(ADDS, _check_add, _bind_add),
    *(StepKind(name, _check_fixed, _bind_fixed) for name in FIXED),
)
