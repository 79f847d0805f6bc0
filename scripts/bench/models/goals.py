"""Figures that whole frozen models are to reach, and how much of each was reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bench.tasks import QUICK_GRAPH


@dataclass(frozen=True)
class ModelGoal:
    """A figure to reach.

    Attributes:
        kind: ``"seconds"`` or ``"bytes"`` (at most), or ``"ratio"``: times faster than PyG's best
            configuration, at least.
        value: the figure.
        form: ``"bin"`` or ``"full"``.
        features: forms of the features it is asked of.
    """

    kind: str
    value: float
    form: str
    features: tuple[str, ...] = ("floats", "packed")

    def to_dict(self, features: str, share: float | None) -> dict[str, Any]:
        """Plain values for JSON, with the part reached."""
        return {**asdict(self), "features": features, "reached": share}


BIN, FULL = "bin", "full"
FLOATS, PACKED = ("floats",), ("packed",)
ANY_PACKED = ("packed", "packed dense")
# On every real or large graph.
TWICE = ModelGoal("ratio", 2.0, FULL)
CITATION_ON_CPU = (ModelGoal("ratio", 8.0, BIN, FLOATS), ModelGoal("ratio", 20.0, BIN, PACKED))

_GOALS: Mapping[tuple[str, str, str], tuple[ModelGoal, ...]] = {
    ("cuda", "GCN", "cora"): (
        ModelGoal("seconds", 10e-6, BIN),
        ModelGoal("bytes", 0.6e6, BIN, ANY_PACKED),
    ),
    ("cuda", "GCN", "pubmed"): (ModelGoal("seconds", 20e-6, BIN),),
    ("cuda", "GCN", "flickr"): (ModelGoal("seconds", 80e-6, BIN),),
    ("cuda", "GCN", "reddit"): (
        ModelGoal("seconds", 1.4e-3, BIN),
        ModelGoal("bytes", 0.40e9, BIN, ANY_PACKED),
    ),
    ("cuda", "GraphSAGE", "flickr"): (ModelGoal("seconds", 0.12e-3, BIN),),
    ("cuda", "GraphSAGE", "reddit"): (ModelGoal("seconds", 2.5e-3, BIN),),
    ("cuda", "GraphSAINT", "flickr"): (ModelGoal("ratio", 10.0, BIN),),
    ("cuda", "GraphSAINT", "reddit"): (ModelGoal("ratio", 10.0, BIN),),
    ("cpu", "GCN", "cora"): CITATION_ON_CPU,
    ("cpu", "GCN", "citeseer"): CITATION_ON_CPU,
    ("cpu", "GCN", "pubmed"): CITATION_ON_CPU,
    ("cpu", "GCN", "flickr"): (ModelGoal("ratio", 20.0, BIN),),
    ("cpu", "GCN", "reddit_eighth"): (ModelGoal("ratio", 40.0, BIN),),
}


def goals(device: str, kind: str, graph: str, form: str, features: str) -> list[ModelGoal]:
    """The figures asked of one form of a model."""
    wanted = list(_GOALS.get((device, kind, graph), ()))
    if device == "cuda" and graph != QUICK_GRAPH:
        wanted.append(TWICE)
    return [goal for goal in wanted if goal.form == form and features in goal.features]


def reached(
    goal: ModelGoal, seconds: float | None, peer_seconds: float | None, peak_bytes: float | None
) -> float | None:
    """Part of the goal that was reached, 1 or more where all of it; None where not measured."""
    if goal.kind == "bytes":
        return None if peak_bytes is None else goal.value / peak_bytes
    if seconds is None:
        return None
    if goal.kind == "seconds":
        return goal.value / seconds
    return None if peer_seconds is None else peer_seconds / seconds / goal.value
