"""Steps on images: binary convolutions, pools and rows of bits, and what PyTorch computes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitImages
from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.inference.program import Apply, Form, Register, Step, StepCheck, StepKind, Tensors
from bitgnn.inference.steps.floats import FloatFunction, function_kinds
from bitgnn.ops import patches
from bitgnn.quantize.pixels import COLOURS, grey, local_binary_patterns

_pool_bits = torch.ops.bitgnn.pool_bits.default
_conv_bbb = torch.ops.bitgnn.conv_bbb.default
_conv_bbf = torch.ops.bitgnn.conv_bbf.default
_conv_add = torch.ops.bitgnn.conv_add.default
_conv_fbb = torch.ops.bitgnn.conv_fbb.default
_conv_fbf = torch.ops.bitgnn.conv_fbf.default
_pack_patches = torch.ops.bitgnn.pack_patches.default
_FUNCTIONS = {
    "max_pool": FloatFunction(
        lambda x, t, a: functional.max_pool2d(
            x, a["kernel"], a["stride"], a["padding"], a["dilation"], a["ceil_mode"]
        ),
        attributes={**dict.fromkeys(("kernel", "stride", "padding", "dilation"), list),
                    "ceil_mode": bool},
    ),
    "avg_pool": FloatFunction(
        lambda x, t, a: functional.avg_pool2d(
            x, a["kernel"], a["stride"], a["padding"], a["ceil_mode"], a["count_include_pad"],
            a["divisor"],
        ),
        attributes={**dict.fromkeys(("kernel", "stride", "padding"), list), "ceil_mode": bool,
                    "count_include_pad": bool, "divisor": (int, type(None))},
    ),
    "adaptive_avg_pool": FloatFunction(
        lambda x, t, a: functional.adaptive_avg_pool2d(x, a["output"]), attributes={"output": list}
    ),
    "mean_pixels": FloatFunction(lambda x, t, a: x.mean((2, 3))),
    "to_float": FloatFunction(lambda x, t, a: x.float()),
}  # fmt: skip
"""Functions that keep the number of channels."""


_COLOURED = {"grey": (grey, 1), "local_binary_patterns": (local_binary_patterns, COLOURS)}
"""Functions of red, green and blue, and the channels they give."""


def _check_coloured(check: StepCheck) -> tuple[Register, ...]:
    check.has()
    check.reads(("floats", COLOURS))
    return (Register("floats", _COLOURED[check.kind][1]),)


def _check_flatten(check: StepCheck) -> tuple[Register, ...]:
    size = check.has(size=(int, type(None)))["size"]
    check.reads(("floats", None))
    return (Register("floats", size),)


def _make_flatten(step: Step, tensors: Tensors) -> Apply:
    size = step.attributes["size"]

    def flatten(x: Tensor) -> Tensor:
        rows = x.flatten(1)
        if size is not None and rows.size(1) != size:
            raise ValueError(f"the layer behind it takes {size} features, gets {rows.size(1)}")
        return rows

    return flatten


def _check_shortcut(check: StepCheck) -> tuple[Register, ...]:
    size, out = check.sizes("size", "out", stride=list)
    check.reads(("floats", size))
    if out < size:
        raise ValueError(f"{size} channels cannot become {out}")
    check.numbers("stride", 2, 1)
    return (Register("floats", out),)


def _make_shortcut(step: Step, tensors: Tensors) -> Apply:
    """Every so many pixels of ``[N, C, H, W]``, with zero channels appended."""
    (down, right), out = step.attributes["stride"], step.attributes["out"]
    return lambda x: functional.pad(x[:, :, ::down, ::right], (0, 0, 0, 0, 0, out - x.size(1)))


def _check_float_conv(check: StepCheck) -> tuple[Register, ...]:
    size, out = check.sizes(
        "size", "out", stride=list, padding=(list, str), dilation=list, groups=int
    )
    check.reads(("floats", size))
    check.tensor("weight", torch.float32, out, size // check.positive("groups"), None, None)
    check.vectors(out, "bias")
    return (Register("floats", out),)


def _make_float_conv(step: Step, tensors: Tensors) -> Apply:
    a, weight, bias = step.attributes, tensors["weight"], tensors.get("bias")
    padding = a["padding"] if isinstance(a["padding"], str) else tuple(a["padding"])
    numbers: Any = (tuple(a["stride"]), padding, tuple(a["dilation"]), a["groups"])
    return lambda x: functional.conv2d(x, weight, bias, *numbers)


def _check_pool(check: StepCheck) -> tuple[Register, ...]:
    """``flip`` holds a row of words whose set bits are channels that take the minimum."""
    (size,) = check.sizes("size", kernel=list, stride=list, padding=list)
    check.reads(("image_bits", size))
    for name, count, least in (("kernel", 2, 1), ("stride", 2, 1), ("padding", 4, 0)):
        check.numbers(name, count, least)
    if check.tensors:
        check.channel_mask("flip", size)
    return (Register("image_bits", size),)


def _make_pool(step: Step, tensors: Tensors) -> Apply:
    a = step.attributes
    numbers = (a["kernel"], a["stride"], a["padding"], tensors.get("flip"))
    return lambda x: _pool_bits(x, *numbers)


def _check_flatten_bits(check: StepCheck) -> tuple[Register, ...]:
    """Rows of all words of an image; ``size`` leaves out at most one bit, of the padding."""
    channels, pixels, size = check.sizes("channels", "pixels", "size")
    bits = pixels * words_for(channels) * WORD_BITS
    check.reads(("image_bits", channels))
    if size not in (bits, bits - 1):
        raise ValueError(f"size must be {bits} or one less, got {size}")
    return (Register("bits", size),)


def _make_flatten_bits(step: Step, tensors: Tensors) -> Apply:
    channels, pixels = step.attributes["channels"], step.attributes["pixels"]

    def flatten(words: Tensor) -> Tensor:
        found = words.size(1) * words.size(2)
        if found != pixels:
            raise ValueError(
                f"the layer behind it takes {pixels * channels} features, gets {found * channels}"
            )
        return words.flatten(1)

    return flatten


def _check_sums(check: StepCheck) -> tuple[Register, ...]:
    check.has()
    check.reads(("sums", None))
    return (Register("floats", check.registers[0].size),)


ADDS = "conv_add"
OF_PATCHES = "patches_bbb"
FIXED = ("conv_fbb", "conv_fbf", "linear_fbb", "linear_fbf")
"""First layers: their input is rounded to fixed point, not binarised."""
CONVOLUTIONS = ("conv_bbb", "conv_bbf", ADDS, *FIXED)
_WINDOW: dict[str, type | tuple[type, ...]] = {"stride": list, "padding": list, "dilation": list}
_LAST = (("weight_scale", "bias"), ("threshold", "flip"))
"""Vectors of what becomes of the sums: floats or bits."""


def _check_window(check: StepCheck) -> None:
    """Strides, padding of the four sides and dilation must be in order."""
    for name, count, least in (("stride", 2, 1), ("padding", 4, 0), ("dilation", 2, 1)):
        check.numbers(name, count, least)


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
    weight = check.take("weight")
    BitImages(weight, channels)
    if weight.size(0) != out:
        raise ValueError(f"weight must have {out} kernels, got {weight.size(0)}")
    if "prepared" in check.tensors:
        check.tensor("prepared", torch.int32, out, weight.size(1) * weight.size(2) + 2)
    return weight


def _check_conv(check: StepCheck) -> tuple[Register, ...]:
    size, out = _check_numbers(check, groups=int)
    check.reads(("image_bits", size))
    to_bits = check.kind == "conv_bbb"
    _check_weight(check, size // check.attributes["groups"], out)
    check.vectors(out, *_LAST[to_bits])
    return (Register("image_bits" if to_bits else "floats", out),)


def _numbers(step: Step) -> tuple[Any, ...]:
    return tuple(step.attributes[n] for n in ("size", "stride", "padding", "dilation", "groups"))


def _compared(tensors: Tensors) -> tuple[Tensor | None, ...]:
    return tuple(tensors.get(name) for name in ("threshold", "flip", "prepared"))


def _make_conv(step: Step, tensors: Tensors) -> Apply:
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
    check.vectors(out, *_LAST[to_bits])
    if of_rows and list(weight.shape[1:3]) != [1, 1]:
        raise ValueError(f"weight must be of 1 x 1 images, got {list(weight.shape)}")
    form: Form = "bits" if of_rows else "image_bits"
    return (Register(form if to_bits else "floats", out),)


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
    *function_kinds(_FUNCTIONS),
    *(StepKind(n, _check_coloured, lambda step, _: _COLOURED[step.kind][0]) for n in _COLOURED),
    StepKind("flatten", _check_flatten, _make_flatten),
    StepKind("shortcut", _check_shortcut, _make_shortcut),
    StepKind("float_conv", _check_float_conv, _make_float_conv),
    StepKind("pool_bits", _check_pool, _make_pool),
    StepKind("flatten_bits", _check_flatten_bits, _make_flatten_bits),
    StepKind("sums_to_floats", _check_sums, lambda *_: lambda x: x.float().permute(0, 3, 1, 2)),
    *(StepKind(name, _check_conv, _make_conv) for name in ("conv_bbb", "conv_bbf")),
    StepKind(ADDS, _check_add, _make_add),
    *(StepKind(name, _check_fixed, _make_fixed) for name in FIXED),
    StepKind("pack_patches", _check_pack_patches, _make_pack_patches),
    StepKind(OF_PATCHES, _check_product_of_patches, _make_product_of_patches),
)
