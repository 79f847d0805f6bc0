"""Table of ``scripts/bench_wins.py``: what each variant of a route wins over the next one."""

from __future__ import annotations

import re
from collections import defaultdict

from bench.report import Record, environment_line, not_measured, table
from bitgnn.measure.report import format_seconds

LEAST = 1.05
"""Ratio that a variant must reach on one of its shapes."""


def wins_table(record: Record) -> str:
    """One row a variant, the least useful first: its best shape, the next kernel, both times."""
    found: dict[str, list[Record]] = defaultdict(list)
    for result in record["results"]:
        chosen, *others = result["contenders"]
        for other in others:
            if chosen["timing"] is None or other["timing"] is None:
                continue
            times = {"seconds": chosen["timing"]["median"], "next": other["timing"]["median"]}
            shape = f"{result['group']}: {result['name']}"
            row = {**times, "ratio": times["next"] / times["seconds"], "shape": shape}
            found[other["name"]].append({**row, "kernel": other["next"]})
    best = {name: max(rows, key=lambda row: row["ratio"]) for name, rows in found.items()}
    rows = sorted(best.items(), key=lambda item: item[1]["ratio"])
    low = [f"`{name}`" for name, row in rows if row["ratio"] < LEAST]
    text = table(
        rows,
        ("variant", lambda item: f"`{item[0]}`"),
        ("wins by", lambda item: f"{item[1]['ratio'] - 1:+.0%}"),
        ("most on", lambda item: item[1]["shape"]),
        ("time", lambda item: format_seconds(item[1]["seconds"])),
        ("next", lambda item: format_seconds(item[1]["next"])),
        ("kernels of the next", lambda item: ", ".join(_short(item[1]["kernel"]))),
        ("shapes", lambda item: str(len(found[item[0]]))),
    )
    below = f"Below 5 % on all shapes: {', '.join(low)}." if low else "None wins less than 5 %."
    return f"{environment_line(record)} {below}\n\n{text}{not_measured(record)}"


def _short(kernels: list[str]) -> list[str]:
    """Names without namespaces and template arguments, each once."""
    names = [re.sub(r"<.*", "", kernel).split("::")[-1] for kernel in kernels]
    return [f"`{name}`" for name in dict.fromkeys(names)]
