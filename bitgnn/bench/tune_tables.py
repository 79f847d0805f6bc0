"""README's table of the tuner's benchmark: its choices beside the best plans of recordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bitgnn.bench.report import format_seconds, markdown_table

__all__ = ["GOALS", "tuner_table"]

GOALS = {"ratio": 1.05, "share": 0.2, "error": 0.15, "order": 0.9, "mean": 1.10, "worst": 1.3}
"""Latency of the choice beside the best plan's, share of plans measured, median error of estimates,
pairs of plans in the right order, and latency of the predictor's choices, on average and at
worst."""


def tuner_table(records: Sequence[Mapping[str, Any]]) -> str:
    """Markdown of the records of ``scripts/bench_tune.py``: one row a graph and device."""
    rows = []
    for found in records:
        for result in found["results"]:
            predictor = result["predictor"]
            rows.append(
                [
                    f"{found['device']}: {result['name']}",
                    f"{result['plans']} of {result['space']}",
                    f"{result['measured']} ({result['share']:.0%})",
                    format_seconds(result["best"]),
                    format_seconds(result["chosen"]),
                    f"{result['ratio']:.3f}×",
                    f"{result['error']:.0%}",
                    f"{result['order']:.0%}",
                    ""
                    if predictor is None
                    else f"{predictor['mean']:.2f}×, {predictor['worst']:.2f}×",
                ]
            )
    header = [
        "device and graph", "plans recorded", "measured by the tuner", "best", "chosen", "ratio",
        "error of estimates", "pairs in order", "predictor: mean, worst",
    ]  # fmt: skip
    goals = [
        "goal", "", f"≤ {GOALS['share']:.0%}", "", "", f"≤ {GOALS['ratio']:.2f}×",
        f"≤ {GOALS['error']:.0%}", f"≥ {GOALS['order']:.0%}",
        f"≤ {GOALS['mean']:.2f}×, {GOALS['worst']:.2f}×",
    ]  # fmt: skip
    return markdown_table(header, [*rows, goals])
