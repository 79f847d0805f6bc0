"""Steps between floats and bits of rows or images, and those that join two values into bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitImages
from bitgnn.inference.step import Form, Read, Register, StepReader, step_kind

# Bound once: resolving an overload by name costs as much as a small kernel.
_pack = torch.ops.bitgnn.pack.default
_pack_images = torch.ops.bitgnn.pack_images.default
_pack_scaled = torch.ops.bitgnn.pack_scaled.default
_pack_standardized = torch.ops.bitgnn.pack_standardized.default
_unpack = torch.ops.bitgnn.unpack.default
_concat_bbb = torch.ops.bitgnn.concat_bbb.default
_add_bbb = torch.ops.bitgnn.add_bbb.default
_add_bbf = torch.ops.bitgnn.add_bbf.default
_add_ffb = torch.ops.bitgnn.add_ffb.default


def _bits_of(kind: str) -> Form:
    return "image_bits" if kind.endswith("_images") else "bits"


@step_kind("pack", "pack_images")
def _read_pack(s: StepReader) -> Read:
    (size,) = s.sizes("size")
    s.reads(("floats", size))
    threshold = s.vectors(size, "threshold").get("threshold")
    pack = _pack if s.kind == "pack" else _pack_images
    return [Register(_bits_of(s.kind), size)], lambda x: pack(x, threshold)


@step_kind("pack_scaled")
def _read_pack_scaled(s: StepReader) -> Read:
    (size,) = s.sizes("size")
    s.reads(("floats", size))
    t = s.vectors(size, "threshold", "gain")
    threshold, gain = t.get("threshold"), t.get("gain")
    written = [Register("bits", size), Register("scale", None)]
    return written, lambda x: _pack_scaled(x, threshold, gain)


@step_kind("pack_standardized")
def _read_pack_standardized(s: StepReader) -> Read:
    (size,) = s.sizes("size", relu=bool, scaled=bool)
    s.reads(("floats", size))
    relu, bits = s.attributes["relu"], Register("bits", size)
    if s.attributes["scaled"]:
        return [bits, Register("scale", None)], lambda x: _pack_standardized(x, relu, True)
    return [bits], lambda x: _pack_standardized(x, relu, False)[0]


@step_kind("unpack", "unpack_images")
def _read_unpack(s: StepReader) -> Read:
    (size,) = s.sizes("size")
    s.reads((_bits_of(s.kind), size))
    if s.kind == "unpack":
        return [Register("floats", size)], lambda x: _unpack(x, size)
    return [Register("floats", size)], lambda x: BitImages._trusted(x, size).to_float()


@step_kind("flip", "flip_images")
def _read_flip(s: StepReader) -> Read:
    """``mask`` holds one row of words whose set bits turn features round."""
    (size,) = s.sizes("size")
    s.reads((_bits_of(s.kind), size))
    mask = s.channel_mask("mask", size)
    return [Register(_bits_of(s.kind), size)], lambda x: x ^ mask


@step_kind("concat")
def _read_concat(s: StepReader) -> Read:
    sizes = s.has(sizes=list)["sizes"]
    if not sizes or not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError(f"sizes must be numbers above 0, got {sizes}")
    s.reads(*(("bits", size) for size in sizes))
    first, *rest = sizes

    def concat(words: Tensor, *others: Tensor) -> Any:
        size = first
        for other, more in zip(others, rest, strict=True):
            words = _concat_bbb(words, other, size, more)
            size += more
        return words

    return [Register("bits", sum(sizes))], concat


@step_kind("add_bbb", "add_bbf", "add_ffb")
def _read_add(s: StepReader) -> Read:
    (size,) = s.sizes("size")
    form: Form = "floats" if s.kind == "add_ffb" else "bits"
    s.reads((form, size), (form, size))
    if s.kind == "add_bbf":
        return [Register("floats", size)], lambda a, b: _add_bbf(a, b, size)
    threshold = s.vectors(size, "threshold").get("threshold")
    if s.kind == "add_bbb":
        return [Register("bits", size)], lambda a, b: _add_bbb(a, b, size, None, None, threshold)
    return [Register("bits", size)], lambda a, b: _add_ffb(a, b, threshold)


@step_kind("add_fbb")
def _read_add_signs(s: StepReader) -> Read:
    """Bits of floats plus a multiple of signs: the signs choose one of two thresholds."""
    (size,) = s.sizes("size")
    s.reads(("floats", size), ("bits", size))
    names = ("threshold", "threshold_below")
    t = s.vectors(size, *names, required=names)
    above, below = t["threshold"], t["threshold_below"]

    def add_signs(x: Tensor, signs: Tensor) -> Any:
        with_plus, with_minus = _pack(x, above), _pack(x, below)
        return with_minus ^ ((with_minus ^ with_plus) & signs)

    return [Register("bits", size)], add_signs
