"""Places of all ranks' rows in what one rank gathers, and the exchange that fills them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

LEAST_ROWS, MOST_ROWS, CHUNKS = 1 << 16, 1 << 21, 8
"""Rows of a chunk, at least where there are more, and at most; chunks of a rank in between."""

_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
"""The latter is its name before torch 2.13."""
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(frozen=True)
class Places:
    """Rows of the ranks in chunks: chunk by chunk, in each the ranks one after the other.

    All ranks have as many chunks as the one with the most rows; chunks of the others are filled up
    with zeros. A chunk's rows can be sent as soon as they are computed, and lie side by side.

    Attributes:
        starts: first row of each rank, and the number of all rows at the end.
        rank: this rank.
        chunk_rows: rows of a chunk; the last one may have fewer.
        group: processes of the ranks; None is the default group.
    """

    starts: tuple[int, ...]
    rank: int
    chunk_rows: int
    group: dist.ProcessGroup | None

    @classmethod
    def of(cls, starts: tuple[int, ...], rank: int, chunk_rows: int | None, group: Any) -> Places:
        """Places with the number of rows in a chunk that suits these ranks.

        Raises:
            ValueError: there are too many rows for int32 places, or ``chunk_rows`` is below 1.
        """
        most = _most(starts)
        if chunk_rows is None:
            chunk_rows = max(LEAST_ROWS, min(MOST_ROWS, -(-most // CHUNKS)))
        found = cls(starts, rank, chunk_rows, group)
        if chunk_rows < 1 or found.count >= 2**31:
            raise ValueError(
                f"shard_graph: chunk_rows must be 1 or more, got {chunk_rows}, and {found.ranks} "
                f"ranks must have below 2**31 rows, got {most} each"
            )
        return found

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.starts) - 1

    @property
    def rows(self) -> int:
        """Rows of this rank."""
        return self.starts[self.rank + 1] - self.starts[self.rank]

    @property
    def most(self) -> int:
        """Rows of the rank that has the most."""
        return _most(self.starts)

    @property
    def count(self) -> int:
        """Number of places."""
        return self.most * self.ranks

    @property
    def chunks(self) -> int:
        """Chunks of each rank, at least one."""
        return max(1, -(-self.most // self.chunk_rows))

    def width(self, chunk: int) -> int:
        """Rows of a chunk of the rank that has the most."""
        return min(self.chunk_rows, self.most - chunk * self.chunk_rows)

    def own(self, chunk: int) -> slice:
        """This rank's rows of a chunk."""
        begin = min(self.rows, chunk * self.chunk_rows)
        return slice(begin, min(self.rows, begin + self.chunk_rows))

    def first(self, chunk: int) -> int:
        """First place of a chunk."""
        return chunk * self.chunk_rows * self.ranks

    def of_rows(self, rows: Tensor) -> Tensor:
        """Places, int64, of rows of the whole graph."""
        starts = torch.tensor(self.starts, device=rows.device)
        owner = torch.searchsorted(starts, rows, right=True).sub_(1)
        local = rows - starts[owner]
        chunk = local // self.chunk_rows
        before = chunk * self.chunk_rows
        width = (self.most - before).clamp_(max=self.chunk_rows)
        return before * self.ranks + owner * width + (local - before)

    def rows_at(self, places: Tensor) -> Tensor:
        """The inverse of :meth:`of_rows`, for places that hold a row."""
        starts = torch.tensor(self.starts, device=places.device)
        before = places // (self.chunk_rows * self.ranks) * self.chunk_rows
        width = (self.most - before).clamp_(max=self.chunk_rows)
        inside = places - before * self.ranks
        return starts[inside // width] + before + inside % width

    def gather(self, rows: Tensor) -> Tensor:
        """Rows ``[rows, *]`` of all ranks in their places; all ranks call it together."""
        arriving = Gathering(self)
        for chunk in range(self.chunks):
            arriving.send(chunk, rows[self.own(chunk)])
        return arriving.wait()

    def total(self, values: Tensor, operation: Any = dist.ReduceOp.SUM) -> Tensor:
        """Sum over the ranks, the same bits on each; all call it together.

        Raises:
            ConnectionError: another rank has ended.
        """
        found = values.detach().clone(memory_format=torch.contiguous_format)
        if self.ranks > 1:
            try:
                dist.all_reduce(found, operation, group=self.group)
            except RuntimeError as error:
                raise lost(self.group, error) from error
        return found

    def reduce_scatter(self, chunk: int, sent: Tensor, dtype: torch.dtype) -> Callable[[], Tensor]:
        """Begin to sum the ranks' values for the places of a chunk, ``[width * ranks, K]``.

        The result waits for this rank's ``[width, K]``; sums of several ranks are in ``dtype``.

        Raises:
            ConnectionError: another rank has ended.
        """
        if self.ranks == 1:
            return lambda: sent
        values = sent.to(dtype)
        found = values.new_empty(self.width(chunk), *values.shape[1:])
        if not values.numel():
            return lambda: found
        try:
            work = _reduce_scatter(found, values, group=self.group, async_op=True)
        except RuntimeError as error:
            raise lost(self.group, error) from error

        def wait() -> Tensor:
            try:
                work.wait()
            except RuntimeError as error:
                raise lost(self.group, error) from error
            del values_held[:]
            return found

        values_held = [values]  # until it was sent
        return wait


def lost(group: Any, error: RuntimeError) -> ConnectionError:
    """The error of an exchange that failed."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    first = str(error).split("\n", 1)[0]
    return ConnectionError(
        f"rank {rank} of {ranks}: rows cannot be exchanged, another rank has ended or does not "
        f"answer within the timeout of its process group: {first}"
    )


def _most(starts: tuple[int, ...]) -> int:
    return max(end - start for start, end in itertools.pairwise(starts))


class Gathering:
    """Rows of all ranks on their way: sent chunk by chunk, whole after :meth:`wait`.

    Ranks must send the same chunks in the same order.
    """

    def __init__(self, places: Places) -> None:
        self.places = places
        self._held: Tensor | None = None
        self._works: list[Any] = []

    def send(self, chunk: int, rows: Tensor) -> None:
        """Send this rank's rows of a chunk, and begin to receive those of the others.

        Raises:
            ConnectionError: another rank has ended.
        """
        p, width = self.places, self.places.width(chunk)
        if p.ranks == p.chunks == 1:
            self._held = rows
            return
        if self._held is None:
            self._held = rows.new_empty(p.count, *rows.shape[1:])
        begin = p.first(chunk)
        target = self._held[begin : begin + width * p.ranks]
        if p.ranks == 1:
            target.copy_(rows)
            return
        if len(rows) < width:
            padded = rows.new_zeros(width, *rows.shape[1:])
            padded[: len(rows)] = rows
            rows = padded
        if not target.numel():
            return
        try:
            rows = rows.contiguous()
            work = _all_gather(target, rows, group=p.group, async_op=True)
        except RuntimeError as error:
            raise lost(p.group, error) from error
        self._works.append((work, rows))

    def wait(self) -> Tensor:
        """The rows in their places; what a GPU does next waits for them, not the caller.

        Raises:
            ConnectionError: another rank has ended, or does not answer within the group's timeout.
        """
        try:
            for work, _ in self._works:
                work.wait()
        except RuntimeError as error:
            raise lost(self.places.group, error) from error
        self._works.clear()
        assert self._held is not None, "no chunk was sent"
        return self._held
