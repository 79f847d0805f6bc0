"""Tables of records in Markdown, from a short declaration; descriptions of the machine."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from bitgnn.measure.report import format_seconds

Record = dict[str, Any]
Row = TypeVar("Row")
Value = TypeVar("Value")
BUSY_PERCENT = 10.0
"""Share of the cores that others may use before a table says so."""


def table(rows: Iterable[Row], *columns: tuple[str, Callable[[Row], str]]) -> str:
    """A Markdown table: of each column its heading and the text of a row's cell."""
    rows = list(rows)
    return markdown_table(
        [heading for heading, _ in columns], [[cell(row) for _, cell in columns] for row in rows]
    )


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is aligned left, the others right."""
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"bench.markdown_table: row {row!r} must have {len(header)} cells")
    lines = [header, [":---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def shown(value: Value | None, text: Callable[[Value], str] = str) -> str:
    """A value as text, nothing where there is none."""
    return "" if value is None else text(value)


def points(value: float | None) -> str:
    """Points to one decimal, without the sign of a zero."""
    return shown(value, lambda number: f"{number:.1f}".replace("-0.0", "0.0"))


def mean_and_error(values: Sequence[float]) -> str:
    """Mean of points, with its standard error where there are several."""
    error = ""
    if len(values) > 1:
        error = f" ± {statistics.stdev(values) / len(values) ** 0.5:.1f}"
    return f"{statistics.mean(values):.1f}{error}"


def format_reached(part: float) -> str:
    """The part of a goal that was reached, never rounded up: ``format_reached(0.997) == "99%"``."""
    rounding_error = 1e-9
    return f"{math.floor(part * 100 + rounding_error)}%"


def goal_text(
    goal: Mapping[str, Any], rate: Callable[[float], str], ratio: Callable[[float], str], peer: str
) -> str:
    """A figure to reach in its own unit, and how much of it was reached where that is known."""
    if goal["kind"] == "seconds":
        figure = f"≤ {format_seconds(goal['value'])}"
    elif goal["kind"] == "rate":
        figure = rate(goal["value"])
    else:
        figure = f"{ratio(goal['value'])} {goal['baseline'] or peer}".rstrip()
    return figure if goal["reached"] is None else f"{figure}: {format_reached(goal['reached'])}"


def verdict(is_met: bool) -> str:
    """``met`` or ``MISSED``."""
    return "met" if is_met else "MISSED"


def commit_of(machine: Record) -> str:
    """The commit of an environment, shortened, and whether anything was changed."""
    changes = " with changes" if machine.get("dirty") else ""
    return (machine["commit"] or "unknown")[:10] + changes


def device_of(machine: Record, *, on_cuda: bool | None = None, capability: bool = False) -> str:
    """The GPU, or the processor with its threads."""
    if on_cuda or (on_cuda is None and machine["gpu"]):
        return str(machine["gpu"])
    instructions = f" ({machine['capability']})" if capability else ""
    return f"{machine['cpu']}{instructions}, {machine['threads']} threads"


def versions_of(record: Record, *, pyg: bool = True) -> str:
    """Versions of the libraries, commit and date."""
    machine = record["environment"]
    versions = machine["versions"]
    libraries = f"torch {versions['torch']}" + f", PyG {versions['torch-geometric']}" * pyg
    return f"{libraries}, commit {commit_of(machine)}, {machine['date'][:10]}"


def environment_line(record: Record) -> str:
    """One sentence naming the machine, threads, versions and commit of a record."""
    machine = record["environment"]
    on_cuda = record.get("benchmark", "").endswith("cuda")
    device = device_of(machine, on_cuda=on_cuda, capability=True)
    device += f", CUDA {machine['cuda']}" if on_cuda else ""
    repeats = f"medians of {record['settings']['repeats']} interleaved repeats"
    return f"{device}, {versions_of(record)}; {repeats}.{busy(record)}"


def busy(record: Record) -> str:
    """Says so where others used the processor when the measurement began."""
    busy = record["environment"].get("busy_percent")
    if busy is None or busy < BUSY_PERCENT or record.get("benchmark", "").endswith("cuda"):
        return ""
    return f" Measured on a busy machine: others used {busy:.0f}% of its cores."


def trained_on(record: Record, *, pyg: bool = False, device: str | None = None) -> str:
    """Machine, versions, commit and date of a training, without a full stop."""
    machine = record["environment"]
    return f"Trained on {device or machine['gpu'] or machine['cpu']}, " + versions_of(
        record, pyg=pyg
    )


def not_measured(record: Record) -> str:
    """A list of what a record says it left out, below an empty line; nothing without any."""
    entries = [*record.get("skipped", ()), *record.get("failed", ())]
    lines = [f"- not measured: {entry['name']}: {entry['reason']}\n" for entry in entries]
    return "\n" + "".join(lines) if lines else ""
