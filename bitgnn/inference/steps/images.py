"""Steps on images: binary convolutions, pools and rows of bits, and what PyTorch computes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitImages
from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.inference.step import Read, Register, StepReader, step_kind
from bitgnn.inference.steps.floats import FloatFunction, function_kinds
from bitgnn.ops import patches
from bitgnn.quantize.images import COLOURS, grey, local_binary_patterns

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

function_kinds(_FUNCTIONS)
_COLOURED = {"grey": (grey, 1), "local_binary_patterns": (local_binary_patterns, COLOURS)}
"""Functions of red, green and blue, and the channels they give."""
ADDS = "conv_add"
OF_PATCHES = "patches_bbb"
FIXED = ("conv_fbb", "conv_fbf", "linear_fbb", "linear_fbf")
"""First layers: their input is rounded to fixed point, not binarised."""
CONVOLUTIONS = ("conv_bbb", "conv_bbf", ADDS, *FIXED)
_WINDOW: dict[str, type | tuple[type, ...]] = {"stride": list, "padding": list, "dilation": list}


@step_kind(*_COLOURED)
def _read_coloured(s: StepReader) -> Read:
    s.has()
    s.reads(("floats", COLOURS))
    function, channels = _COLOURED[s.kind]
    return [Register("floats", channels)], function


@step_kind("flatten")
def _read_flatten(s: StepReader) -> Read:
    size = s.has(size=(int, type(None)))["size"]
    s.reads(("floats", None))

    def flatten(x: Tensor) -> Tensor:
        rows = x.flatten(1)
        if size is not None and rows.size(1) != size:
            raise ValueError(f"the layer behind it takes {size} features, gets {rows.size(1)}")
        return rows

    return [Register("floats", size)], flatten


@step_kind("shortcut")
def _read_shortcut(s: StepReader) -> Read:
    """Every so many pixels of ``[N, C, H, W]``, with zero channels appended."""
    size, out = s.sizes("size", "out", stride=list)
    s.reads(("floats", size))
    if out < size:
        raise ValueError(f"{size} channels cannot become {out}")
    down, right = s.numbers("stride", 2, 1)
    return [Register("floats", out)], lambda x: functional.pad(
        x[:, :, ::down, ::right], (0, 0, 0, 0, 0, out - x.size(1))
    )


@step_kind("float_conv")
def _read_float_conv(s: StepReader) -> Read:
    size, out = s.sizes("size", "out", stride=list, padding=(list, str), dilation=list, groups=int)
    s.reads(("floats", size))
    groups = s.positive("groups")
    weight = s.tensor("weight", torch.float32, out, size // groups, None, None)
    bias = s.vectors(out, "bias").get("bias")
    windows = (s.attributes[name] for name in ("stride", "padding", "dilation"))
    numbers: Any = [part if isinstance(part, str) else tuple(part) for part in windows] + [groups]
    return [Register("floats", out)], lambda x: functional.conv2d(x, weight, bias, *numbers)


@step_kind("pool_bits")
def _read_pool(s: StepReader) -> Read:
    """``flip`` holds a row of words whose set bits are channels that take the minimum."""
    (size,) = s.sizes("size", kernel=list, stride=list, padding=list)
    s.reads(("image_bits", size))
    windows = [s.numbers("kernel", 2, 1), s.numbers("stride", 2, 1), s.numbers("padding", 4, 0)]
    flip = s.channel_mask("flip", size) if s.tensors else None
    return [Register("image_bits", size)], lambda x: _pool_bits(x, *windows, flip)


@step_kind("flatten_bits")
def _read_flatten_bits(s: StepReader) -> Read:
    """Rows of all words of an image; ``size`` leaves out at most one bit, of the padding."""
    channels, pixels, size = s.sizes("channels", "pixels", "size")
    bits = pixels * words_for(channels) * WORD_BITS
    s.reads(("image_bits", channels))
    if size not in (bits, bits - 1):
        raise ValueError(f"size must be {bits} or one less, got {size}")

    def flatten(words: Tensor) -> Tensor:
        found = words.size(1) * words.size(2)
        if found != pixels:
            raise ValueError(
                f"the layer behind it takes {pixels * channels} features, gets {found * channels}"
            )
        return words.flatten(1)

    return [Register("bits", size)], flatten


@step_kind("sums_to_floats")
def _read_sums_to_floats(s: StepReader) -> Read:
    s.has()
    s.reads(("sums", None))
    written = [Register("floats", size) for size in s.input_sizes()]
    return written, lambda x: x.float().permute(0, 3, 1, 2)


def _window(s: StepReader) -> list[list[int]]:
    """Strides, padding of the four sides and dilation."""
    return [s.numbers("stride", 2, 1), s.numbers("padding", 4, 0), s.numbers("dilation", 2, 1)]


def _numbers(s: StepReader, **others: type | tuple[type, ...]) -> tuple[int, int, list[Any]]:
    """Channels and outputs of a convolution, and its numbers: channels, window and groups."""
    size, out = s.sizes("size", "out", **_WINDOW, **others)
    window, groups = _window(s), s.positive("groups", 1)
    if size % groups or out % groups:
        raise ValueError(f"groups must divide {size} channels and {out} outputs, got {groups}")
    return size, out, [size, *window, groups]


def _kernels(s: StepReader, channels: int, out: int) -> tuple[Tensor, Tensor | None]:
    """The packed kernels and what was made of them beforehand."""
    weight = s.take("weight")
    if s.checks:
        BitImages(weight, channels)
        if weight.size(0) != out:
            raise ValueError(f"weight must have {out} kernels, got {weight.size(0)}")
    if "prepared" not in s.tensors:
        return weight, None
    return weight, s.tensor("prepared", torch.int32, out, weight.size(1) * weight.size(2) + 2)


def _last(s: StepReader, out: int, to_bits: bool) -> list[Tensor | None]:
    """Vectors of what becomes of the sums: bits or floats."""
    names = ("threshold", "flip") if to_bits else ("weight_scale", "bias")
    found = s.vectors(out, *names)
    return [found.get(name) for name in names]


@step_kind("conv_bbb", "conv_bbf")
def _read_conv(s: StepReader) -> Read:
    size, out, numbers = _numbers(s, groups=int)
    s.reads(("image_bits", size))
    to_bits = s.kind == "conv_bbb"
    weight, prepared = _kernels(s, size // s.attributes["groups"], out)
    last = _last(s, out, to_bits)
    if to_bits:
        return [Register("image_bits", out)], lambda x: _conv_bbb(
            x, weight, *numbers, None, None, *last, prepared
        )
    return [Register("floats", out)], lambda x: _conv_bbf(
        x, weight, *numbers, *last, False, prepared
    ).permute(0, 3, 1, 2)


@step_kind(ADDS)
def _read_conv_add(s: StepReader) -> Read:
    """Inputs: words and perhaps the sums that are added; writes the sums, their bits, or both."""
    size, out, numbers = _numbers(
        s, groups=int, addend_stride=list, wide=bool, sums=bool, bits=bool
    )
    stride, a = s.numbers("addend_stride", 2, 1), s.attributes
    adds = s.num_inputs > 1
    s.reads(("image_bits", size), *[("sums", None)] * adds)
    if any((size or 0) > out for size in s.input_sizes()[1:]):
        raise ValueError(f"{s.registers[1].size} channels cannot be added to {out}")
    if not (a["sums"] or a["bits"]):
        raise ValueError("it writes neither sums nor bits")
    weight, prepared = _kernels(s, size // a["groups"], out)
    t = s.vectors(out, *["threshold", "flip"] * a["bits"])
    rest = (stride, t.get("threshold"), t.get("flip"), a["wide"], a["sums"], a["bits"], prepared)
    written = [*[Register("sums", out)] * a["sums"], *[Register("image_bits", out)] * a["bits"]]
    if len(written) == 2:
        return written, lambda x, added=None: _conv_add(x, weight, *numbers, added, *rest)
    place = 0 if a["sums"] else 1
    return written, lambda x, added=None: _conv_add(x, weight, *numbers, added, *rest)[place]


@step_kind(*FIXED)
def _read_fixed(s: StepReader) -> Read:
    size, out, (_, *window, _) = _numbers(s, input_step=float)
    s.reads(("floats", size))
    of_rows, to_bits = s.kind.startswith("linear"), s.kind.endswith("fbb")
    weight, prepared = _kernels(s, size, out)
    last = _last(s, out, to_bits)
    if of_rows and list(weight.shape[1:3]) != [1, 1]:
        raise ValueError(f"weight must be of 1 x 1 images, got {list(weight.shape)}")
    step = s.attributes["input_step"]

    def readable(x: Tensor) -> Tensor:
        """Images in a format that the operators read; others are copied."""
        if of_rows:
            x = x.contiguous()[:, :, None, None]
        elif not x.is_contiguous() and not x.is_contiguous(memory_format=torch.channels_last):
            x = x.contiguous()
        # The operators take bytes as multiples of 1; of another step they are floats.
        return x.float() if x.dtype == torch.uint8 and step != 1 else x

    def bits(x: Tensor) -> Tensor:
        words: Tensor = _conv_fbb(readable(x), weight, step, *window, None, None, *last, prepared)
        return words.flatten(1) if of_rows else words

    def floats(x: Tensor) -> Tensor:
        found: Tensor = _conv_fbf(readable(x), weight, step, *window, *last)
        return found.flatten(1) if of_rows else found.permute(0, 3, 1, 2)

    if not to_bits:
        return [Register("floats", out)], floats
    return [Register("bits" if of_rows else "image_bits", out)], bits


def _bits_of_patches(s: StepReader, channels: int) -> int:
    wanted, size = patches.bits_of(channels), s.positive("size")
    if size != wanted:
        raise ValueError(f"size must be {wanted}, got {size}")
    return size


@step_kind("pack_patches")
def _read_pack_patches(s: StepReader) -> Read:
    channels, _ = s.sizes("channels", "size", kernel=list, **_WINDOW)
    size = _bits_of_patches(s, channels)
    windows = [s.numbers("kernel", 2, 1), *_window(s)]
    (high, wide), *_ = windows
    if high * wide > WORD_BITS:
        raise ValueError(f"a kernel must have at most {WORD_BITS} pixels, got {[high, wide]}")
    s.reads(("floats", channels))
    threshold = s.vectors(channels, "threshold").get("threshold")
    return [Register("image_bits", size)], lambda x: _pack_patches(
        x.contiguous(), *windows, threshold
    )


@step_kind(OF_PATCHES)
def _read_product_of_patches(s: StepReader) -> Read:
    channels, taps, out = s.sizes("channels", "taps", "out", size=int)
    size = _bits_of_patches(s, channels)
    if taps > WORD_BITS:
        raise ValueError(f"taps must be 1 to {WORD_BITS}, got {taps}")
    s.reads(("image_bits", size))
    weight, prepared = _kernels(s, size, out)
    if list(weight.shape[1:3]) != [1, 1]:
        raise ValueError(f"weight must be of {out} kernels of 1 x 1, got {list(weight.shape)}")
    t = s.vectors(out, "threshold", "flip", required=["threshold"])
    rest = (size, [1, 1], [0] * 4, [1, 1], 1, None, None, t["threshold"], t.get("flip"), prepared)
    return [Register("image_bits", out)], lambda x: _conv_bbb(x, weight, *rest)
