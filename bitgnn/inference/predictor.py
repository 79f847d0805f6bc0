"""Picks layout, method and executor from statistics of the graph and the model, without measuring.

For each way to run a forward a linear function of logarithms was fitted to recorded latencies
beside those of the usual way, see ``scripts/train_predictor.py``; its weights are in
``predictor.json``. The way with the least prediction is taken.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from bitgnn.inference.costs import StepCost, step_cost

if TYPE_CHECKING:
    from bitgnn.inference.frozen_model import FrozenModel

__all__ = [
    "STATISTICS",
    "Predictor",
    "Way",
    "describe_forward",
    "describe_graph",
    "logarithms",
    "predictor_for",
]

FILE = Path(__file__).with_suffix(".json")
TILE = 4
"""Columns that share a tile of the FRDC layout."""
WORD_BITS = 32
QUANTILES = {"median_degree": 0.5, "high_degree": 0.99}

STATISTICS = (
    "nodes",
    "edges",
    "median_degree",
    "high_degree",
    "largest_degree",
    "untiled",
    "aggregated_words",
    "aggregated_floats",
    "product_bits",
    "product_floats",
    "bytes",
    "steps",
)
"""What predictions depend on, each by its logarithm."""


@dataclass(frozen=True)
class Way:
    """One way to run a forward.

    Attributes:
        layout: of the graph.
        method: of its tiles, None for other layouts.
        executor: name of the executor.
    """

    layout: str
    method: str | None
    executor: str


def describe_graph(rowptr: Tensor, indices: Tensor) -> dict[str, float]:
    """Statistics of a graph in CSR.

    Args:
        rowptr: ``[N + 1]``, rows being destinations.
        indices: ``[E]``, source of each edge.

    Returns:
        ``nodes``, ``edges``, the ``median_degree``, ``high_degree`` (99 of 100 nodes have fewer
        neighbours), ``largest_degree``, and ``untiled``: the share of neighbours that are no
        tile's width from the one before, so that FRDC tiles would hold one edge.
    """
    degrees = rowptr.diff()
    nodes = degrees.numel()
    found = {"nodes": float(nodes), "edges": float(indices.numel())}
    ordered = degrees.sort().values
    for name, q in QUANTILES.items():
        found[name] = float(ordered[int(q * (nodes - 1))]) if nodes else 0.0
    found["largest_degree"] = float(ordered[-1]) if nodes else 0.0
    tile = indices // TILE
    found["untiled"] = float((tile[1:] != tile[:-1]).float().mean()) if tile.numel() > 1 else 1.0
    return found


def describe_forward(
    frozen: FrozenModel, packed: bool, graph: Mapping[str, float], graphs: Sequence[Any]
) -> dict[str, float]:
    """What the latency of a forward depends on.

    Args:
        frozen: the frozen model.
        packed: whether it is given packed features, so that it packs none.
        graph: of :func:`describe_graph`.
        graphs: the adjacencies in order, in any layout.

    Returns:
        The graph's statistics, words and floats that aggregations gather, operations of the other
        steps in bits and in floats, bytes these touch, and the number of steps.
    """
    num_nodes = int(graph["nodes"])
    words = floats = 0.0
    others = StepCost()
    steps = frozen.program.steps[(frozen.program.entry or 0) if packed else 0 :]
    for step in steps:
        if step.kind.startswith("bspmm_") and step.graph is not None:
            edges, held = graphs[step.graph].nnz, frozen.registers[step.inputs[0]]
            size = held.size or 0
            if held.form == "bits":
                words += edges * -(-size // WORD_BITS)
            else:
                floats += edges * size
        else:
            others += step_cost(frozen, step, num_nodes, graphs)
    return {
        **graph,
        "aggregated_words": words,
        "aggregated_floats": floats,
        "product_bits": float(others.bit_operations),
        "product_floats": float(others.float_operations),
        "bytes": float(others.bytes),
        "steps": float(len(steps)),
    }


def logarithms(statistics: Mapping[str, float]) -> list[float]:
    """Inputs of a prediction: a constant, and the logarithm of each statistic plus 1."""
    return [1.0, *(math.log1p(statistics[name]) for name in STATISTICS)]


@dataclass(frozen=True)
class Predictor:
    """Latencies of one kind of device beside those of its usual way.

    Attributes:
        usual: the way that the others are compared with.
        weights: of :func:`logarithms`, for each other way: they give the logarithm of its latency
            as a multiple of the usual one.
        low: least input seen in training; smaller ones count as this.
        high: largest input seen in training.
    """

    usual: Way
    weights: Mapping[Way, tuple[float, ...]]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def ratios(self, statistics: Mapping[str, float]) -> dict[Way, float]:
        """Expected latency of every way as a multiple of the usual one."""
        inputs = [
            min(max(value, low), high)
            for value, low, high in zip(logarithms(statistics), self.low, self.high, strict=True)
        ]
        found = {
            way: math.exp(sum(w * value for w, value in zip(weights, inputs, strict=True)))
            for way, weights in self.weights.items()
        }
        return {self.usual: 1.0, **found}

    def best(self, statistics: Mapping[str, float], ways: Iterable[Way]) -> Way:
        """The way that is expected to be fastest.

        Args:
            statistics: of :func:`describe_forward`.
            ways: those that can be had; ones without a prediction count as bad.

        Raises:
            ValueError: there is none.
        """
        ratios = self.ratios(statistics)
        return min(ways, key=lambda way: ratios.get(way, math.inf))

    def description(self) -> dict[str, Any]:
        """Plain values that :meth:`from_description` reads."""
        return {
            "usual": asdict(self.usual),
            "ways": [
                {**asdict(way), "weights": list(weights)} for way, weights in self.weights.items()
            ],
            "low": list(self.low),
            "high": list(self.high),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Predictor:
        """The inverse of :meth:`description`."""
        weights = {
            Way(entry["layout"], entry["method"], entry["executor"]): tuple(entry["weights"])
            for entry in description["ways"]
        }
        bounds = (tuple(description[name]) for name in ("low", "high"))
        return cls(Way(**description["usual"]), weights, *bounds)


@cache
def predictor_for(device_type: str) -> Predictor | None:
    """The predictor of a kind of device, ``"cpu"`` or ``"cuda"``; None where none was trained."""
    if not FILE.exists():
        return None
    devices = json.loads(FILE.read_text())["devices"]
    found = devices.get(device_type)
    return None if found is None else Predictor.from_description(found)
