"""What ends a model: the step that turns scores into classes, and what operators do of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bitgnn.inference.program import Register, Runner, Step, StepKind
from bitgnn.inference.steps._checks import expect, expect_attributes, expect_tensors

__all__ = ["KINDS"]


def _check(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    expect_attributes(step)
    expect(registers, "floats")
    expect_tensors(tensors, {})
    return (Register("classes", registers[0].size),)


def _bind(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,) = step.inputs, step.outputs

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = torch.argmax(v[x], dim=-1)

    return run


KINDS = (StepKind("classes", _check, _bind),)
"""``"classes"``: int64 ``[N]``, the index of the largest score of each node, the first of equal
ones; the first NaN where there is one."""
