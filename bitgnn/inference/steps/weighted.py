"""Steps over a graph whose edges have weights of their own, in place of those over its pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency
from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.inference.step import Apply, Step, StepKind, Tensors, derives_from
from bitgnn.ops.weighted import weighted_bits, weighted_sums

SUMS = "bspmm_"
"""Beginning of the kinds of steps that sum neighbours."""

_fff = torch.ops.bitgnn.bspmm_fff.default
_pack = torch.ops.bitgnn.pack.default
_unpack = torch.ops.bitgnn.unpack.default


def with_weights(
    apply: Apply, group: Sequence[Step], own: Sequence[Tensors], kinds: Mapping[str, StepKind]
) -> Apply:
    """One call that does what ``apply`` does, and over weighted edges runs its steps one by one.

    Sums of a pattern then become sums of weights, in the order of each row's entries: that of
    training. Attention has weights of its own.
    """
    if not any(_sums_pattern(step, kinds) for step in group):
        return apply
    calls = [_call_of(step, tensors, kinds) for step, tensors in zip(group, own, strict=True)]
    inner = {register for step in group[:-1] for register in step.outputs}
    outer = [r for step in group for r in step.inputs if r not in inner]

    def run(*given: Any) -> Any:
        graph = given[-1]
        if graph.values is None:
            return apply(*given)
        registers = dict(zip(outer, given, strict=False))
        found: Any = None
        for step, call in zip(group, calls, strict=True):
            found = call(*[registers[r] for r in step.inputs], graph)
            parts = found if len(step.outputs) > 1 else (found,)
            registers.update(zip(step.outputs, parts, strict=True))
        return found

    sources = getattr(apply, "sources", ())
    return derives_from(sources)(run) if sources else run


def _sums_pattern(step: Step, kinds: Mapping[str, StepKind]) -> bool:
    """Whether a step sums neighbours over the pattern of the graph."""
    return step.kind.startswith(SUMS) and kinds[step.kind].uses_graph == "pattern"


def _call_of(step: Step, own: Tensors, kinds: Mapping[str, StepKind]) -> Apply:
    """The call of one step on its inputs and the graph."""
    if _sums_pattern(step, kinds):
        return _weighted(step, own)
    apply = kinds[step.kind].make(step, own)
    if kinds[step.kind].uses_graph is not None:
        return apply
    return lambda *given: apply(*given[:-1])


def _weighted(step: Step, own: Tensors) -> Apply:
    """The sums of a step over a pattern, with the weights of edges."""
    source, to_bits = step.kind[len(SUMS)], step.kind.endswith("b")
    size, last = step.attributes["size"], own.get("threshold" if to_bits else "bias")
    if source == "t":
        return _ternary_sums(size, own["scale"].view(()), to_bits, last)
    of_bits = size if source == "b" else None
    sums = weighted_bits if to_bits else weighted_sums
    return lambda x, a: sums(x, of_bits, a, last)


def _ternary_sums(size: int, scale: Tensor, to_bits: bool, last: Tensor | None) -> Apply:
    """``(row_scale * scale) * sum_e(values[e] * t) + bias`` of the two planes of rows."""
    half = WORD_BITS * words_for(size)

    def sums(x: Tensor, a: BitAdjacency) -> Any:
        planes = _unpack(x, 2 * half)  # -1 and +1
        signs = (planes[:, :size] - planes[:, half : half + size]).mul_(0.5)
        row = a.row_scale
        factor = scale if row is None else (row * scale).unsqueeze(1)
        t = factor * _fff(signs, a.rowptr, a.indices, a.values, None, trusted=True)
        if to_bits:
            return _pack(t, last)
        return t if last is None else t.add_(last)

    return sums
