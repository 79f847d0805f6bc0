"""Tables of operators, layers and conversions, and of what binds them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial

from bench.report import (
    Record,
    environment_line,
    goal_text,
    markdown_table,
    not_measured,
    shown,
    table,
    versions_of,
)
from bitgnn.measure.report import format_ratio, format_seconds

PROFILE_COLUMNS = {
    "time, ns": "Duration [ns]",
    "compute": "Compute (SM) Throughput [%]",
    "L1 and shared memory": "L1/TEX Cache Throughput [%]",
    "L2": "L2 Cache Throughput [%]",
    "DRAM": "DRAM Throughput [%]",
    "warps resident": "Achieved Occupancy [%]",
}
"""Headings of metrics of Nsight Compute."""
RATES = {
    "dependent_adds": (1e9, "GHz", "clock"),
    "xor_popcount_add": (1e12, "TOPS", "XOR, popcount, add"),
    "parity_popcount_add": (1e12, "TOPS", "the same on running parities"),
    "fused_multiply_adds": (1e12, "TFLOPS", "fp32 multiply-add"),
}
"""Size, unit and name of the machine's rates."""
REMOVED = ("blocked", "column blocks")
"""Layouts of older records that the library no longer has."""
BOUNDS = {"bytes": (1e9, "GB/s"), "rows": (1e9, "G rows/s"), "operations": (1e12, "TOPS")}
"""Size and unit of what a bound moves or computes in a second."""


def cases_table(record: Record, subject: str = "operator") -> str:
    """Markdown of a record of benchmark cases: one row a case, skipped ones named."""

    def against(result: Record, text: Callable[[str], str]) -> str:
        return shown(result["best_baseline"], text)

    def baseline(result: Record, best: str) -> str:
        return f"{format_seconds(result['baselines'][best]['median'])} ({best})"

    def ceiling(result: Record) -> str:
        part = result["ceiling_fraction"]
        return "" if part is None else f"{part:.0%} ({result['binds']})"

    has_ceilings = any("ceiling_fraction" in result for result in record["results"])
    found = table(
        (r for r in record["results"] if not any(layout in r["name"] for layout in REMOVED)),
        (subject, lambda r: f"{r['group']}: {r['name']}"),
        ("bitgnn", lambda r: format_seconds(r["ours"]["median"])),
        ("best baseline", lambda r: against(r, partial(baseline, r))),
        ("ratio", lambda r: against(r, lambda best: format_ratio(r["ratio"]))),
        *[("of the ceiling", ceiling)] * has_ceilings,
        ("goal", _goal),
    )
    return f"{environment_line(record)}\n\n{found}{not_measured(record)}"


def _goal(result: Record) -> str:
    """The figure to reach in its own unit, and how much of it was reached."""
    if result.get("target") is not None:
        return f"{result['target']:.3g}×"
    if result.get("goal") is None:
        return ""

    def rate(value: float) -> str:
        return f"{value / 1e12:.0f}·10¹² {result['unit']}s/s"

    goal = {**result["goal"], "reached": result["reached"]}
    return goal_text(goal, rate, format_ratio, "best baseline")


def conversion_table(record: Record) -> str:
    """Markdown of a record of ``scripts/bench_conversion.py``: a row a model, medians of stages."""

    def of_stage(stage: str, result: Record) -> str:
        return format_seconds(statistics.median(result["stages"][stage]))

    def whole(result: Record) -> str:
        repeats = zip(*(result["stages"][stage] for stage in stages), strict=True)
        return format_seconds(statistics.median(map(sum, repeats)))

    stages = [stage for stage in record["results"][0]["stages"] if stage not in REMOVED]
    found = table(
        record["results"],
        ("model", lambda r: r["name"]),
        *((stage, partial(of_stage, stage)) for stage in stages),
        ("whole", whole),
        ("goal", lambda r: shown(r["goal_seconds"], lambda goal: f"≤ {format_seconds(goal)}")),
    )
    return f"{environment_line(record)}\n\n{found}"


def cuda_profile_table(record: Record) -> str:
    """Markdown of a record of ``scripts/profile_cuda.py``: one row a kernel, use in per cent."""
    rows = [
        [case["name"], kernel["kernel"].split("<")[0].split("::")[-1]]
        + [kernel["metrics"].get(metric, "") for metric in PROFILE_COLUMNS.values()]
        for case in record["cases"]
        for kernel in case["kernels"]
    ]
    found = markdown_table(["operator", "kernel", *PROFILE_COLUMNS], rows)
    where = versions_of(record).partition("commit")[2]
    gpu = record["environment"]["gpu"]
    return f"{gpu}, commit{where}; use of each unit in per cent.\n\n{found}"


def profile_table(record: Record) -> str:
    """Markdown of the CPU's profile: figures, their ceilings, their parts."""
    figures = table(
        record["figures"],
        ("figure", lambda f: f["name"]),
        ("ratio", lambda f: format_ratio(f["ratio"])),
        ("highest ratio", lambda f: shown(f["highest_ratio"], format_ratio)),
        ("goal", lambda f: shown(f.get("goal"), format_ratio)),
        ("bound by", lambda f: f["bound"] or "not known here"),
    )
    parts = [
        (f"{figure['name']}: {part}", seconds)
        for figure in record["figures"]
        for part, seconds in _parts(figure)
    ]
    times = table(parts, ("part", lambda p: p[0]), ("time", lambda p: format_seconds(p[1])))
    line = f"{environment_line(record)} {_rates_line(record['rates']['per_second'])}"
    return f"{line}\n\n{figures}\n{times}{not_measured(record)}"


def _parts(figure: Record) -> Iterator[tuple[str, float]]:
    """Name and time of every part: of stages with their share, of bounds with the rate reached."""
    stages, bounds = figure.get("stages", {}), figure.get("bounds", {})
    names = {part: f"{part} ({stage['share']:.0%})" for part, stage in stages.items()}
    for part, bound in bounds.items():
        size, unit = BOUNDS[bound["unit"]]
        names[part] = f"{part} at {bound['per_second'] / size:.3g} {unit}"
    times = {part: timing["median"] for part, timing in figure["times"].items()}
    times |= {p: s["seconds"] for p, s in stages.items() if p not in times}
    times |= {p: timing["median"] for p, timing in figure.get("baselines", {}).items()}
    yield from ((names.get(part, part), seconds) for part, seconds in times.items())


def _rates_line(per_second: Record) -> str:
    """One sentence with the rates of the machine's instructions, by number of threads."""
    found = []
    for name, by_threads in per_second.items():
        size, unit, label = RATES[name]
        values = [f"{rate / size:.3g}" for rate in by_threads.values()]
        values = values[:1] if unit == "GHz" else values  # clocks do not add up over threads
        found.append(f"{label} {' and '.join(values)} {unit}")
    counts = " and ".join(next(iter(per_second.values())))
    return f"Peak rates on {counts} threads: {'; '.join(found)}."
