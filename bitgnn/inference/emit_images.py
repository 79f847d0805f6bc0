"""Writes the calls of networks of images: binary convolutions, pools and rows of bits."""

from __future__ import annotations

from bitgnn.inference.emit import Emitter, Result, Wanted, emits
from bitgnn.inference.program import Register
from bitgnn.quantize.images import COLOURS

TO_CHANNELS_FIRST = [0, 3, 1, 2]
POINT = ([1, 1], [0] * 4, [1, 1])
"""Stride, padding and dilation of a kernel of one pixel."""


def _bits(size: int) -> Register:
    return Register("image_bits", size)


def _floats(size: int) -> Register:
    return Register("floats", size)


def _window(s: Wanted) -> list[list[int]]:
    return [s.a[name] for name in ("stride", "padding", "dilation")]


@emits("pack_images")
def _pack(e: Emitter, s: Wanted) -> Result:
    return e.op("pack_images", s.x[0], s.t("threshold"), gives=_bits(s.a["size"]))


@emits("unpack_images")
def _unpack(e: Emitter, s: Wanted) -> Result:
    return e.op("float::unpack_images", s.x[0], s.a["size"], gives=_floats(s.a["size"]))


@emits("grey", "local_binary_patterns")
def _coloured(e: Emitter, s: Wanted) -> Result:
    channels = 1 if s.kind == "grey" else COLOURS
    return e.op(f"float::{s.kind}", s.x[0], gives=_floats(channels))


@emits("flatten")
def _flatten(e: Emitter, s: Wanted) -> Result:
    size = s.a["size"]
    return e.op("float::flatten", s.x[0], size, gives=Register("floats", size))


@emits("flatten_bits")
def _flatten_bits(e: Emitter, s: Wanted) -> Result:
    """Rows of all words of an image; ``size`` leaves out at most one bit, of the padding."""
    given = [s.x[0], s.a["channels"], s.a["pixels"]]
    return e.op("float::flatten_bits", *given, gives=Register("bits", s.a["size"]))


@emits("shortcut")
def _shortcut(e: Emitter, s: Wanted) -> Result:
    given = [s.x[0], s.a["stride"], s.a["out"]]
    return e.op("float::shortcut", *given, gives=_floats(s.a["out"]))


@emits("float_conv")
def _float_conv(e: Emitter, s: Wanted) -> Result:
    name = "conv2d.padding" if isinstance(s.a["padding"], str) else "conv2d"
    given = [s.x[0], s.t("weight"), s.t("bias"), *_window(s), s.a["groups"]]
    return e.op(f"aten::{name}", *given, gives=_floats(s.a["out"]))


@emits("pool_bits")
def _pool(e: Emitter, s: Wanted) -> Result:
    """``flip`` holds a row of words whose set bits are channels that take the minimum."""
    windows = [s.a[name] for name in ("kernel", "stride", "padding")]
    return e.op("pool_bits", s.x[0], *windows, s.t("flip"), gives=_bits(s.a["size"]))


@emits("sums_to_floats")
def _sums_to_floats(e: Emitter, s: Wanted) -> Result:
    sums = e.registers[s.x[0].register]
    return e.op("float::channels_first", s.x[0], gives=Register("floats", sums.size))


@emits("conv_bbb", "conv_bbf")
def _conv(e: Emitter, s: Wanted) -> Result:
    out = s.a["out"]
    given = [s.x[0], s.t("weight"), s.a["size"], *_window(s), s.a["groups"]]
    if s.kind == "conv_bbb":
        last = [None, None, s.t("threshold"), s.t("flip"), s.t("prepared")]
        return e.op("conv_bbb", *given, *last, gives=_bits(out))
    last = [s.t("weight_scale"), s.t("bias"), False, s.t("prepared")]
    found = e.op("conv_bbf", *given, *last, gives=Register("pixels", out))
    return e.op("aten::permute", found, TO_CHANNELS_FIRST, gives=_floats(out))


@emits("conv_add")
def _conv_add(e: Emitter, s: Wanted) -> Result:
    """Inputs: words and perhaps the sums that are added; writes the sums, their bits, or both."""
    (words, *addend), a = s.x, s.a
    sums, bits = e.op(
        "conv_add", words, s.t("weight"), a["size"], *_window(s), a["groups"], *(addend or [None]),
        a["addend_stride"], s.t("threshold"), s.t("flip"), a["wide"], a["sums"], a["bits"],
        s.t("prepared"), gives=[
            Register("sums" if a["sums"] else "unused", a["out"]),
            Register("image_bits" if a["bits"] else "unused", a["out"]),
        ],
    )  # fmt: skip
    return [*[sums] * a["sums"], *[bits] * a["bits"]]


@emits("conv_fbb", "conv_fbf", "linear_fbb", "linear_fbf")
def _fixed(e: Emitter, s: Wanted) -> Result:
    """First layers: their input is rounded to fixed point, not binarised."""
    out, step = s.a["out"], s.a["input_step"]
    of_rows, to_bits = s.kind.startswith("linear"), s.kind.endswith("fbb")
    x = e.op("float::readable", s.x[0], step, gives=_floats(s.a["size"]))
    given = [x, s.t("weight"), step, *_window(s)]
    if to_bits:
        last = [None, None, s.t("threshold"), s.t("flip"), s.t("prepared")]
        found = e.op("conv_fbb", *given, *last, gives=_bits(out))
        row = Register("bits", out)
        return e.op("float::flatten_bits", found, out, 1, gives=row) if of_rows else found
    last = [s.t("weight_scale"), s.t("bias")]
    found = e.op("conv_fbf", *given, *last, gives=Register("pixels", out))
    if of_rows:
        return e.op("float::flatten", found, out, gives=_floats(out))
    return e.op("aten::permute", found, TO_CHANNELS_FIRST, gives=_floats(out))


@emits("pack_patches")
def _pack_patches(e: Emitter, s: Wanted) -> Result:
    x = e.op("aten::contiguous", s.x[0], gives=e.registers[s.x[0].register])
    given = [x, s.a["kernel"], *_window(s), s.t("threshold")]
    return e.op("pack_patches", *given, gives=_bits(s.a["size"]))


@emits("patches_bbb")
def _product_of_patches(e: Emitter, s: Wanted) -> Result:
    last = [1, None, None, s.t("threshold"), s.t("flip"), s.t("prepared")]
    given = [s.x[0], s.t("weight"), s.a["size"], *POINT, *last]
    return e.op("conv_bbb", *given, gives=_bits(s.a["out"]))
