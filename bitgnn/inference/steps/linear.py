"""The step that multiplies packed activations by float weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.inference.program import Register, Runner, Step, StepKind
from bitgnn.inference.steps._checks import expect, expect_attributes, expect_tensors, positive
from bitgnn.inference.steps.layouts import words_of
from bitgnn.ops.linear import MOST_FEATURES

__all__ = ["KINDS"]

_bits_linear = torch.ops.bitgnn.bits_linear.default


def _check(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    """Inputs: words, their row scale if ``scaled``, and the addend if ``adds``."""
    attributes = expect_attributes(step, size=int, out=int, scaled=bool, adds=bool)
    size, out = positive("size", attributes["size"]), positive("out", attributes["out"])
    if size > MOST_FEATURES:
        raise ValueError(f"size must be at most {MOST_FEATURES}, got {size}")
    expect(registers, "bits", *["scale"] * attributes["scaled"], *["floats"] * attributes["adds"])
    if registers[0].size != size or (attributes["adds"] and registers[-1].size not in (out, None)):
        raise ValueError(f"inputs must have {size} (and {out}) features, got {list(registers)}")
    own = dict(tensors)
    digits, expected = own.pop("digits", None), [3, out, words_of(size), 8, 4]
    if digits is None or digits.dtype != torch.int8 or list(digits.shape) != expected:
        found = None if digits is None else f"{digits.dtype} {list(digits.shape)}"
        raise ValueError(f"digits must be int8 {expected}, got {found}")
    expect_tensors(own, {"step": out, "bias": out}, None, ["step"])
    return (Register("floats", out),)


def _bind(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    x, *rest = step.inputs
    (out,), size = step.outputs, step.attributes["size"]
    digits, unit, bias = tensors["digits"], tensors["step"], tensors.get("bias")
    scale = rest[0] if step.attributes["scaled"] else None
    addend = rest[-1] if step.attributes["adds"] else None

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        x_scale = None if scale is None else v[scale]
        added = None if addend is None else v[addend]
        v[out] = _bits_linear(v[x], digits, unit, size, x_scale, bias, added)

    return run


KINDS = (StepKind("bits_linear", _check, _bind),)
