"""Steps that aggregate neighbours: bits or floats, over a pattern or over float weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.inference.program import Register, Runner, Step, StepKind
from bitgnn.inference.steps._checks import expect, expect_attributes, expect_tensors, positive
from bitgnn.inference.steps.layouts import bind_bits_aggregation

__all__ = ["KINDS"]

_bspmm_fbb = torch.ops.bitgnn.bspmm_fbb.default
_bspmm_fbf = torch.ops.bitgnn.bspmm_fbf.default
_bspmm_bfb = torch.ops.bitgnn.bspmm_bfb.default
_bspmm_bff = torch.ops.bitgnn.bspmm_bff.default
_bspmm_ffb = torch.ops.bitgnn.bspmm_ffb.default
_bspmm_fff = torch.ops.bitgnn.bspmm_fff.default


def _check(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    """One input; ``threshold`` where the output letter is B, else ``bias``."""
    size = positive("size", expect_attributes(step, size=int)["size"])
    letters = step.kind.removeprefix("bspmm_")
    expect(registers, "bits" if letters[0] == "b" else "floats")
    if registers[0].size not in (size, None):
        raise ValueError(f"the input must have {size} features, got {registers[0].size}")
    to_bits = letters[2] == "b"
    expect_tensors(tensors, {"threshold" if to_bits else "bias": size})
    return (Register("bits" if to_bits else "floats", size),)


def _graph(step: Step) -> int:
    assert step.graph is not None, "Program.check requires it"
    return step.graph


def _bind_bits_over_pattern(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), graph = step.inputs, step.outputs, _graph(step)
    last = tensors.get("threshold", tensors.get("bias"))
    aggregate = bind_bits_aggregation(step.kind == "bspmm_bbb", step.attributes["size"], last)

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = aggregate(v[x], graphs[graph])

    return run


def _bind_floats_over_pattern(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), graph = step.inputs, step.outputs, _graph(step)
    operator = _bspmm_fbb if step.kind == "bspmm_fbb" else _bspmm_fbf
    last = tensors.get("threshold", tensors.get("bias"))

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        a = graphs[graph]
        v[out] = operator(v[x], a.rowptr, a.indices, a.row_scale, a.col_scale, last, trusted=True)

    return run


def _bind_bits_over_values(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), graph = step.inputs, step.outputs, _graph(step)
    size = step.attributes["size"]
    operator = _bspmm_bfb if step.kind == "bspmm_bfb" else _bspmm_bff
    last = tensors.get("threshold", tensors.get("bias"))

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        a = graphs[graph]
        v[out] = operator(v[x], size, a.rowptr, a.indices, a.values, None, last, trusted=True)

    return run


def _bind_floats_over_values(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), graph = step.inputs, step.outputs, _graph(step)
    operator = _bspmm_ffb if step.kind == "bspmm_ffb" else _bspmm_fff
    last = tensors.get("threshold", tensors.get("bias"))

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        a = graphs[graph]
        v[out] = operator(v[x], a.rowptr, a.indices, a.values, last, trusted=True)

    return run


KINDS = (
    StepKind("bspmm_bbb", _check, _bind_bits_over_pattern, "pattern"),
    StepKind("bspmm_bbf", _check, _bind_bits_over_pattern, "pattern"),
    StepKind("bspmm_fbb", _check, _bind_floats_over_pattern, "pattern"),
    StepKind("bspmm_fbf", _check, _bind_floats_over_pattern, "pattern"),
    StepKind("bspmm_bfb", _check, _bind_bits_over_values, "values"),
    StepKind("bspmm_bff", _check, _bind_bits_over_values, "values"),
    StepKind("bspmm_ffb", _check, _bind_floats_over_values, "values"),
    StepKind("bspmm_fff", _check, _bind_floats_over_values, "values"),
)
