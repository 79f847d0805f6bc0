"""Calls over a graph whose edges have weights of their own, in place of those over its pattern.

Sums of a pattern become sums of weights, in the order of each row's entries: that of training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.inference.operators import OVER_GRAPHS
from bitgnn.inference.program import Call, Part
from bitgnn.ops.weighted import weighted_bits, weighted_sums

SUMS = ("bspmm_bbb", "bspmm_bbf", "bspmm_fbb", "bspmm_fbf", "bspmm_tbb", "bspmm_tbf")
"""Sums over a pattern."""


def weighted_call(call: Call, has_rows: Callable[[Part], bool]) -> Call:
    """bspmm_xbz -> bspmm_xfz; -> weighted_sums or weighted_bits where rows have factors, too.

    Ternary rows take functions of their own.
    """
    named, letters = call.named, call.kind.removeprefix("bspmm_")
    source, to = letters[0], letters[2]
    graph = named["rowptr"].graph
    last = named.get("threshold" if to == "b" else "bias")
    size = named["size"] if source == "b" else None
    name, given = "sums" if to == "f" else "bits", (named["x"], size, Part(graph, "whole"), last)
    if source == "t":
        size, row = named["size"], named["row"]
        given = (named["x"], size, *_parts(graph), row, last)
        return Call(f"graph::ternary_{name}", call.layer, given, call.outputs)
    if has_rows(named["rowptr"]):
        return Call(f"graph::weighted_{name}", call.layer, given, call.outputs)
    operator = f"bitgnn::bspmm_{source}f{to}"
    given = (named["x"], *_parts(graph), last)
    if source == "b":
        given = (named["x"], size, *_parts(graph), None, last)
    return Call(operator, call.layer, given, call.outputs)


def _parts(graph: int) -> tuple[Part, ...]:
    return tuple(Part(graph, name) for name in ("rowptr", "indices", "values"))


def _over_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    OVER_GRAPHS[function.__name__] = function
    return function


_over_graph(weighted_sums)
_over_graph(weighted_bits)


@_over_graph
def ternary_sums(
    x: Tensor,
    size: int,
    rowptr: Tensor,
    indices: Tensor,
    values: Tensor,
    row: Tensor,
    bias: Tensor | None,
) -> Tensor:
    """``row[i] * sum_e(values[e] * t) + bias`` of ternary rows ``[N, 2, W]``."""
    half = WORD_BITS * words_for(size)
    planes = torch.ops.bitgnn.unpack(x.flatten(1), 2 * half)  # -1 and +1
    signs = (planes[:, :size] - planes[:, half : half + size]).mul_(0.5)
    sums: Tensor = torch.ops.bitgnn.bspmm_fff(signs, rowptr, indices, values, trusted=True)
    found = row.unsqueeze(1) * sums
    return found if bias is None else found + bias


@_over_graph
def ternary_bits(*given: Any) -> Tensor:
    """Bits of the same ``>= threshold``, the last argument."""
    words: Tensor = torch.ops.bitgnn.pack(ternary_sums(*given[:-1], None), given[-1])
    return words
