"""Steps that convolve packed images, their patches or fixed-point images with packed kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitImages
from bitgnn.bits.tensor import WORD_BITS
from bitgnn.inference.program import Apply, Register, Step, StepCheck, StepKind, Tensors
from bitgnn.ops import patches

_conv_bbb = torch.ops.bitgnn.conv_bbb.default
_conv_bbf = torch.ops.bitgnn.conv_bbf.default
_conv_add = torch.ops.bitgnn.conv_add.default
_conv_fbb = torch.ops.bitgnn.conv_fbb.default
_conv_fbf = torch.ops.bitgnn.conv_fbf.default
_pack_patches = torch.ops.bitgnn.pack_patches.default

ADDS = "conv_add"
OF_PATCHES = "patches_bbb"
FIXED = ("conv_fbb", "conv_fbf", "linear_fbb", "linear_fbf")
"""First layers: their input is rounded to fixed point, not binarised."""
CONVOLUTIONS = ("conv_bbb", "conv_bbf", ADDS, *FIXED)
_WINDOW: dict[str, type | tuple[type, ...]] = {"stride": list, "padding": list, "dilation": list}


def _check_window(check: StepCheck) -> None:
    """Strides, padding of the four sides and dilation must be in order."""
    check.numbers("stride", 2, 1)
    check.numbers("padding", 4, 0)
    check.numbers("dilation", 2, 1)


def _check_numbers(check: StepCheck, **others: type | tuple[type, ...]) -> tuple[int, int]:
    """Channels and outputs of a convolution whose numbers are in order."""
    size, out = check.sizes("size", "out", **_WINDOW, **others)
    _check_window(check)
    groups = check.positive("groups", 1)
    if size % groups or out % groups:
        raise ValueError(f"groups must divide {size} channels and {out} outputs, got {groups}")
    return size, out


def _check_weight(check: StepCheck, channels: int, out: int) -> Tensor:
    """Take the packed kernels and what was made of them beforehand."""
    weight = check.tensors.pop("weight", None)
    if weight is None:
        raise ValueError("tensor weight is missing")
    BitImages(weight, channels)
    if weight.size(0) != out:
        raise ValueError(f"weight must have {out} kernels, got {weight.size(0)}")
    if "prepared" in check.tensors:
        check.tensor("prepared", torch.int32, out, weight.size(1) * weight.size(2) + 2)
    return weight


def _check_last(check: StepCheck, out: int, to_bits: bool) -> None:
    """The other tensors belong to what becomes of the sums."""
    check.vectors(out, *(("threshold", "flip") if to_bits else ("weight_scale", "bias")))


def _check(check: StepCheck) -> tuple[Register, ...]:
    size, out = _check_numbers(check, groups=int)
    check.reads(("image_bits", size))
    to_bits = check.kind == "conv_bbb"
    _check_weight(check, size // check.attributes["groups"], out)
    _check_last(check, out, to_bits)
    return (Register("image_bits" if to_bits else "floats", out),)


def _numbers(step: Step) -> tuple[Any, ...]:
    a = step.attributes
    return a["size"], a["stride"], a["padding"], a["dilation"], a["groups"]


def _compared(tensors: Tensors) -> tuple[Tensor | None, ...]:
    return tuple(tensors.get(name) for name in ("threshold", "flip", "prepared"))


def _make(step: Step, tensors: Tensors) -> Apply:
    weight, numbers, compared = tensors["weight"], _numbers(step), _compared(tensors)
    if step.kind == "conv_bbb":
        return lambda x: _conv_bbb(x, weight, *numbers, None, None, *compared)
    last = (tensors.get("weight_scale"), tensors.get("bias"), False, tensors.get("prepared"))
    return lambda x: _conv_bbf(x, weight, *numbers, *last).permute(0, 3, 1, 2)


def _check_add(check: StepCheck) -> tuple[Register, ...]:
    """Inputs: words and perhaps the sums that are added; writes the sums, their bits, or both."""
    size, out = _check_numbers(
        check, groups=int, addend_stride=list, wide=bool, sums=bool, bits=bool
    )
    check.numbers("addend_stride", 2, 1)
    adds = len(check.registers) > 1
    check.reads(("image_bits", size), *[("sums", None)] * adds)
    if adds and (check.registers[1].size or 0) > out:
        raise ValueError(f"{check.registers[1].size} channels cannot be added to {out}")
    sums, bits = check.attributes["sums"], check.attributes["bits"]
    if not (sums or bits):
        raise ValueError("it writes neither sums nor bits")
    _check_weight(check, size // check.attributes["groups"], out)
    check.vectors(out, *["threshold", "flip"] * bits)
    return (*[Register("sums", out)] * sums, *[Register("image_bits", out)] * bits)


def _make_add(step: Step, tensors: Tensors) -> Apply:
    a, weight, numbers = step.attributes, tensors["weight"], _numbers(step)
    threshold, flip, prepared = _compared(tensors)
    rest = (a["addend_stride"], threshold, flip, a["wide"], a["sums"], a["bits"], prepared)
    if a["sums"] and a["bits"]:
        return lambda x, added=None: _conv_add(x, weight, *numbers, added, *rest)
    place = 0 if a["sums"] else 1
    return lambda x, added=None: _conv_add(x, weight, *numbers, added, *rest)[place]


def _check_fixed(check: StepCheck) -> tuple[Register, ...]:
    size, out = _check_numbers(check, input_step=float)
    check.reads(("floats", size))
    of_rows, to_bits = check.kind.startswith("linear"), check.kind.endswith("fbb")
    weight = _check_weight(check, size, out)
    _check_last(check, out, to_bits)
    if of_rows and list(weight.shape[1:3]) != [1, 1]:
        raise ValueError(f"weight must be of 1 x 1 images, got {list(weight.shape)}")
    if not to_bits:
        return (Register("floats", out),)
    return (Register("bits" if of_rows else "image_bits", out),)


def _make_fixed(step: Step, tensors: Tensors) -> Apply:
    a, weight = step.attributes, tensors["weight"]
    numbers = (a["input_step"], a["stride"], a["padding"], a["dilation"])
    last = (tensors.get("weight_scale"), tensors.get("bias"))
    compared, of_rows = _compared(tensors), step.kind.startswith("linear")

    def readable(x: Tensor) -> Tensor:
        """Images in a format that the operators read; others are copied."""
        if of_rows:
            x = x.contiguous()[:, :, None, None]
        elif not x.is_contiguous() and not x.is_contiguous(memory_format=torch.channels_last):
            x = x.contiguous()
        # The operators take bytes as multiples of 1; of another step they are floats.
        return x.float() if x.dtype == torch.uint8 and a["input_step"] != 1 else x

    def to_bits(x: Tensor) -> Tensor:
        bits: Tensor = _conv_fbb(readable(x), weight, *numbers, None, None, *compared)
        return bits.flatten(1) if of_rows else bits

    def to_floats(x: Tensor) -> Tensor:
        floats: Tensor = _conv_fbf(readable(x), weight, *numbers, *last)
        return floats.flatten(1) if of_rows else floats.permute(0, 3, 1, 2)

    return to_bits if step.kind.endswith("fbb") else to_floats


def _check_patches(check: StepCheck, channels: int) -> int:
    """Bits of the patches of images."""
    wanted, size = patches.bits_of(channels), check.positive("size")
    if size != wanted:
        raise ValueError(f"size must be {wanted}, got {size}")
    return size


def _check_pack_patches(check: StepCheck) -> tuple[Register, ...]:
    channels, size = check.sizes("channels", "size", kernel=list, **_WINDOW)
    _check_patches(check, channels)
    _check_window(check)
    check.numbers("kernel", 2, 1)
    kernel = check.attributes["kernel"]
    if kernel[0] * kernel[1] > WORD_BITS:
        raise ValueError(f"a kernel must have at most {WORD_BITS} pixels, got {kernel}")
    check.reads(("floats", channels))
    check.vectors(channels, "threshold")
    return (Register("image_bits", size),)


def _make_pack_patches(step: Step, tensors: Tensors) -> Apply:
    names = ("kernel", "stride", "padding", "dilation")
    numbers = (*(step.attributes[name] for name in names), tensors.get("threshold"))
    return lambda x: _pack_patches(x.contiguous(), *numbers)


def _check_product_of_patches(check: StepCheck) -> tuple[Register, ...]:
    channels, taps, out = check.sizes("channels", "taps", "out", size=int)
    size = _check_patches(check, channels)
    if taps > WORD_BITS:
        raise ValueError(f"taps must be 1 to {WORD_BITS}, got {taps}")
    check.reads(("image_bits", size))
    weight = _check_weight(check, size, out)
    if list(weight.shape[1:3]) != [1, 1]:
        raise ValueError(f"weight must be of {out} kernels of 1 x 1, got {list(weight.shape)}")
    check.vectors(out, "threshold", "flip", required=["threshold"])
    return (Register("image_bits", out),)


def _make_product_of_patches(step: Step, tensors: Tensors) -> Apply:
    weight, compared = tensors["weight"], _compared(tensors)
    numbers = (step.attributes["size"], [1, 1], [0] * 4, [1, 1], 1)
    return lambda x: _conv_bbb(x, weight, *numbers, None, None, *compared)


KINDS = (
    StepKind("conv_bbb", _check, _make),
    StepKind("conv_bbf", _check, _make),
    StepKind(ADDS, _check_add, _make_add),
    *(StepKind(name, _check_fixed, _make_fixed) for name in FIXED),
    StepKind("pack_patches", _check_pack_patches, _make_pack_patches),
    StepKind(OF_PATCHES, _check_product_of_patches, _make_product_of_patches),
)
