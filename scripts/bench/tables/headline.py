"""README's one table: accuracy and time of the PyG user's networks, in floats and in bits."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from bench.report import environment_line, markdown_table
from bench.tables.models import best_of, peer_seconds
from bitgnn.measure.report import format_ratio, format_seconds

Record = dict[str, Any]
LAYERS = {"GCN": "GCNConv", "GraphSAGE": "SAGEConv"}
"""Models that the table shows, and their layer in the record of plain loops."""
LEAST_SEEDS = 3


def headline_table(records: Sequence[Record]) -> str:
    """A row for each model and graph."""
    *speed, loops = records
    by_name: dict[tuple[str, str], list[Record | None]] = {}
    for place, record in enumerate(speed):
        for result in record["results"]:
            if result["model"] in LAYERS:
                row = by_name.setdefault((result["model"], result["graph_name"]), [None, None])
                row[place] = result
    rows = []
    for (model, graph), results in by_name.items():
        cells = [cell for result in results for cell in _times(result)]
        rows.append([f"{model}, {graph}", *_accuracies(loops, LAYERS[model], graph), *cells])
    header = [
        "network", "fp32, %", "bits, %", "CPU: PyG's best", "bits", "ratio", "GPU: PyG's best",
        "bits", "ratio",
    ]  # fmt: skip
    machines = "\n".join(f"- {environment_line(record)}" for record in speed)
    return (
        f"{markdown_table(header, rows)}\n{machines}\n- Accuracies: two layers in a plain loop "
        "without a teacher, 64 hidden channels; times: the papers' networks.\n"
    )


def _times(result: Record | None) -> Iterator[str]:
    entry = None if result is None else best_of(result, "bin", "floats")
    peer = None if result is None else peer_seconds(result, "PyG")
    if entry is None or peer is None:
        yield from ("", "", "")
        return
    yield from (format_seconds(peer), format_seconds(entry["seconds"]))
    yield format_ratio(peer / entry["seconds"])


def _accuracies(loops: Record, layer: str, graph: str) -> Iterator[str]:
    """Mean test accuracy in floats and in bits of two-layer networks, where they were trained."""
    for form in ("fp32", "bin"):
        found = [
            run["test"]
            for run in loops["runs"]
            if (run["layer"], run["layers"], run["form"]) == (layer, 2, form)
            and run["graph"] == graph  # made-up features say nothing about accuracy
            and "failed" not in run
        ]
        yield f"{statistics.mean(found):.1f}" if len(found) >= LEAST_SEEDS else ""
