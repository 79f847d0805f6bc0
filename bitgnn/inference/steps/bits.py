"""Steps between floats and bits, and those that join two values into bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitTensor
from bitgnn.inference.program import Register, Runner, Step, StepKind
from bitgnn.inference.steps._checks import expect, expect_attributes, expect_tensors, positive
from bitgnn.ops.reference.pack import LEVEL_SLOT

__all__ = ["KINDS", "bind_flip"]

_pack = torch.ops.bitgnn.pack.default
_pack_scaled = torch.ops.bitgnn.pack_scaled.default
_pack_standardized = torch.ops.bitgnn.pack_standardized.default
_pack_levels = torch.ops.bitgnn.pack_levels.default
_unpack = torch.ops.bitgnn.unpack.default
_concat_bbb = torch.ops.bitgnn.concat_bbb.default
_add_bbb = torch.ops.bitgnn.add_bbb.default
_add_bbf = torch.ops.bitgnn.add_bbf.default
_add_ffb = torch.ops.bitgnn.add_ffb.default


def _size(step: Step) -> int:
    return positive("size", expect_attributes(step, size=int)["size"])


def _features(registers: Sequence[Register], size: int) -> None:
    if any(register.size not in (size, None) for register in registers):
        raise ValueError(f"inputs must have {size} features, got {list(registers)}")


def _check_pack(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    size = _size(step)
    expect(registers, "floats")
    _features(registers, size)
    scaled = step.kind == "pack_scaled"
    allowed = ["threshold", "gain"] if scaled else ["threshold"]
    expect_tensors(tensors, dict.fromkeys(allowed, size))
    bits = Register("bits", size)
    return (bits, Register("scale", None)) if scaled else (bits,)


def _bind_pack(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,) = step.inputs, step.outputs
    threshold = tensors.get("threshold")

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _pack(v[x], threshold)

    return run


def _bind_pack_scaled(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out, scale) = step.inputs, step.outputs
    threshold, gain = tensors.get("threshold"), tensors.get("gain")

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out], v[scale] = _pack_scaled(v[x], threshold, gain)

    return run


def _check_pack_standardized(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    attributes = expect_attributes(step, size=int, relu=bool, scaled=bool)
    size = positive("size", attributes["size"])
    expect(registers, "floats")
    _features(registers, size)
    expect_tensors(tensors, {})
    bits = Register("bits", size)
    return (bits, Register("scale", None)) if attributes["scaled"] else (bits,)


def _bind_pack_standardized(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out, *scale) = step.inputs, step.outputs
    relu, scaled = step.attributes["relu"], step.attributes["scaled"]

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out], *means = _pack_standardized(v[x], relu, scaled)
        for register, mean in zip(scale, means, strict=False):
            v[register] = mean

    return run


def _check_pack_levels(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    """``columns`` holds the feature and ``thresholds`` the threshold of each bit.

    Without columns every feature has 16 adjacent bits.
    """
    attributes = expect_attributes(step, size=int, features=int)
    size, features = (positive(name, attributes[name]) for name in ("size", "features"))
    expect(registers, "floats")
    _features(registers, features)
    columns, thresholds = tensors.get("columns"), tensors.get("thresholds")
    if tensors.keys() - {"columns"} != {"thresholds"} or thresholds is None:
        raise ValueError(f"tensors must be columns and thresholds, got {sorted(tensors)}")
    expect_tensors({"thresholds": thresholds}, {"thresholds": size})
    if columns is None:
        if size > LEVEL_SLOT * features:
            raise ValueError(f"size must be at most {LEVEL_SLOT} * {features}, got {size}")
        return (Register("bits", size),)
    if columns.dtype != torch.int64 or list(columns.shape) != [size]:
        raise ValueError(
            f"columns must be int64 [{size}], got {columns.dtype} {list(columns.shape)}"
        )
    if not bool(((columns >= 0) & (columns < features)).all()):
        raise ValueError(f"columns must lie in [0, {features})")
    return (Register("bits", size),)


def _bind_pack_levels(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,) = step.inputs, step.outputs
    columns, thresholds = tensors.get("columns"), tensors["thresholds"]

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _pack_levels(v[x], columns, thresholds, True)

    return run


def _check_unpack(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    size = _size(step)
    expect(registers, "bits")
    _features(registers, size)
    expect_tensors(tensors, {})
    return (Register("floats", size),)


def _bind_unpack(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), size = step.inputs, step.outputs, step.attributes["size"]

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _unpack(v[x], size)

    return run


def _check_flip(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    """``mask`` holds one row of words whose set bits turn features round."""
    size = _size(step)
    expect(registers, "bits")
    _features(registers, size)
    if tensors.keys() != {"mask"}:
        raise ValueError(f"tensors must be ['mask'], got {sorted(tensors)}")
    BitTensor(tensors["mask"].unsqueeze(0), size).validate()
    return (Register("bits", size),)


def bind_flip(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    """The call that turns the channels of ``mask`` round, of rows or of images."""
    (x,), (out,), mask = step.inputs, step.outputs, tensors["mask"]

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = v[x] ^ mask

    return run


def _check_concat(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    attributes = expect_attributes(step, sizes=list)
    sizes = attributes["sizes"]
    if not sizes or not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError(f"sizes must be numbers above 0, got {sizes}")
    if [tuple(register) for register in registers] != [("bits", size) for size in sizes]:
        raise ValueError(f"inputs must be bits of sizes {sizes}, got {list(registers)}")
    expect_tensors(tensors, {})
    return (Register("bits", sum(sizes)),)


def _bind_concat(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (first, *rest), (out,), sizes = step.inputs, step.outputs, step.attributes["sizes"]

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        words, size = v[first], sizes[0]
        for register, more in zip(rest, sizes[1:], strict=True):
            words = _concat_bbb(words, v[register], size, more)
            size += more
        v[out] = words

    return run


def _check_add(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    size = _size(step)
    form = "floats" if step.kind == "add_ffb" else "bits"
    expect(registers, form, form)
    _features(registers, size)
    to_bits = step.kind != "add_bbf"
    expect_tensors(tensors, {"threshold": size} if to_bits else {})
    return (Register("bits" if to_bits else "floats", size),)


def _bind_add(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (a, b), (out,), size = step.inputs, step.outputs, step.attributes["size"]
    threshold = tensors.get("threshold")

    def add_bbb(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _add_bbb(v[a], v[b], size, None, None, threshold)

    def add_bbf(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _add_bbf(v[a], v[b], size)

    def add_ffb(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _add_ffb(v[a], v[b], threshold)

    return {"add_bbb": add_bbb, "add_bbf": add_bbf, "add_ffb": add_ffb}[step.kind]


def _check_add_signs(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    size = _size(step)
    expect(registers, "floats", "bits")
    _features(registers, size)
    expect_tensors(tensors, {"threshold": size, "threshold_below": size})
    return (Register("bits", size),)


def _bind_add_signs(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    """Bits of floats plus a multiple of signs: the signs choose one of two thresholds."""
    (x, signs), (out,) = step.inputs, step.outputs
    above, below = tensors["threshold"], tensors["threshold_below"]

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        with_plus, with_minus = _pack(v[x], above), _pack(v[x], below)
        v[out] = with_minus ^ ((with_minus ^ with_plus) & v[signs])

    return run


KINDS = (
    StepKind("pack", _check_pack, _bind_pack),
    StepKind("pack_scaled", _check_pack, _bind_pack_scaled),
    StepKind("pack_standardized", _check_pack_standardized, _bind_pack_standardized),
    StepKind("pack_levels", _check_pack_levels, _bind_pack_levels),
    StepKind("unpack", _check_unpack, _bind_unpack),
    StepKind("flip", _check_flip, bind_flip),
    StepKind("concat", _check_concat, _bind_concat),
    StepKind("add_bbb", _check_add, _bind_add),
    StepKind("add_bbf", _check_add, _bind_add),
    StepKind("add_ffb", _check_add, _bind_add),
    StepKind("add_fbb", _check_add_signs, _bind_add_signs),
)
