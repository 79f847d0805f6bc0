"""Figures that whole frozen models are to reach."""

from __future__ import annotations

from collections.abc import Mapping

from bench.cases import Goal
from bench.tasks import QUICK_GRAPH

FLOATS, PACKED = ("floats",), ("packed",)
EITHER, SMALLEST = ("floats", "packed"), ("packed", "packed dense")
TWICE = Goal("ratio", 2.0)
"""Of the form "full" on every real or large graph on CUDA."""
CITATION = ((FLOATS, Goal("ratio", 8.0)), (PACKED, Goal("ratio", 20.0)))

_BIN: Mapping[tuple[str, str, str], tuple[tuple[tuple[str, ...], Goal], ...]] = {
    ("cuda", "GCN", "cora"): (
        (EITHER, Goal("seconds", 10e-6)),
        (SMALLEST, Goal("bytes", 0.6e6)),
    ),
    ("cuda", "GCN", "pubmed"): ((EITHER, Goal("seconds", 20e-6)),),
    ("cuda", "GCN", "flickr"): ((EITHER, Goal("seconds", 80e-6)),),
    ("cuda", "GCN", "reddit"): (
        (EITHER, Goal("seconds", 1.4e-3)),
        (SMALLEST, Goal("bytes", 0.40e9)),
    ),
    ("cuda", "GraphSAGE", "flickr"): ((EITHER, Goal("seconds", 0.12e-3)),),
    ("cuda", "GraphSAGE", "reddit"): ((EITHER, Goal("seconds", 2.5e-3)),),
    ("cuda", "GraphSAINT", "flickr"): ((EITHER, Goal("ratio", 10.0)),),
    ("cuda", "GraphSAINT", "reddit"): ((EITHER, Goal("ratio", 10.0)),),
    ("cpu", "GCN", "cora"): CITATION,
    ("cpu", "GCN", "citeseer"): CITATION,
    ("cpu", "GCN", "pubmed"): CITATION,
    ("cpu", "GCN", "flickr"): ((EITHER, Goal("ratio", 20.0)),),
    ("cpu", "GCN", "reddit_eighth"): ((EITHER, Goal("ratio", 40.0)),),
}
"""Of the form "bin" by device, model and graph: the forms of the features that are meant, and the
figure; ratios are against PyG's best configuration."""


def goals(device: str, kind: str, graph: str, form: str, features: str) -> list[Goal]:
    """The figures asked of one form of a model."""
    if form == "bin":
        wanted = _BIN.get((device, kind, graph), ())
        return [goal for meant, goal in wanted if features in meant]
    return [TWICE] if device == "cuda" and graph != QUICK_GRAPH and features in EITHER else []
