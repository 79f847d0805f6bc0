"""Turns benchmark records into the marked sections of documents: no number is typed by hand."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.report import environment_line, format_reached, markdown_table, not_measured
from bench.tables.accuracies import accuracies_table, training_cost_table
from bench.tables.headline import headline_table
from bench.tables.images import images_table
from bench.tables.models import memory_table, models_table
from bench.tables.networks import bnn_table, parts_table
from bench.tables.plain_loop import depth_table, plain_loop_table
from bench.tables.text import decoder_speed_table, decoder_table, text_table
from bench.tables.timings import (
    default_speed_table,
    runs_table,
    stream_table,
    training_steps_table,
)
from bitgnn.measure.report import format_ratio, format_seconds

Record = dict[str, Any]
NOT_MEASURED = "Not measured yet.\n"


def cases_table(record: Record, subject: str = "operator") -> str:
    """Markdown of a record of benchmark cases: one row a case, skipped ones named."""
    has_ceilings = any("ceiling_fraction" in result for result in record["results"])
    rows = []
    for result in record["results"]:
        best, fraction = result["best_baseline"], result.get("ceiling_fraction")
        row = [
            f"{result['group']}: {result['name']}",
            format_seconds(result["ours"]["median"]),
            ""
            if best is None
            else f"{format_seconds(result['baselines'][best]['median'])} ({best})",
            "" if best is None else format_ratio(result["ratio"]),
        ]
        if has_ceilings:
            row.append("" if fraction is None else f"{fraction:.0%} ({result['binds']})")
        rows.append([*row, _goal(result)])
    header = [subject, "bitgnn", "best baseline", "ratio"]
    header += ["of the ceiling", "goal"] if has_ceilings else ["goal"]
    table = markdown_table(header, rows)
    return f"{environment_line(record)}\n\n{table}{not_measured(*record['skipped'])}"


def conversion_table(record: Record) -> str:
    """Markdown of a record of ``scripts/bench_conversion.py``: a row a model, medians of stages."""
    stages = list(record["results"][0]["stages"])
    rows = []
    for result in record["results"]:
        parts = [format_seconds(statistics.median(result["stages"][stage])) for stage in stages]
        goal = result["goal_seconds"]
        rows.append(
            [
                result["name"],
                *parts,
                format_seconds(result["median"]),
                "" if goal is None else f"≤ {format_seconds(goal)}",
            ]
        )
    table = markdown_table(["model", *stages, "whole", "goal"], rows)
    return f"{environment_line(record)}\n\n{table}"


PROFILE_COLUMNS = {
    "time, ns": "Duration [ns]",
    "compute": "Compute (SM) Throughput [%]",
    "L1 and shared memory": "L1/TEX Cache Throughput [%]",
    "L2": "L2 Cache Throughput [%]",
    "DRAM": "DRAM Throughput [%]",
    "warps resident": "Achieved Occupancy [%]",
}


def cuda_profile_table(record: Record) -> str:
    """Markdown of a record of ``scripts/profile_cuda.py``: one row a kernel, use in per cent."""
    rows = [
        [case["name"], kernel["kernel"].split("<")[0].split("::")[-1]]
        + [kernel["metrics"].get(metric, "") for metric in PROFILE_COLUMNS.values()]
        for case in record["cases"]
        for kernel in case["kernels"]
    ]
    header = ["operator", "kernel", *PROFILE_COLUMNS]
    machine = record["environment"]
    line = (
        f"{machine['gpu']}, commit {(machine['commit'] or 'unknown')[:10]}, {machine['date'][:10]}"
    )
    return f"{line}; use of each unit in per cent.\n\n{markdown_table(header, rows)}"


def _goal(result: Record) -> str:
    """The figure to reach in its own unit, and how much of it was reached."""
    if result.get("target") is not None:
        return f"{result['target']:.3g}×"
    goal = result.get("goal")
    if goal is None:
        return ""
    if goal["kind"] == "seconds":
        figure = f"≤ {format_seconds(goal['value'])}"
    elif goal["kind"] == "rate":
        figure = f"{goal['value'] / 1e12:.0f}·10¹² {result['unit']}s/s"
    else:
        figure = f"{format_ratio(goal['value'])} {goal['baseline'] or 'best baseline'}"
    return f"{figure}: {format_reached(result['reached'])}"


def profile_table(record: Record) -> str:
    """Markdown of a record of ``scripts/profile_cpu.py``: figures, their ceilings, their parts."""
    rows, parts = [], []
    for figure in record["figures"]:
        highest, goal = figure["highest_ratio"], figure.get("goal")
        rows.append(
            [
                figure["name"],
                format_ratio(figure["ratio"]),
                "" if highest is None else format_ratio(highest),
                "" if goal is None else format_ratio(goal),
                figure["bound"] or "not known here",
            ]
        )
        for part, timing in _profile_times(figure):
            parts.append([f"{figure['name']}: {part}", format_seconds(timing["median"])])
    figures = markdown_table(["figure", "ratio", "highest ratio", "goal", "bound by"], rows)
    times = markdown_table(["part", "time"], parts)
    return (
        f"{environment_line(record)} {_rates_line(record['rates']['per_second'])}\n\n"
        f"{figures}\n{times}{not_measured(*record['skipped'])}"
    )


def _profile_times(figure: Record) -> Iterator[tuple[str, Record]]:
    """Name and times of every part: of stages with their share, of bounds with the rate reached."""
    stages, bounds = figure.get("stages", {}), figure.get("bounds", {})
    for part, timing in figure["times"].items():
        if part in stages:
            yield f"{part} ({stages[part]['share']:.0%})", timing
        elif part in bounds:
            yield f"{part} at {_rate(bounds[part])}", timing
        else:
            yield part, timing
    for part, stage in stages.items():
        if part not in figure["times"]:
            yield f"{part} ({stage['share']:.0%})", {"median": stage["seconds"]}
    yield from figure.get("baselines", {}).items()


def _rate(bound: Record) -> str:
    """What a bound moves or computes in a second, such as ``38.1 GB/s``."""
    size, unit = {"bytes": (1e9, "GB/s"), "rows": (1e9, "G rows/s"), "operations": (1e12, "TOPS")}[
        bound["unit"]
    ]
    return f"{bound['per_second'] / size:.3g} {unit}"


def _rates_line(per_second: Record) -> str:
    """One sentence with the rates of the machine's instructions, by number of threads."""
    units = {
        "dependent_adds": (1e9, "GHz", "clock"),
        "xor_popcount_add": (1e12, "TOPS", "XOR, popcount, add"),
        "parity_popcount_add": (1e12, "TOPS", "the same on running parities"),
        "fused_multiply_adds": (1e12, "TFLOPS", "fp32 multiply-add"),
    }
    found = []
    for name, by_threads in per_second.items():
        size, unit, label = units[name]
        values = [f"{rate / size:.3g}" for rate in by_threads.values()]
        if unit == "GHz":  # clocks do not add up over threads
            values = values[:1]
        found.append(f"{label} {' and '.join(values)} {unit}")
    counts = " and ".join(next(iter(per_second.values())))
    return f"Peak rates on {counts} threads: {'; '.join(found)}."


HEADLINE = "models_cpu.json models_cuda.json plain_loop.json"


def _of_first(table: Callable[[Record], str]) -> Callable[[Sequence[Record]], str]:
    return lambda records: table(records[0])


# Patterns of file names, and what makes a table of the records.
TABLES: Mapping[str, tuple[str, Callable[[Sequence[Record]], str]]] = {
    "headline": (HEADLINE, headline_table),
    "ops": ("ops.json", _of_first(cases_table)),
    "ops_cuda": ("ops_cuda.json", _of_first(cases_table)),
    "profile_cuda": ("profile_cuda.json", _of_first(cuda_profile_table)),
    "models": ("models_cpu.json", _of_first(models_table)),
    "models_cuda": ("models_cuda.json", _of_first(models_table)),
    "models_memory": ("models_c*.json", memory_table),
    "stream": ("stream_c*.json", stream_table),
    "profile": ("profile_cpu.json", _of_first(profile_table)),
    "bnn_cuda": ("bnn_cuda.json", _of_first(bnn_table)),
    "bnn_parts": ("bnn_cuda.json", _of_first(parts_table)),
    "bnn_cpu": ("bnn_cpu.json", _of_first(bnn_table)),
    "bwta_cuda": ("bwta_cuda.json", _of_first(bnn_table)),
    "bwta_cpu": ("bwta_cpu.json", _of_first(bnn_table)),
    "layers": ("layers.json", _of_first(partial(cases_table, subject="layer"))),
    "conversion": ("conversion.json", _of_first(conversion_table)),
    "accuracy": ("accuracy_table3.json", _of_first(accuracies_table)),
    "accuracy_second": ("accuracy_second.json", _of_first(accuracies_table)),
    "accuracy_ternary": ("accuracy_ternary.json", _of_first(accuracies_table)),
    "plain_loop": ("plain_loop.json", _of_first(plain_loop_table)),
    "plain_loop_depth": ("plain_loop_depth.json", _of_first(plain_loop_table)),
    "default_speed_cpu": ("default_speed_cpu.json", _of_first(default_speed_table)),
    "default_speed_cuda": ("default_speed_cuda.json", _of_first(default_speed_table)),
    "depth": ("depth.json", _of_first(depth_table)),
    "images": ("images_*.json", images_table),
    "text": ("text_*.json", text_table),
    "decoder": ("text_*.json", decoder_table),
    "decoder_cuda": ("decoder_cuda.json", _of_first(decoder_speed_table)),
    "tuner_runs": ("tuner_runs.json", _of_first(runs_table)),
    "training_steps": ("training_cuda.json", _of_first(training_steps_table)),
    "training_cost": ("training_cost.json", _of_first(training_cost_table)),
}


def section(name: str, results: Path) -> str:
    """The text between the markers of table ``name``, from the records in folder ``results``."""
    patterns, render = TABLES[name]
    paths = [path for pattern in patterns.split() for path in sorted(results.glob(pattern))]
    records = [json.loads(path.read_text("utf-8")) for path in paths]
    return render(records) if records else NOT_MEASURED


def documents(root: Path) -> list[Path]:
    """Documents of a checkout that have tables."""
    found = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [path for path in found if "<!-- table:" in path.read_text("utf-8")]


def fill(text: str, results: Path) -> str:
    """``text`` with every section ``<!-- table:NAME --> … <!-- /table:NAME -->`` made anew."""
    unknown = set(re.findall(r"<!-- /?table:(\w+) -->", text)) - set(TABLES)
    if unknown:
        raise ValueError(f"bench.fill: unknown tables {sorted(unknown)}, known: {sorted(TABLES)}")
    if not re.search(r"<!-- table:\w+ -->", text):
        raise ValueError("bench.fill: the text has no marker <!-- table:NAME -->")
    for name in TABLES:
        begin, end = f"<!-- table:{name} -->", f"<!-- /table:{name} -->"
        if begin not in text and end not in text:
            continue
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"bench.fill: {begin} and {end} must each stand once in the text")
        head, rest = text.split(begin)
        tail = rest.partition(end)[2]
        text = f"{head}{begin}\n\n{section(name, results)}\n{end}{tail}"
    return text
