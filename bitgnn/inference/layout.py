"""In which layouts a prepared graph holds its patterns."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, Literal, get_args

import torch

from bitgnn.bits import BitAdjacency
from bitgnn.bits.layouts import FRDC_METHODS
from bitgnn.inference.graph import Adjacency
from bitgnn.ops.layout_choice import default_layout

GraphLayout = Literal["auto", "csr", "sliced", "frdc"]
"""CSR, sliced where a graph on a GPU is dense; CSR alone; CSR with column slices beside
it; CSR with 4 x 4 bit tiles beside it."""


def check_layout(who: str, layout: Any, method: Any) -> None:
    """Refuse a layout that does not exist, or a method that is not one of its.

    Raises:
        ValueError: naming the argument, what it was and what it must be.
    """
    layouts = get_args(GraphLayout)
    if layout not in layouts:
        raise ValueError(f"{who}: layout must be one of {list(layouts)}, got {layout!r}")
    if method is None:
        return
    if method not in FRDC_METHODS:
        raise ValueError(
            f"{who}: method must be None or one of {list(FRDC_METHODS)}, got {method!r}"
        )
    if layout != "frdc":
        raise ValueError(f"{who}: method {method!r} is one of layout 'frdc', got layout {layout!r}")


def laid_out(
    adjacency: Adjacency,
    layout: GraphLayout,
    widths: Iterable[int],
    method: str | None = None,
    must: bool = True,
) -> Adjacency:
    """The adjacency in a layout; one with float values is left as it is.

    Args:
        adjacency: as a layer makes it.
        layout: what to hold.
        widths: words of the packed rows that are aggregated with it.
        method: of FRDC tiles; None for the default.
        must: whether a lack of memory for slices is an error; else the graph stays in CSR.
    """
    if not isinstance(adjacency, BitAdjacency) or layout == "csr":
        return adjacency
    if layout == "frdc":
        return _tiled(adjacency, widths, method)
    for words in widths:
        chosen = default_layout(words, adjacency) if layout == "auto" else layout
        if chosen == "csr":
            continue
        try:
            adjacency.plan_layout(words, chosen)
        except torch.OutOfMemoryError:
            if must:
                raise
            warnings.warn(
                "prepare_graph: no memory to build the sliced layout, which would be faster; the "
                "graph stays in CSR. Give layout='csr' to ask for it",
                ResourceWarning,
                stacklevel=3,
            )
            break
    return adjacency


def _tiled(adjacency: BitAdjacency, widths: Iterable[int], method: str | None) -> BitAdjacency:
    """The adjacency with FRDC tiles for packed rows; in CSR alone where an edge occurs twice."""
    if adjacency.frdc() is None:
        warnings.warn(
            "prepare_graph: layout 'frdc' cannot hold duplicate edges; layout 'csr' serves instead",
            UserWarning,
            stacklevel=4,
        )
        return adjacency
    for words in widths:
        adjacency.plan_layout(words, "frdc", method)
    return adjacency
