"""Layouts of graphs that a program is bound for: questions, and calls over slices or weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency
from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.inference.operators import OVER_GRAPHS
from bitgnn.inference.program import Buffer, Call, Part, Ref
from bitgnn.ops.weighted import weighted_bits, weighted_sums

ANSWERS: Mapping[str, Callable[[Any, int], bool]] = {
    "slices": lambda graph, words: graph.reads_slices(words),
    "column_factors": lambda graph, _: graph.col_scale is not None,
    "values": lambda graph, _: graph.values is not None,
    "row_factors": lambda graph, _: graph.row_scale is not None,
}
"""Questions about a graph: whether it is read in slices for rows of so many words; whether
columns have factors; whether edges have weights of their own; whether rows have factors."""


class Question(NamedTuple):
    """Condition of a rewrite on graph or features.

    Attributes:
        kind: one of :data:`ANSWERS`; or ``"few_rows"``, whether the features have few.
        graph: number of the graph.
        limit: the words or the rows that the question names.
    """

    kind: str
    graph: int = 0
    limit: int = 0

    def answer(self, x: Any, graphs: Sequence[Any]) -> bool:
        """The answer for these features and graphs."""
        if self.kind == "few_rows":
            return bool(x.shape[0] <= self.limit)
        return len(graphs) > 0 and bool(ANSWERS[self.kind](graphs[self.graph], self.limit))


def row_order_of(
    adjacency: BitAdjacency, least_rows: int = 1 << 15, least_edges: int = 1 << 23, degree: int = 4
) -> Tensor | None:
    """The order of rows that a sum of narrow rows on a GPU gains from, or None.

    It gains from so many rows on, or so many edges. Rows of a smaller mean degree are left as they
    lie: they gain little, and batches of sampled neighbours, which are such rows, are used once and
    would pay for an order each. The order belongs to the adjacency, see
    :meth:`~bitgnn.BitAdjacency.row_order`.
    """
    rows, edges = adjacency.shape[0], adjacency.nnz
    pays = edges >= least_edges or least_rows <= rows <= edges // degree
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
    """Buffers, new registers and answers for rewrites.

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
        """True if the graph of a part is read in slices for rows of so many words."""
        return self._asks(Question("slices", part.graph, words))

    def has_columns(self, part: Part) -> bool:
        """True if the columns of a graph have factors."""
        return self._asks(Question("column_factors", part.graph))

    def is_weighted(self, call: Call) -> bool:
        """True if a call sums over a graph whose edges have weights of their own."""
        if call.kind not in SUMS or call.graph is None or call.graph < 0:  # features as a pattern
            return False
        return self._asks(Question("values", call.graph))

    def has_rows(self, part: Part) -> bool:
        """True if the rows of a graph have factors."""
        return self._asks(Question("row_factors", part.graph))

    def few_rows(self, most: int) -> bool:
        """True if the features have up to ``most`` rows."""
        return self._asks(Question("few_rows", limit=most))

    def tensor(self, buffer: Buffer) -> Tensor:
        """The tensor of a buffer."""
        return self.tensors[buffer.name]

    def derive_from(self, calls: Sequence[Call]) -> None:
        """Note that arguments are made of the buffers of calls."""
        for call in calls:
            self.sources += [self.tensors[name] for name in call.tensors.values()]


SUMS = ("bspmm_bbb", "bspmm_bbf", "bspmm_fbb", "bspmm_fbf", "bspmm_tbb", "bspmm_tbf")
"""Sums over a pattern."""


def weighted_call(call: Call, has_rows: Callable[[Part], bool]) -> Call:
    """bspmm_xbz -> bspmm_xfz; -> weighted_sums or weighted_bits where rows have factors, too.

    Sums of a pattern become sums of weights, in the order of each row's entries: that of training.
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
