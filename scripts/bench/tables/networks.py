"""Tables of the benchmarks of binary networks and BWTA layers."""

from __future__ import annotations

from collections.abc import Iterator

from bench.kernels import PARTS, parts_of
from bench.report import (
    Record,
    environment_line,
    goal_text,
    markdown_table,
    not_measured,
    shown,
    table,
)
from bitgnn.measure.report import format_ratio, format_seconds

WITH_PACKING = "packing included"
"""The contender that starts from floats where the ranked one's operands were packed before."""
UNLISTED = "BConv, 1 image"
"""Beginnings of groups that are only in the record."""


def format_rate(per_second: float) -> str:
    """Images a second with three significant digits: ``format_rate(341_234.0) == "341 k/s"``."""
    for size, unit in ((1e6, " M/s"), (1e3, " k/s")):
        if per_second >= size:
            return f"{format_ratio(per_second / size)[:-1]}{unit}"
    return f"{per_second:.0f} /s"


def bnn_table(record: Record) -> str:
    """Markdown of one record: a table for most groups of cases, what was not measured below."""
    groups = dict.fromkeys(result["group"] for result in record["results"])
    parts = [environment_line(record)]
    for group in (group for group in groups if not group.startswith(UNLISTED)):
        found = table(
            (row for r in record["results"] if r["group"] == group for row in _rows(r)),
            (group, lambda r: r["name"]),
            ("bitgnn", lambda r: shown(r["seconds"], lambda s: _time(r, s)) or "not measured"),
            ("best of torch", _peer),
            ("ratio", lambda r: shown(r["ratio"], format_ratio)),
            ("goal", _goals),
        )
        parts.append(found.rstrip())
    return "\n\n".join(parts) + "\n" + not_measured(record)


def _rows(result: Record) -> Iterator[Record]:
    """A case, and a row of its own for the form that was also measured from floats.

    A goal in seconds is one of floats in and out, where these were measured.
    """
    packing = next((c for c in result["contenders"] if c["name"] == WITH_PACKING), None)
    if packing is None or packing["timing"] is None:
        yield result
        return
    goals = result["goals"]
    yield {**result, "goals": [goal for goal in goals if goal["kind"] != "seconds"]}
    seconds = packing["timing"]["median"]
    yield {
        **result,
        "name": f"{result['name']}, packing included",
        "seconds": seconds,
        "ratio": result["peer_seconds"] / seconds,
        "goals": [
            {**goal, "reached": goal["value"] / seconds}
            for goal in goals
            if goal["kind"] == "seconds"
        ],
    }


def _peer(result: Record) -> str:
    return shown(result["peer_seconds"], lambda s: f"{_time(result, s)} ({result['peer']})")


def _goals(result: Record) -> str:
    texts = (goal_text(goal, format_rate, "{:g}×".format, "") for goal in result["goals"])
    return "; ".join(texts)


def _time(result: Record, seconds: float) -> str:
    """Images a second where that is asked for, else the time of a call."""
    if result["group"].endswith("throughput"):
        return format_rate(result["work"] / seconds)
    return format_seconds(seconds)


def parts_table(record: Record) -> str:
    """Markdown of where the time of our frozen networks goes on a GPU."""
    rows = []
    for result in record["results"]:
        ours = next((c for c in result["contenders"] if c["name"] == result["form"]), None)
        if ours is None or not ours["kernels"]:
            continue
        parts = parts_of(ours["kernels"])
        whole = sum(parts.values())
        time, count = format_seconds(ours["timing"]["median"]), str(len(ours["kernels"]))
        rows.append([result["name"], time, count, *(f"{parts[p] / whole:.0%}" for p in PARTS)])
    return markdown_table(["frozen network", "time", "kernels", *PARTS], rows)
