"""Table of what ``scripts/experiments/default_speed.py`` records: times of the default models."""

from __future__ import annotations

from typing import Any

from bench.report import markdown_table
from bitgnn.measure.report import format_ratio, format_seconds

FORMS = (("default", "papers"), ("default, full", "papers, full"))


def default_speed_table(record: dict[str, Any]) -> str:
    """One row a graph: each layer's default model, and its time as a multiple of the papers'."""
    rows: dict[str, list[str]] = {}
    for case in record["cases"]:
        title = f"{case['graph']} ({case['nodes']} × {case['features']})"
        row = rows.setdefault(title, [title])
        for ours, papers in FORMS:
            time, other = (case["times"][form]["median"] for form in (ours, papers))
            row += [format_seconds(time), format_ratio(time / other)]
    layers = dict.fromkeys(case["layer"] for case in record["cases"])
    header = ["graph (nodes × features)"]
    for layer in layers:
        header += [f"{layer} bin", "of the papers'", f"{layer} full", "of the papers'"]
    machine = record["environment"]
    cpu = f"{machine['cpu']} ({machine['capability']}), {machine['threads']} threads"
    device = machine["gpu"] or cpu
    versions, commit = machine["versions"], machine["commit"][:10]
    where = f"{device}, torch {versions['torch']}, commit {commit}, {machine['date'][:10]}; medians"
    return f"{where}.\n\n{markdown_table(header, list(rows.values()))}"
