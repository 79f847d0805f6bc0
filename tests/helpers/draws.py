"""Random numbers, bits, images and patterns, hard ones among them, from one seeded generator."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency
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

    def images(self, count: int, channels: int, height: int, width: int) -> Tensor:
        """Packed images, as ``bits``."""
        rows = self.bits(count * height * width, channels)
        return rows.view(count, height, width, rows.size(1))
