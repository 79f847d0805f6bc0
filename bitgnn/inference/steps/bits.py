"""Steps between floats and bits of rows or images, and those that join two values into bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitImages
from bitgnn.inference.program import Apply, Form, Register, Step, StepCheck, StepKind, Tensors
from bitgnn.ops.reference.pack import LEVEL_SLOT

# Bound once: resolving an overload by name costs as much as a small kernel.
_pack = torch.ops.bitgnn.pack.default
_pack_images = torch.ops.bitgnn.pack_images.default
_pack_scaled = torch.ops.bitgnn.pack_scaled.default
_pack_standardized = torch.ops.bitgnn.pack_standardized.default
_pack_levels = torch.ops.bitgnn.pack_levels.default
_unpack = torch.ops.bitgnn.unpack.default
_concat_bbb = torch.ops.bitgnn.concat_bbb.default
_add_bbb = torch.ops.bitgnn.add_bbb.default
_add_bbf = torch.ops.bitgnn.add_bbf.default
_add_ffb = torch.ops.bitgnn.add_ffb.default


def _bits_of(kind: str) -> Form:
    return "image_bits" if kind.endswith("_images") else "bits"


def _check_pack(check: StepCheck) -> tuple[Register, ...]:
    (size,) = check.sizes("size")
    check.reads(("floats", size))
    scaled = check.kind == "pack_scaled"
    check.vectors(size, "threshold", *["gain"] * scaled)
    return (Register(_bits_of(check.kind), size), *[Register("scale", None)] * scaled)


def _make_pack(step: Step, tensors: Tensors) -> Apply:
    threshold, gain = tensors.get("threshold"), tensors.get("gain")
    if step.kind == "pack_scaled":
        return lambda x: _pack_scaled(x, threshold, gain)
    pack = _pack if step.kind == "pack" else _pack_images
    return lambda x: pack(x, threshold)


def _check_pack_standardized(check: StepCheck) -> tuple[Register, ...]:
    (size,) = check.sizes("size", relu=bool, scaled=bool)
    check.reads(("floats", size))
    return (Register("bits", size), *[Register("scale", None)] * check.attributes["scaled"])


def _make_pack_standardized(step: Step, tensors: Tensors) -> Apply:
    relu = step.attributes["relu"]
    if step.attributes["scaled"]:
        return lambda x: _pack_standardized(x, relu, True)
    return lambda x: _pack_standardized(x, relu, False)[0]


def _check_pack_levels(check: StepCheck) -> tuple[Register, ...]:
    """``columns`` holds the feature and ``thresholds`` the threshold of each bit.

    Without columns every feature has 16 adjacent bits.
    """
    size, features = check.sizes("size", "features")
    check.reads(("floats", features))
    check.tensor("thresholds", torch.float32, size)
    if "columns" in check.tensors:
        columns = check.tensor("columns", torch.int64, size)
        if not bool(((columns >= 0) & (columns < features)).all()):
            raise ValueError(f"columns must lie in [0, {features})")
    elif size > LEVEL_SLOT * features:
        raise ValueError(f"size must be at most {LEVEL_SLOT} * {features}, got {size}")
    return (Register("bits", size),)


def _make_pack_levels(step: Step, tensors: Tensors) -> Apply:
    columns, thresholds = tensors.get("columns"), tensors["thresholds"]
    return lambda x: _pack_levels(x, columns, thresholds, True)


def _check_unpack(check: StepCheck) -> tuple[Register, ...]:
    (size,) = check.sizes("size")
    check.reads((_bits_of(check.kind), size))
    return (Register("floats", size),)


def _make_unpack(step: Step, tensors: Tensors) -> Apply:
    size = step.attributes["size"]
    if step.kind == "unpack":
        return lambda x: _unpack(x, size)
    return lambda x: BitImages._trusted(x, size).to_float()


def _check_flip(check: StepCheck) -> tuple[Register, ...]:
    """``mask`` holds one row of words whose set bits turn features round."""
    (size,) = check.sizes("size")
    check.reads((_bits_of(check.kind), size))
    check.channel_mask("mask", size)
    return (Register(_bits_of(check.kind), size),)


def _make_flip(step: Step, tensors: Tensors) -> Apply:
    mask = tensors["mask"]
    return lambda x: x ^ mask


def _check_concat(check: StepCheck) -> tuple[Register, ...]:
    sizes = check.has(sizes=list)["sizes"]
    if not sizes or not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError(f"sizes must be numbers above 0, got {sizes}")
    check.reads(*(("bits", size) for size in sizes))
    return (Register("bits", sum(sizes)),)


def _make_concat(step: Step, tensors: Tensors) -> Apply:
    first, *rest = step.attributes["sizes"]

    def concat(words: Tensor, *others: Tensor) -> Any:
        size = first
        for other, more in zip(others, rest, strict=True):
            words = _concat_bbb(words, other, size, more)
            size += more
        return words

    return concat


def _check_add(check: StepCheck) -> tuple[Register, ...]:
    (size,) = check.sizes("size")
    form: Form = "floats" if check.kind == "add_ffb" else "bits"
    check.reads((form, size), (form, size))
    to_bits = check.kind != "add_bbf"
    check.vectors(size, *["threshold"] * to_bits)
    return (Register("bits" if to_bits else "floats", size),)


def _make_add(step: Step, tensors: Tensors) -> Apply:
    size, threshold = step.attributes["size"], tensors.get("threshold")
    if step.kind == "add_bbb":
        return lambda a, b: _add_bbb(a, b, size, None, None, threshold)
    if step.kind == "add_bbf":
        return lambda a, b: _add_bbf(a, b, size)
    return lambda a, b: _add_ffb(a, b, threshold)


def _check_add_signs(check: StepCheck) -> tuple[Register, ...]:
    (size,) = check.sizes("size")
    check.reads(("floats", size), ("bits", size))
    check.vectors(size, "threshold", "threshold_below")
    return (Register("bits", size),)


def _make_add_signs(step: Step, tensors: Tensors) -> Apply:
    """Bits of floats plus a multiple of signs: the signs choose one of two thresholds."""
    above, below = tensors["threshold"], tensors["threshold_below"]

    def add_signs(x: Tensor, signs: Tensor) -> Any:
        with_plus, with_minus = _pack(x, above), _pack(x, below)
        return with_minus ^ ((with_minus ^ with_plus) & signs)

    return add_signs


KINDS = (
    *(StepKind(name, _check_pack, _make_pack) for name in ("pack", "pack_images", "pack_scaled")),
    StepKind("pack_standardized", _check_pack_standardized, _make_pack_standardized),
    StepKind("pack_levels", _check_pack_levels, _make_pack_levels),
    *(StepKind(name, _check_unpack, _make_unpack) for name in ("unpack", "unpack_images")),
    *(StepKind(name, _check_flip, _make_flip) for name in ("flip", "flip_images")),
    StepKind("concat", _check_concat, _make_concat),
    *(StepKind(name, _check_add, _make_add) for name in ("add_bbb", "add_bbf", "add_ffb")),
    StepKind("add_fbb", _check_add_signs, _make_add_signs),
)
