"""Random numbers, bits, images and patterns, hard ones among them, from one seeded generator."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency
from bitgnn.bits.int8 import MOST
from bitgnn.ops.reference.int8 import padded
from bitgnn.ops.reference.pack import to_words

# Half of the drawn numbers lie on this grid, so that ties and exact thresholds occur.
GRID = 0.5


@dataclass
class Draws:
    """Numbers, bits and patterns from one seeded generator."""

    seed: int = 0
    special: bool = False
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    def integer(self, high: int) -> int:
        return int(torch.randint(high, (), generator=self.generator))

    def floats(self, *shape: int) -> Tensor:
        """Normal numbers, half of them rounded to the grid; with NaN and infinities if special."""
        x = torch.randn(shape, generator=self.generator)
        rounded = (x / GRID).round() * GRID
        x = torch.where(torch.rand(shape, generator=self.generator) < 0.5, rounded, x)
        if self.special and x.numel():
            for value in (float("nan"), float("inf"), -float("inf"), -0.0):
                x.view(-1)[self.integer(x.numel())] = value
        return x

    def matrix(self, rows: int, size: int) -> Tensor:
        """A float operand in the sampler's dtype, with a row of zeros, at times not contiguous."""
        if self.dtype.is_floating_point:
            x = self.floats(rows, size).to(self.dtype)
        else:
            limits = torch.iinfo(self.dtype)
            x = torch.randint(
                limits.min, limits.max + 1, (rows, size), generator=self.generator
            ).to(self.dtype)
        if rows:
            x[self.integer(rows)] = 0
        kind = self.integer(4)
        if kind == 1:
            return x.t().contiguous().t()
        if kind == 2:
            return torch.cat([x, x], dim=1)[:, :size]
        if kind == 3:
            return torch.stack([x, x], dim=2).flatten(1)[:, ::2]
        return x

    def positive(self) -> Tensor:
        """A positive number, often one whose half lies on the grid."""
        return torch.tensor([1.0, 2.0, 0.7, 3.1])[self.integer(4)]

    def bits(self, rows: int, size: int) -> Tensor:
        return to_words(torch.rand(rows, size, generator=self.generator) < 0.5)

    def adjacency(self, rows: int, columns: int, coalesce: bool) -> BitAdjacency:
        """A random pattern with empty rows, a hub and, unless coalesced, duplicate edges."""
        edges = 0 if rows == 0 or columns == 0 else self.integer(6 * max(rows, columns))
        edge_index = torch.stack(
            [
                torch.randint(max(1, columns), (edges,), generator=self.generator),
                torch.randint(max(1, rows), (edges,), generator=self.generator),
            ]
        )
        if edges:
            edge_index[1, : edges // 3] = rows // 2
        return BitAdjacency.from_edge_index(edge_index, (rows, columns), coalesce=coalesce)

    def rows(self, degrees: Sequence[int] | Tensor, columns: int) -> dict[str, Tensor]:
        """A pattern whose rows have these degrees, their columns in any order and repeated."""
        rowptr = torch.zeros(len(degrees) + 1, dtype=torch.int64)
        rowptr[1:] = torch.as_tensor(degrees).cumsum(0)
        return {"rowptr": rowptr, "indices": self.nodes(int(rowptr[-1]), columns).int()}

    def images(self, count: int, channels: int, height: int, width: int) -> Tensor:
        """Packed images, as ``bits``."""
        rows = self.bits(count * height * width, channels)
        return rows.view(count, height, width, rows.size(1))

    def codes(self, rows: int, size: int) -> Tensor:
        """Padded rows of 8-bit codes of every value."""
        drawn = torch.randint(-MOST, MOST + 1, (rows, size), generator=self.generator)
        return padded(drawn.to(torch.int8))

    def ternary(self, *shape: int, boolean: bool = False) -> tuple[Tensor, Tensor]:
        """Words and counts of random values in {-1, 0, 1} or {0, 1}, at times not contiguous."""
        turned = len(shape) > 2 and bool(self.integer(2))
        if turned:
            shape = (*shape[:-3], shape[-2], shape[-3], shape[-1])
        drawn = torch.randint(0 if boolean else -1, 2, shape, generator=self.generator)
        counts = (drawn != 0).sum(-1, dtype=torch.int32)
        rows = math.prod(shape[:-1])
        kinds = [drawn == 1] if boolean else [drawn == 1, drawn == -1]
        planes = [to_words(kind.reshape(rows, shape[-1])) for kind in kinds]
        words = planes[0] if boolean else torch.stack(planes, 1)
        words = words.view(*shape[:-1], *words.shape[1:])
        if turned:
            dim = len(shape) - 3
            words, counts = words.transpose(dim, dim + 1), counts.transpose(dim, dim + 1)
        return words, counts

    def nodes(self, count: int, size: int) -> Tensor:
        """Nodes below size, with repetitions."""
        return torch.randint(max(1, size), (count,), generator=self.generator)

    def csc(self, edges: int, sources: int, destinations: int) -> tuple[Tensor, Tensor]:
        """Column pointers and rows of random edges, a quarter of them into one node."""
        into = self.nodes(edges, destinations)
        into[: edges // 4] = destinations // 2
        colptr = torch.zeros(destinations + 1, dtype=torch.int64)
        colptr[1:] = torch.bincount(into, minlength=destinations).cumsum(0)
        return colptr, self.nodes(edges, sources)
