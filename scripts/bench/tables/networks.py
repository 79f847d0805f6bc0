"""Tables of the benchmark of binary networks: what was reached for the README, all of it as CSV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.kernels import PARTS, parts_of
from bench.report import environment_line, format_reached, markdown_table, not_measured
from bitgnn.measure.report import csv_text, format_ratio, format_seconds

Record = Mapping[str, Any]
STATISTICS = ("median", "p10", "p90")
TIMES = ("timing", "cold", "launched")
WITH_PACKING = "packing included"
"""The contender that starts from floats where the ranked one's operands were packed before."""
CHARTED = "BConv, 1 image"
"""Groups that begin so stand in the chart alone."""


def format_rate(per_second: float) -> str:
    """Images a second with three significant digits: ``format_rate(341_234.0) == "341 k/s"``."""
    for size, unit in ((1e6, " M/s"), (1e3, " k/s")):
        if per_second >= size:
            value = per_second / size
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f}{unit}"
    return f"{per_second:.0f} /s"


def bnn_table(record: Record) -> str:
    """Markdown of one record: a table for most groups of cases, what was not measured below."""
    parts = [environment_line(dict(record))]
    for group in dict.fromkeys(result["group"] for result in record["results"]):
        if group.startswith(CHARTED):
            continue
        results = [result for result in record["results"] if result["group"] == group]
        rows = [row for result in results for row in (_row(result), *_with_packing(result))]
        header = [group, "bitgnn", "best of torch", "ratio", "goal"]
        parts.append(markdown_table(header, rows).rstrip())
    return "\n\n".join(parts) + "\n" + not_measured(*record["skipped"], *record["failed"])


def _row(result: Record) -> list[str]:
    peer = ""
    if result["peer_seconds"] is not None:
        peer = f"{_time(result, result['peer_seconds'])} ({result['peer']})"
    return [
        result["name"],
        "not measured" if result["seconds"] is None else _time(result, result["seconds"]),
        peer,
        "" if result["ratio"] is None else format_ratio(result["ratio"]),
        "; ".join(_goal(goal) for goal in result["goals"] if not _counts_packing(goal, result)),
    ]


def _with_packing(result: Record) -> list[list[str]]:
    """The row of a case that was also measured from floats, if it was."""
    return [
        [
            f"{result['name']}, packing included",
            format_seconds(seconds),
            f"{format_seconds(result['peer_seconds'])} ({result['peer']})",
            format_ratio(result["peer_seconds"] / seconds),
            "; ".join(
                _goal({**goal, "reached": goal["value"] / seconds})
                for goal in result["goals"]
                if _counts_packing(goal, result)
            ),
        ]
        for seconds in _seconds_with_packing(result)
    ]


def _seconds_with_packing(result: Record) -> list[float]:
    return [
        contender["timing"]["median"]
        for contender in result["contenders"]
        if contender["name"] == WITH_PACKING and contender["timing"] is not None
    ]


def _counts_packing(goal: Record, result: Record) -> bool:
    """A goal in seconds is one of floats in and out, where that was measured."""
    return goal["kind"] == "seconds" and bool(_seconds_with_packing(result))


def _is_throughput(result: Record) -> bool:
    return str(result["group"]).endswith("throughput")


def _time(result: Record, seconds: float) -> str:
    """Images a second where that is asked for, else the time of a call."""
    if _is_throughput(result):
        return format_rate(result["work"] / seconds)
    return format_seconds(seconds)


def _goal(goal: Record) -> str:
    if goal["kind"] == "seconds":
        figure = f"≤ {format_seconds(goal['value'])}"
    elif goal["kind"] == "rate":
        figure = format_rate(goal["value"])
    else:
        figure = f"{goal['value']:g}×" + (f" {goal['baseline']}" if goal["baseline"] else "")
    return figure if goal["reached"] is None else f"{figure}: {format_reached(goal['reached'])}"


def parts_table(record: Record) -> str:
    """Markdown of where the time of our frozen networks goes on a GPU."""
    rows = []
    for result in record["results"]:
        measured = [
            c for c in result["contenders"] if c["ours"] and c["ranked"] and c["timing"] is not None
        ]
        ours = min(measured, key=lambda c: c["timing"]["median"], default=None)
        if ours is None or not ours["kernels"]:
            continue
        parts = parts_of(ours["kernels"])
        whole = sum(parts.values())
        shares = [f"{parts[part] / whole:.0%}" for part in PARTS]
        time = format_seconds(ours["timing"]["median"])
        rows.append([result["name"], time, str(len(ours["kernels"])), *shares])
    return markdown_table(["frozen network", "time", "kernels", *PARTS], rows)


def bnn_csv(record: Record) -> str:
    """Every contender of every case, one a line; times in seconds of a call."""
    rows: list[list[Any]] = [
        ["group", "case", "contender", "ours", "in_graph"]
        + [f"{name}_{statistic}" for name in TIMES for statistic in STATISTICS]
        + ["repeats", "images", "failure"]
    ]
    for result in record["results"]:
        for c in result["contenders"]:
            times = [
                "" if c[name] is None else f"{c[name][statistic]:.4g}"
                for name in TIMES
                for statistic in STATISTICS
            ]
            repeats = 0 if c["timing"] is None else len(c["timing"]["seconds"])
            head = [result["group"], result["name"], c["name"], c["ours"], c["in_graph"]]
            work = "" if result["work"] is None else result["work"]
            rows.append([*head, *times, repeats, work, c["failure"] or ""])
    return csv_text(rows)
