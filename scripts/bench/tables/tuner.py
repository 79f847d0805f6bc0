"""Table of the tuner's benchmark: calls of the command, and what they recommend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.report import markdown_table
from bitgnn.measure.report import format_ratio, format_seconds


def runs_table(record: Mapping[str, Any]) -> str:
    """Markdown of a record of ``scripts/bench_tune_runs.py``: one row a call of the command."""
    rows = []
    for result in record["results"]:
        chosen, every = result["chosen"], result["exhaustive"]
        loss = 100 * (result["reference"] - chosen["validation"])
        goal = result["goal"]
        rows.append(
            [
                f"`{result['command']}`",
                f"{result['seconds']:.1f} s" + ("" if goal is None else f" (≤ {goal:.0f} s)"),
                f"{result['measured']} of {result['space']}",
                format_seconds(chosen["latency"]),
                *(_beside(chosen, other) for other in result["baselines"].values()),
                f"{loss:+.1f}",
                "" if every is None else f"{every['ratio']:.3f}× of {every['plans']}",
            ]
        )
    header = [
        "call", "seconds in all", "plans measured", "recommended", "PyG fp32", "Bi-GCN emulated",
        "validation points lost", "beside the best of all that keep the limit",
    ]  # fmt: skip
    machines = {_machine(result["environment"]) for result in record["results"]}
    return f"{'; '.join(sorted(machines))}.\n\n{markdown_table(header, rows)}"


def _beside(chosen: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Latency of a baseline and how many times as long that is."""
    latency = other["latency"]
    return f"{format_seconds(latency)} ({format_ratio(latency / chosen['latency'])})"


def _machine(environment: Mapping[str, Any]) -> str:
    """Processor or GPU, threads and commit."""
    commit = (environment["commit"] or "unknown")[:10]
    where = environment.get("gpu") or f"{environment['cpu']}, {environment['threads']} threads"
    return f"{where}, commit {commit}"
