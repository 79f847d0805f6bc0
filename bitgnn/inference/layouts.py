"""Layouts of graphs that a program is bound for: questions about them, and calls over slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency
from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.inference.program import Buffer, Call, Part, Ref
from bitgnn.inference.weighted import SUMS, weighted_call

ORDERED_ROWS, ORDERED_EDGES, ORDERED_DEGREE = 1 << 15, 1 << 23, 4
"""Sums of narrow rows gain from an order from so many rows on, or so many edges. Rows of a smaller
mean degree are left as they lie: they gain little, and batches of sampled neighbours, which are
such rows, are used once and would pay for an order each."""
MOST_NEIGHBOURS = 64
"""Mean degree up to which rows are short; beyond, the order of edges costs less than slots do."""
MOST_ROWS = 2048
"""Rows up to which one launch is faster than one of each layer."""


class Question(NamedTuple):
    """What a rewrite depends on beside the program.

    Attributes:
        kind: ``"slices"``, whether a graph is read in slices for rows of so many words;
            ``"short_rows"``, whether its rows are short and without column factors; ``"values"``,
            whether its edges have weights of their own, and ``"row_factors"``, whether its rows
            have some; ``"few_rows"``,
            whether the features have few rows.
        graph: number of the graph.
        words: of the rows.
    """

    kind: str
    graph: int = 0
    words: int = 0

    def answer(self, x: Any, graphs: Sequence[Any]) -> bool:
        """The answer for these features and graphs."""
        if self.kind == "few_rows":
            return bool(x.shape[0] <= MOST_ROWS)
        if not graphs:
            return False
        graph = graphs[self.graph]
        if self.kind in ("values", "row_factors"):
            return (graph.values if self.kind == "values" else graph.row_scale) is not None
        if self.kind == "slices":
            return bool(graph.reads_slices(self.words))
        return graph.col_scale is None and bool(graph.nnz <= MOST_NEIGHBOURS * graph.shape[0])


def row_order_of(adjacency: BitAdjacency) -> Tensor | None:
    """The order of rows that a sum of narrow rows on a GPU gains from, or None.

    It is found with the first call and then belongs to the adjacency, see
    :meth:`~bitgnn.BitAdjacency.row_order`.
    """
    rows, edges = adjacency.shape[0], adjacency.nnz
    pays = edges >= ORDERED_EDGES or ORDERED_ROWS <= rows <= edges // ORDERED_DEGREE
    return adjacency.row_order() if pays else None


def _row_order(adjacency: BitAdjacency) -> Tensor | None:
    # Compiled programs must not depend on the size of the graph that they are made with.
    can_order = adjacency.rowptr.is_cuda and not torch.compiler.is_compiling()
    return row_order_of(adjacency) if can_order else None


def _row_factor(adjacency: BitAdjacency) -> Tensor:
    row = adjacency.row_scale
    return (
        torch.ones(adjacency.shape[0], device=adjacency.device, dtype=torch.float32)
        if row is None
        else row
    )


PARTS: Mapping[str, Callable[[Any], Any]] = {
    "row_order": _row_order,
    "row_factor": _row_factor,
    "whole": lambda graph: graph,
}
"""Parts of graphs that are no attributes."""
SLICED, SLICED_ARGUMENTS = "sliced", 9
"""The part that is all arguments of a sliced layout, and their number."""


class Rewriter:
    """What rewrites need: buffers, registers of their own, and answers.

    Attributes:
        size: number of registers.
        sources: buffers that arguments were derived from.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], size: int, asks: Callable[[Question], bool]
    ) -> None:
        self.tensors, self.size, self._asks = tensors, size, asks
        self.sources: list[Tensor] = []

    def register(self) -> int:
        """A register that no call writes yet."""
        self.size += 1
        return self.size - 1

    def slices(self, part: Any, words: int) -> bool:
        """Whether the graph of a part is read in slices for rows of so many words."""
        return self._asks(Question("slices", part.graph, words))

    def short_rows(self, part: Part) -> bool:
        """Whether rows are short and without column factors."""
        return self._asks(Question("short_rows", part.graph))

    def is_weighted(self, call: Call) -> bool:
        """Whether a call sums over a graph whose edges have weights of their own."""
        if call.kind not in SUMS or call.graph is None or call.graph < 0:  # features as a pattern
            return False
        return self._asks(Question("values", call.graph))

    def has_rows(self, part: Part) -> bool:
        """Whether the rows of a graph have factors."""
        return self._asks(Question("row_factors", part.graph))

    def few_rows(self) -> bool:
        """Whether the features have few rows."""
        return self._asks(Question("few_rows"))

    def tensor(self, buffer: Buffer) -> Tensor:
        """The tensor of a buffer."""
        return self.tensors[buffer.name]

    def derive_from(self, calls: Sequence[Call]) -> None:
        """Note that arguments are made of the buffers of calls."""
        for call in calls:
            self.sources += [self.tensors[name] for name in call.tensors.values()]


def sliced(call: Call) -> Call:
    """A call over CSR as the one over slices."""
    arguments = list(call.arguments)
    place = next(n for n, a in enumerate(arguments) if isinstance(a, Part) and a.name == "rowptr")
    arguments[place : place + 2] = [Part(arguments[place].graph, SLICED)]
    return Call(f"{call.operator}_sliced", call.layer, tuple(arguments), call.outputs)


def laid_out(call: Call, r: Rewriter) -> list[Call]:
    """A call for the layout of its graph, or for its weights."""
    if r.is_weighted(call):
        return [weighted_call(call, r.has_rows)]
    if call.kind in ("bspmm_bbb", "bspmm_bbf"):
        named = call.named
        return [sliced(call)] if r.slices(named["rowptr"], words_for(named["size"])) else [call]
    if call.kind in ("bspmm_tbb", "bspmm_tbf"):
        return _ternary_rows(call, r)
    return [call]


def _ternary_rows(call: Call, r: Rewriter) -> list[Call]:
    """bspmm_tbf -> flatten, bspmm_bbf, slice, slice, sub, mul, mul, add where there are slices.

    Both planes are aggregated in one pass as bits of +-1: sums are twice the set bits less the
    degree, so the integers of ternary rows are half of their difference, exactly.
    """
    named = call.named
    words, size = words_for(named["size"]), named["size"]
    if not r.slices(named["rowptr"], 2 * words):
        return [call]
    calls: list[Call] = []

    def op(operator: str, *arguments: Any) -> Ref:
        calls.append(Call(operator, call.layer, arguments, (r.register(),)))
        return Ref(calls[-1].outputs[0])

    half = WORD_BITS * words
    rows = op("aten::flatten.using_ints", named["x"], 1)
    graph = Part(named["rowptr"].graph, SLICED)
    sums = op("bitgnn::bspmm_bbf_sliced", rows, 2 * half, graph)
    signs = [op("aten::slice.Tensor", sums, 1, at, at + size) for at in (0, half)]
    halves = op("aten::mul.Scalar", op("aten::sub.Tensor", *signs), 0.5)
    found = op("aten::mul.Tensor", halves, op("aten::unsqueeze", named["row"], 1))
    last = call.arguments[5] if len(call.arguments) > 5 else None
    if call.kind == "bspmm_tbb":
        op("bitgnn::pack", found, last)
    elif last is not None:
        op("aten::add.Tensor", found, last)
    calls[-1] = Call(calls[-1].operator, call.layer, calls[-1].arguments, call.outputs)
    return calls
