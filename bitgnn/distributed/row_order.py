"""Orders of rows in parts: ranges of nodes balanced by edges, or rows dealt out by degree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

Order = Literal["range", "dealt"]
ORDERS = get_args(Order)


@dataclass(frozen=True)
class RowOrder:
    """Places of nodes in parts.

    Attributes:
        starts: int64 ``[P + 1]``, first row of each part, and their number at the end.
        ranked: int64 ``[N]``, nodes by descending degree, which are dealt out; None where rows keep
            the order of the nodes.
        position: int32 ``[N]``, row of each node; None likewise.
    """

    starts: Tensor
    ranked: Tensor | None = None
    position: Tensor | None = None

    @classmethod
    def of(cls, degree: Tensor, num_parts: int, order: Order) -> RowOrder:
        """Order nodes by their numbers of incoming edges, int64 ``[N]``."""
        return _dealt(degree, num_parts) if order == "dealt" else _ranges(degree, num_parts)

    def nodes(self, part: int) -> Tensor:
        """Nodes of a part in the order of its rows, int64."""
        first, end = (int(row) for row in self.starts[part : part + 2])
        if self.ranked is None:
            return torch.arange(first, end)
        parts = len(self.starts) - 1
        rounds = torch.arange(end - first)
        place = torch.where(rounds % 2 == 0, part, parts - 1 - part)
        return self.ranked[rounds * parts + place]


def _ranges(degree: Tensor, num_parts: int) -> RowOrder:
    """Contiguous ranges with about equal sums of edges and rows."""
    load = torch.cumsum(degree + 1, 0)
    total = int(load[-1]) if len(load) else 0
    wanted = torch.tensor([total * part // num_parts for part in range(1, num_parts)])
    starts = torch.zeros(num_parts + 1, dtype=torch.int64)
    starts[1:-1] = torch.searchsorted(load, wanted.to(torch.int64))
    starts[-1] = len(degree)
    return RowOrder(starts)


def _dealt(degree: Tensor, num_parts: int) -> RowOrder:
    """Rows by descending degree dealt out in a snake: 0, 1, 2, 2, 1, 0, 0, 1, ...

    The row of a part is the number of the round, which takes one node for each part.
    """
    count = len(degree)
    ranked = torch.sort(degree, descending=True, stable=True).indices
    rounds, rest = divmod(count, num_parts)
    part = torch.arange(num_parts)
    in_last = part < rest if rounds % 2 == 0 else part >= num_parts - rest
    starts = torch.zeros(num_parts + 1, dtype=torch.int64)
    torch.cumsum(rounds + in_last.to(torch.int64), 0, out=starts[1:])
    order = RowOrder(starts, ranked)
    position = torch.empty(count, dtype=torch.int32)
    for number in range(num_parts):
        first, end = int(starts[number]), int(starts[number + 1])
        position[order.nodes(number)] = torch.arange(first, end, dtype=torch.int32)
    return RowOrder(starts, ranked, position)
