"""README's one table: accuracy and time of the PyG user's networks, in floats and in bits."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.report import Record, environment_line, table
from bench.tables.models import best_of, peer_seconds, shortest_calls
from bitgnn.measure.report import format_ratio, format_seconds

LAYERS = {"GCN": "GCNConv", "GraphSAGE": "SAGEConv"}
"""Models that the table shows, and their layer in the record of plain loops."""
LEAST_SEEDS = 3
NO_CALLS = ("", "")
ACCURACIES = (
    "Accuracies: two layers in a plain loop without a teacher, 64 hidden channels; times: the "
    "papers' networks."
)
CALLS = (
    "A call: the host's time from the call to its result on the GPU, Python included, by the "
    "shortest way to call."
)


def headline_table(records: Sequence[Record]) -> str:
    """A row for each model and graph."""
    *speed, loops = records
    by_name: dict[tuple[str, str], list[Record | None]] = {}
    for place, record in enumerate(speed):
        for result in record["results"]:
            if result["model"] in LAYERS:
                row = by_name.setdefault((result["model"], result["graph_name"]), [None, None])
                row[place] = result
    rows = [(name, *map(_times, results), _calls(results[1])) for name, results in by_name.items()]
    has_calls = any(row[3] != NO_CALLS for row in rows)
    calls = (
        ("a call: PyG's best", lambda row: row[3][0]),
        ("bits", lambda row: row[3][1]),
    )
    found = table(
        rows,
        ("network", lambda row: ", ".join(row[0])),
        ("fp32, %", lambda row: _accuracy(loops, row[0], "fp32")),
        ("bits, %", lambda row: _accuracy(loops, row[0], "bin")),
        ("CPU: PyG's best", lambda row: row[1][0]),
        ("bits", lambda row: row[1][1]),
        ("ratio", lambda row: row[1][2]),
        ("GPU: PyG's best", lambda row: row[2][0]),
        ("bits", lambda row: row[2][1]),
        ("ratio", lambda row: row[2][2]),
        *(calls if has_calls else ()),
    )
    lines = [*map(environment_line, speed), ACCURACIES, *[CALLS] * has_calls]
    return f"{found}\n" + "".join(f"- {line}\n" for line in lines)


def _times(result: Record | None) -> tuple[str, str, str]:
    """PyG's best, ours from floats, and their ratio."""
    entry = None if result is None else best_of(result, "bin", "floats")
    peer = None if result is None else peer_seconds(result, "PyG")
    if entry is None or peer is None:
        return "", "", ""
    seconds = entry["seconds"]
    return format_seconds(peer), format_seconds(seconds), format_ratio(peer / seconds)


def _calls(result: Record | None) -> tuple[str, str]:
    """Shortest calls of PyG and of ours from floats, on the host."""
    found = None if result is None else shortest_calls(result, "bin", "floats")
    return NO_CALLS if found is None else (format_seconds(found[0]), format_seconds(found[1]))


def _accuracy(loops: Record, network: Sequence[str], form: str) -> str:
    """Mean test accuracy of two-layer networks, where enough were trained."""
    model, graph = network
    found = [
        run["test"]
        for run in loops["runs"]
        if (run["layer"], run["layers"], run["form"]) == (LAYERS[model], 2, form)
        and run["graph"] == graph  # made-up features say nothing about accuracy
        and "failed" not in run
    ]
    return f"{statistics.mean(found):.1f}" if len(found) >= LEAST_SEEDS else ""
