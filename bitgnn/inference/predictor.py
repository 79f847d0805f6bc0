"""Picks layout, method and executor from statistics of the graph and the model, without measuring.

The latency of a forward is taken to be a sum: what its products and aggregations of floats cost,
however it is run, and what the way it is run costs by itself, for each step and for each gathered
word. All weights are at least 0 and were fitted together to recorded latencies, see
``scripts/train_predictor.py``; they lie in ``predictor.json``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitgnn.inference.costs import StepCost, step_cost
from bitgnn.ops._adjacency import default_layout

if TYPE_CHECKING:
    from bitgnn.inference.graph_program import GraphProgram

__all__ = [
    "OWN",
    "SHARED",
    "Predictor",
    "Way",
    "describe_forward",
    "graphs_of",
    "predictor_for",
]

FILE = Path(__file__).with_suffix(".json")
WORD_BITS = 32

SAVING = 0.05
"""Share of the latency that another layout must save: it takes memory, and time to build."""
USUAL, EXECUTOR_SAVING = "cuda_graph", 0.15
"""Executor that takes every model on a GPU, and the share that another one must save: that which
takes small models alone is recorded on too few sizes to trust less."""

SHARED = ("bytes", "product_bits", "product_floats", "aggregated_floats", "nodes")
"""Statistics whose weights are the same for every way to run a forward.

Few graphs do not tell what each way costs for a node from what a node costs in any way.
"""
OWN = ("constant", "steps", "aggregated_words")
"""Statistics of which every way has weights of its own."""


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


def describe_forward(
    frozen: GraphProgram, packed: bool, num_nodes: int, graphs: Sequence[Any]
) -> dict[str, float]:
    """What the latency of a forward depends on.

    Args:
        frozen: the frozen model.
        packed: whether it is given packed features, so that it packs none.
        num_nodes: nodes of the graph.
        graphs: the adjacencies in order, in any layout.

    Returns:
        Numbers of ``nodes``, ``edges`` (of all aggregations) and ``steps``; words and floats that
        aggregations gather, and those words that slices are for on this device; operations of the
        other steps in bits and in floats, and the bytes these touch; and the ``constant`` 1.
    """
    words = sliced = floats = edges = 0
    others = StepCost()
    steps = frozen.program.steps[(frozen.program.entry or 0) if packed else 0 :]
    for step in steps:
        if step.kind.startswith("bspmm_") and step.graph is not None:
            gathered, held = graphs[step.graph].nnz, frozen.registers[step.inputs[0]]
            size = held.size or 0
            edges += gathered
            if held.form == "bits" and step.kind[7] == "b":  # the letter of the adjacency
                row_words = -(-size // WORD_BITS)
                words += gathered * row_words
                if default_layout(row_words, graphs[step.graph]) == "sliced":
                    sliced += gathered * row_words
            else:
                floats += gathered * size
        else:
            others += step_cost(frozen, step, num_nodes, graphs)
    return {
        "constant": 1.0,
        "nodes": float(num_nodes),
        "edges": float(edges),
        "steps": float(len(steps)),
        "aggregated_words": float(words),
        "sliced_words": float(sliced),
        "aggregated_floats": float(floats),
        "product_bits": float(others.bit_operations),
        "product_floats": float(others.float_operations),
        "bytes": float(others.bytes),
    }


@dataclass(frozen=True)
class Predictor:
    """Latencies on one kind of device.

    Attributes:
        shared: seconds for each of :data:`SHARED`, whatever the way.
        own: seconds for each of :data:`OWN`, by way.
    """

    shared: tuple[float, ...]
    own: Mapping[Way, tuple[float, ...]]

    def seconds(self, statistics: Mapping[str, float], way: Way) -> float:
        """Expected latency; infinity for a way without weights.

        Args:
            statistics: of :func:`describe_forward`.
            way: how the forward is run.
        """
        if way not in self.own:
            return math.inf
        named = (*zip(SHARED, self.shared, strict=True), *zip(OWN, self.own[way], strict=True))
        return sum(weight * statistics[name] for name, weight in named)

    def order(self, statistics: Mapping[str, float], ways: Iterable[Way]) -> list[Way]:
        """The ways, those expected to be fastest first; equal ones keep their order.

        One CUDA graph comes first unless another executor is expected to save a good share.
        """

        def judged(way: Way) -> float:
            share = 1.0 - EXECUTOR_SAVING if way.executor == USUAL else 1.0
            return share * self.seconds(statistics, way)

        return sorted(ways, key=judged)

    def choose(self, statistics: Mapping[str, float], ways: Iterable[Way]) -> Way:
        """The way to take: plain CSR unless another layout is expected to save a good share.

        On devices with slices it is these or CSR, as operators choose for each width: that rule
        was fitted to more graphs and widths than whole forwards are recorded of. Column blocks,
        which no compiled program reads, are only taken where there is nothing else.

        Args:
            statistics: of :func:`describe_forward`.
            ways: those there are.

        Raises:
            ValueError: there are none.
        """
        ordered = self.order(statistics, ways)
        if not ordered:
            raise ValueError("Predictor.choose: ways must hold one at least, got none")
        if any(way.layout == "sliced" for way in self.own):
            layout = "sliced" if has_slices(statistics) else "csr"
            ordered = [way for way in ordered if way.layout == layout] or ordered
            return ordered[0]
        best = next((way for way in ordered if way.layout != "blocked"), ordered[0])
        plain = next((way for way in ordered if way.layout == "csr"), best)
        least = self.seconds(statistics, best)
        return best if least < (1.0 - SAVING) * self.seconds(statistics, plain) else plain

    def description(self) -> dict[str, Any]:
        """Plain values that :meth:`from_description` reads."""
        return {
            "shared": list(self.shared),
            "ways": [{**asdict(way), "own": list(own)} for way, own in self.own.items()],
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Predictor:
        """The inverse of :meth:`description`."""
        own = {
            Way(entry["layout"], entry["method"], entry["executor"]): tuple(entry["own"])
            for entry in description["ways"]
        }
        return cls(tuple(description["shared"]), own)


@cache
def predictor_for(device_type: str) -> Predictor | None:
    """The predictor of a kind of device, ``"cpu"`` or ``"cuda"``; None where none was trained."""
    if not FILE.exists():
        return None
    found = json.loads(FILE.read_text())["devices"].get(device_type)
    return None if found is None else Predictor.from_description(found)


def has_slices(statistics: Mapping[str, float]) -> bool:
    """Whether most words are gathered from slices where the layout is left open."""
    return 2.0 * statistics["sliced_words"] > statistics["aggregated_words"]


def graphs_of(adjacency: Any) -> tuple[Any, ...]:
    """The adjacencies of a prepared graph in order; none where there is no graph."""
    if adjacency is None:
        return ()
    held: tuple[Any, ...] = getattr(adjacency, "adjacencies", (adjacency,))
    return held
