"""Sums over sharded rows with gradients: bits gathered forward, floats reduced backward."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bitgnn.bits import BitAdjacency
from bitgnn.bits.layouts import pointer_dtype
from bitgnn.distributed.places import Places
from bitgnn.distributed.prepared import made_for
from bitgnn.distributed.sharding import ShardedAdjacency
from bitgnn.inference.graph import GraphSpec
from bitgnn.nn.spread import SpreadGraph, SpreadPattern
from bitgnn.quantize.first_order import first_order

MATRIX = 2


class TrainingRows(SpreadGraph):
    """A sharded graph as layers in training take it.

    ``messages`` is the dtype in which gradients of remote rows travel.
    """

    def __init__(self, graph: ShardedAdjacency, messages: torch.dtype) -> None:
        self.graph, self.messages = graph, messages
        self._patterns: dict[GraphSpec, TrainingPattern] = {}
        self._samples: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def count(self) -> int:
        """Number of all ranks' nodes."""
        return self.graph.places.starts[-1]

    def pattern(self, **options: Any) -> TrainingPattern:
        """The adjacency of a layer, made once."""
        spec = GraphSpec(**options, weighted=False)
        if spec not in self._patterns:
            chunks = made_for(self.graph, (spec,))
            only = tuple(chunk for (chunk,) in chunks)
            self._patterns[spec] = TrainingPattern(only, self.graph.places, self.messages)
        return self._patterns[spec]

    def total(self, values: Tensor) -> Tensor:
        """Sum over ranks, without gradient."""
        return self.graph.places.total(values)

    def least(self, value: float) -> float:
        """Least value of all ranks."""
        held = torch.tensor([value], dtype=torch.float64, device=self.graph.device)
        return float(self.graph.places.total(held, dist.ReduceOp.MIN))

    def sample(self, x: Tensor, most: int) -> Tensor:
        """At most so many rows at equal distances, in the order of the nodes, on every rank."""
        _check_rows(x, self.graph.places)
        step = max(1, -(-self.count // most))
        if step not in self._samples:
            nodes = self.graph.own_nodes()
            own = (nodes % step == 0).nonzero().view(-1)
            self._samples[step] = own.to(x.device), (nodes[own] // step).to(x.device)
        own, places = self._samples[step]
        found = x.new_zeros(-(-self.count // step), *x.shape[1:])
        found[places] = x.detach()[own]
        return self.total(found)  # each row is one rank's, so that the sum is exact


class TrainingPattern(SpreadPattern):
    """Own rows of an adjacency over the places of all ranks, and their transpose."""

    def __init__(
        self, chunks: tuple[BitAdjacency, ...], places: Places, messages: torch.dtype
    ) -> None:
        self.chunks, self.places, self.messages = chunks, places, messages
        self.shape = (places.rows, places.rows)
        self._transposed: list[tuple[Tensor, Tensor]] | None = None

    def sums(
        self, x: Tensor, bias: Tensor | None, use_row: bool, use_col: bool, are_signs: bool
    ) -> Tensor:
        """``row_scale * (pattern (col_scale * x)) + bias`` of own rows; ``x`` is ``[rows, K]``."""
        _check_rows(x, self.places)
        found: Tensor = _Sums.apply(x, bias, self, (use_row, use_col, are_signs))
        return found

    def gathered(self, x: Tensor, are_signs: bool) -> Tensor:
        """Words of signs, or floats, of all places."""
        if are_signs:
            return self.places.gather(torch.ops.bitgnn.pack(x.float().contiguous()))
        return self.places.gather(x.contiguous()).float()

    def integer_sums(self, product: Any, bias: Tensor | None, use_col: bool) -> Tensor:
        """Sums of integer products of gathered bits, as one process makes them."""
        words = self.places.gather(product.words)
        everyone = product._replace(words=words)
        return torch.cat([everyone.sums(chunk, bias, use_col) for chunk in self.chunks])

    def transposed(self) -> list[tuple[Tensor, Tensor]]:
        """Row pointer and indices for the places of each chunk: own rows that read them."""
        if self._transposed is None:
            ends, at = [self.chunks[0].rowptr[:1].long()], 0
            for chunk in self.chunks:
                ends.append(chunk.rowptr[1:].long() + at)
                at += chunk.nnz
            rowptr = torch.cat(ends).to(pointer_dtype(at))
            indices = torch.cat([chunk.indices for chunk in self.chunks])
            whole = BitAdjacency._trusted(rowptr, indices, self.places.count)
            back, rows = whole.transposed()
            self._transposed = []
            bounds = [self.places.first(chunk) for chunk in range(self.places.chunks)]
            for begin, end in itertools.pairwise([*bounds, self.places.count]):
                own = back[begin : end + 1]
                # In memory of its own, which kernels read in vectors.
                self._transposed.append((own - own[0], rows[int(own[0]) : int(own[-1])].clone()))
        return self._transposed

    def reduced(self, grad: Tensor, use_row: bool, use_col: bool) -> Tensor:
        """``col_scale * (pattern^T (row_scale * grad))``, of own nodes, from all ranks' rows."""
        rows = [chunk.row_scale for chunk in self.chunks]
        row = torch.cat(rows) if use_row and rows[0] is not None else None  # type: ignore[arg-type]
        col = self.chunks[0].col_scale if use_col else None
        arriving, begin = [], 0
        for chunk, (rowptr, indices) in enumerate(self.transposed()):
            end = begin + len(rowptr) - 1
            by = None if col is None else col[begin:end].clone()
            sent = torch.ops.bitgnn.bspmm_fbf(grad, rowptr, indices, by, row, None, trusted=True)
            arriving.append(self.places.reduce_scatter(chunk, sent, self.messages))
            begin = end
        found = grad.new_empty(self.places.rows, grad.size(1))
        for chunk, waiting in enumerate(arriving):
            own = self.places.own(chunk)
            found[own] = waiting()[: own.stop - own.start].to(grad.dtype)
        return found


def _check_rows(x: Tensor, places: Places) -> None:
    if x.dim() != MATRIX or x.size(0) != places.rows:
        raise ValueError(
            f"parallelize: x must be [{places.rows}, K], the rows of this rank, got {list(x.shape)}"
        )


class _Sums(torch.autograd.Function):
    """Sums of gathered rows; their gradients are summed where the rows are."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor | None, pattern: TrainingPattern, kinds: Any
    ) -> Tensor:
        use_row, use_col, are_signs = kinds
        ctx.pattern, ctx.kinds, ctx.dtype = pattern, kinds, x.dtype
        everyone = pattern.gathered(x.detach(), are_signs)
        add = None if bias is None else bias.detach().float()
        sums = []
        for chunk in pattern.chunks:
            row = chunk.row_scale if use_row else None
            col = chunk.col_scale if use_col else None
            csr = chunk.rowptr, chunk.indices
            if are_signs:
                ops = torch.ops.bitgnn.bspmm_bbf
                sums.append(ops(everyone, x.size(1), *csr, row, add, False, trusted=True))
            else:
                ops = torch.ops.bitgnn.bspmm_fbf
                sums.append(ops(everyone, *csr, row, col, add, trusted=True))
        found = sums[0] if len(sums) == 1 else torch.cat(sums)
        return found.to(x.dtype)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        use_row, use_col, _ = ctx.kinds
        grad_x = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = ctx.pattern.reduced(grad.float().contiguous(), use_row, use_col)
            grad_x = grad_x.to(ctx.dtype)
        if ctx.needs_input_grad[1]:
            grad_bias = grad.sum(0)
        return grad_x, grad_bias, None, None
