"""The layout that is taken where nobody names one: what the predictor expects to be fastest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bitgnn.bits import BitAdjacency
from bitgnn.bits.layouts import FRDC_METHODS
from bitgnn.inference.predictor import Way, describe_forward, predictor_for

if TYPE_CHECKING:
    from bitgnn.inference.graph_program import GraphProgram

__all__ = ["USUAL_EXECUTOR", "predicted_layout"]

USUAL_EXECUTOR = {"cpu": "eager", "cuda": "cuda_graph"}
LAYOUTS = ("csr", "frdc")
"""Layouts to choose from on a CPU."""


def predicted_layout(frozen: GraphProgram, graphs: Sequence[Any]) -> tuple[Any, str | None] | None:
    """Layout and method in which forwards on a CPU are expected to be fastest.

    Args:
        frozen: the frozen model.
        graphs: its adjacencies in CSR, in order.

    Returns:
        The two; None where operators choose for each width, as on a GPU, or nothing was learned.
    """
    device = graphs[0].device.type if graphs else "cpu"
    predictor = predictor_for(device)
    if predictor is None or device != "cpu":
        return None
    ways = [
        Way(layout, method, USUAL_EXECUTOR[device])
        for layout in frozen.useful_layouts()
        if layout in LAYOUTS
        for method in (FRDC_METHODS if layout == "frdc" else (None,))
    ]
    packed = frozen.features == "packed"
    statistics = describe_forward(frozen, packed, graphs[0].num_cols, graphs)
    way = predictor.choose(statistics, ways)
    if way.layout == "frdc" and not all(map(_fits_tiles, graphs)):
        way = predictor.choose(statistics, [way for way in ways if way.layout != "frdc"])
    return way.layout, way.method


def _fits_tiles(graph: Any) -> bool:
    return not isinstance(graph, BitAdjacency) or graph.frdc() is not None
