"""README's table of the tuner's benchmark: its choices beside the best plans of recordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.report import markdown_table
from bitgnn.measure.report import format_ratio, format_seconds

GOALS = {"ratio": 1.05, "share": 0.2, "error": 0.15, "order": 0.9, "mean": 1.10, "worst": 1.3}
"""Latency of the choice beside the best plan's, share of plans measured, median error of estimates,
pairs of plans in the right order, and latency of the predictor's choices, on average and at
worst."""
NOISY_SHARE = 0.25
"""Part of a recording's timings that may be noisy before it is named."""


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
                    _with_gpu(result),
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
    notes = "".join(f"- {_recorded(found)}\n" for found in records)
    return f"{markdown_table(header, [*rows, goals])}\n{notes}"


def _with_gpu(result: Mapping[str, Any]) -> str:
    """Latency of the choice, and what of it a GPU works."""
    latency = format_seconds(result["chosen"])
    return latency if result["gpu"] is None else f"{latency} (GPU {format_seconds(result['gpu'])})"


def _recorded(found: Mapping[str, Any]) -> str:
    """Machines and models of a record, and which of its recordings were noisy."""
    results = found["results"]
    models = dict.fromkeys(result["key"].partition("/")[2] for result in results)
    machines = dict.fromkeys(_machine(result["environment"]) for result in results)
    noisy = [f"{r['name']} ({r['noisy']:.0%})" for r in results if r["noisy"] > NOISY_SHARE]
    text = f"{found['device']}: {', '.join(models)} on {'; '.join(machines)}"
    spread = f"; timings that spread by more than a quarter: {', '.join(noisy)}" if noisy else ""
    return f"{text}{spread}."


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
