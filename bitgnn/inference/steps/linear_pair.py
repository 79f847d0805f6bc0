"""One product for two float linear maps of the same bits, of which one is aggregated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.inference.program import Runner, Step
from bitgnn.inference.steps.derived_buffers import derives_from

__all__ = ["bind_linear_pair"]

_bits_linear = torch.ops.bitgnn.bits_linear.default
_bspmm_fbf = torch.ops.bitgnn.bspmm_fbf.default
_bspmm_slots = torch.ops.bitgnn.bspmm_slots.default

FRAGMENT = 4
"""Columns of one access of a GPU: each map's columns start with a whole one."""
MOST_NEIGHBOURS = 64
"""Mean degree up to which rows are short; beyond, the order of edges costs less than slots do."""


def bind_linear_pair(group: Sequence[Step], own: Sequence[Mapping[str, Tensor]]) -> Runner | None:
    """One call for ``A(x V) + x W`` where x are bits.

    Args:
        group: ``bits_linear``, ``bspmm_fbf`` and a ``bits_linear`` that adds, each the only reader
            of the one before.
        own: their tensors.

    Returns:
        The call, or None where the steps are others.
    """
    if [step.kind for step in group] != ["bits_linear", "bspmm_fbf", "bits_linear"]:
        return None
    first, sums, last = group
    *shared, addend = last.inputs
    if tuple(shared) != first.inputs or not last.attributes["adds"] or addend != sums.outputs[0]:
        return None
    assert sums.graph is not None, "Program.check requires it"
    (out,), graph = last.outputs, sums.graph
    x, *scale = first.inputs
    size, width = first.attributes["size"], first.attributes["out"]
    root = -(-width // FRAGMENT) * FRAGMENT
    (digits, step, bias), sum_bias = _stacked(own[0], own[2], root), own[1].get("bias")
    apart = [_arguments(own[0]), _arguments(own[2])]

    @derives_from([*own[0].values(), *own[2].values()])
    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        a, words = graphs[graph], v[x]
        x_scale = v[scale[0]] if scale else None
        if a.col_scale is None and a.nnz <= MOST_NEIGHBOURS * a.shape[0]:
            both = _bits_linear(words, digits, step, size, x_scale, bias)
            mapped, added = both[:, :width], both[:, root : root + width]
            v[out] = _bspmm_slots(
                mapped, a.rowptr, a.indices, a.row_scale, sum_bias, added, trusted=True
            )
            return
        (digits1, step1, bias1), (digits2, step2, bias2) = apart
        mapped = _bits_linear(words, digits1, step1, size, x_scale, bias1)
        total = _bspmm_fbf(
            mapped, a.rowptr, a.indices, a.row_scale, a.col_scale, sum_bias, trusted=True
        )
        v[out] = _bits_linear(words, digits2, step2, size, x_scale, bias2, total)

    return run


def _arguments(tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | None]:
    return tensors["digits"], tensors["step"], tensors.get("bias")


def _stacked(
    first: Mapping[str, Tensor], second: Mapping[str, Tensor], columns: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Digits, steps and biases of both maps one below the other, ``columns`` outputs each."""
    pairs = [_arguments(first), _arguments(second)]
    lacking = columns - pairs[0][1].size(0)
    pad = torch.nn.functional.pad
    digits = torch.cat([pad(d, (0, 0, 0, 0, 0, 0, 0, lacking)) for d, _, _ in pairs], dim=1)
    steps = torch.cat([pad(step, (0, lacking)) for _, step, _ in pairs])
    biases = [torch.zeros_like(step) if bias is None else bias for _, step, bias in pairs]
    return digits.contiguous(), steps, torch.cat([pad(bias, (0, lacking)) for bias in biases])
