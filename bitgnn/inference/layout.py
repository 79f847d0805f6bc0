"""In which layouts a prepared graph holds its patterns."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Literal

import torch

from bitgnn.bits import BitAdjacency, BlockedAdjacency
from bitgnn.inference.graph import Adjacency
from bitgnn.ops._adjacency import default_layout

__all__ = ["GraphLayout", "laid_out"]

GraphLayout = Literal["auto", "csr", "sliced", "blocked"]
"""CSR alone; CSR with column slices beside it; column blocks alone; or what is expected to be
fastest on the graph's device."""


def laid_out(adjacency: Adjacency, layout: GraphLayout, widths: Iterable[int]) -> Adjacency:
    """The adjacency in a layout; one with float values is left as it is.

    Args:
        adjacency: as a layer makes it.
        layout: what to hold.
        widths: words of the packed rows that are aggregated with it.
    """
    if not isinstance(adjacency, BitAdjacency) or layout == "csr":
        return adjacency
    if layout == "blocked":
        return BlockedAdjacency.from_adjacency(adjacency)
    for words in widths:
        chosen = default_layout(words, adjacency) if layout == "auto" else layout
        if chosen == "csr":
            continue
        try:
            adjacency.plan_layout(words, chosen)
        except torch.OutOfMemoryError:
            if layout != "auto":
                raise
            warnings.warn(
                "prepare_graph: no memory to build the sliced layout, which would be faster; the "
                "graph stays in CSR. Give layout='csr' to ask for it",
                ResourceWarning,
                stacklevel=3,
            )
            break
    return adjacency
