"""Functions left out of compiled graphs; apart, since marking them imports the whole compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from bitgnn.bits.adjacency import BitAdjacency


@torch.compiler.disable(reason="what is kept beside a pattern is nothing a graph can hold")
def transposed(adjacency: BitAdjacency) -> tuple[Tensor, Tensor]:
    """Implement :meth:`BitAdjacency.transposed`."""
    return adjacency._kept_transposed()
