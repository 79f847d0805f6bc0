"""Tables and charts of benchmark records: Markdown and bars, and on what they were measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bitgnn.measure.report import format_ratio

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2")


def format_reached(part: float) -> str:
    """The part of a goal that was reached, never rounded up: ``format_reached(0.997) == "99%"``."""
    rounding_error = 1e-9
    return f"{math.floor(part * 100 + rounding_error)}%"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is aligned left, the others right."""
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"bench.markdown_table: row {row!r} must have {len(header)} cells")
    lines = [header, [":---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def commit_of(machine: dict[str, Any]) -> str:
    """The commit of an environment, shortened, and whether anything was changed."""
    return (machine["commit"] or "unknown")[:10] + (" with changes" if machine["dirty"] else "")


def device_of(machine: dict[str, Any], *, on_cuda: bool | None = None) -> str:
    """The GPU, or the processor with its threads.

    Args:
        machine: environment of a record.
        on_cuda: which of them; None takes the GPU where there is one.
    """
    if on_cuda or (on_cuda is None and machine["gpu"]):
        return str(machine["gpu"])
    return f"{machine['cpu']}, {machine['threads']} threads"


def environment_line(record: dict[str, Any]) -> str:
    """One sentence naming the machine, threads, versions and commit of a record."""
    machine = record["environment"]
    versions = machine["versions"]
    if record.get("benchmark", "").endswith("cuda"):
        device = f"{machine['gpu']}, CUDA {machine['cuda']}"
    else:
        device = f"{machine['cpu']} ({machine['capability']}), {machine['threads']} threads"
    return (
        f"{device}, torch {versions['torch']}, PyG {versions['torch-geometric']}, "
        f"commit {commit_of(machine)}, {machine['date'][:10]}; medians of "
        f"{record['settings']['repeats']} interleaved repeats."
    )


def trained_on(record: dict[str, Any], *, pyg: bool = False, device: str | None = None) -> str:
    """Machine, versions, commit and date of a training, without a full stop."""
    machine = record["environment"]
    versions = machine["versions"]
    return (
        f"Trained on {device or machine['gpu'] or machine['cpu']}, torch {versions['torch']}, "
        + (f"PyG {versions['torch-geometric']}, " if pyg else "")
        + f"commit {commit_of(machine)}, {machine['date'][:10]}"
    )


def not_measured(*entries: dict[str, Any]) -> str:
    """A list of what a record says it left out, below an empty line; nothing without any."""
    lines = [f"- not measured: {entry['name']}: {entry['reason']}\n" for entry in entries]
    return "\n" + "".join(lines) if lines else ""


def write_value(axes: Axes, text: str, end: float, position: float, fontsize: int = 8) -> None:
    """Write a value behind the end of its bar."""
    place = (end, position)
    axes.annotate(text, place, (3, 0), textcoords="offset points", va="center", fontsize=fontsize)


def bar_chart(
    path: str | Path,
    labels: Sequence[str],
    ratios: Sequence[float],
    targets: Sequence[float | None],
    title: str,
) -> None:
    """Horizontal bars of speed ratios on a logarithmic axis, targets as ticks."""
    figure, axes = _bars([format_ratio(r) for r in ratios], [max(r, 1.0) for r in ratios])
    axes.barh(range(len(ratios)), [r - 1.0 for r in ratios], left=1.0, color=COLOURS[0], height=0.7)
    for position, target in enumerate(targets):
        if target is not None:
            axes.vlines(target, position - 0.45, position + 0.45, color="#e45756", label="goal")
    axes.set_xscale("log")
    axes.margins(x=0.12, y=0.02)
    axes.set_xlabel("times faster than the best baseline")
    goals = [line for line in axes.collections if line.get_label() == "goal"]
    if goals:
        axes.legend(handles=goals[:1], loc="lower right", fontsize=8)
    _finish(figure, axes, labels, title, path)


def fraction_chart(path: str | Path, entries: Sequence[tuple[str, float, str]], title: str) -> None:
    """Bars of how much of its ceiling each case reaches, coloured by what binds it.

    Entries are label, fraction of the ceiling and name of the ceiling.
    """
    figure, axes = _bars(
        [f"{part:.0%}" for _, part, _ in entries], [part for _, part, _ in entries]
    )
    names = sorted({binds for _, _, binds in entries})
    colours = dict(zip(names, COLOURS, strict=False))
    for position, (_, fraction, binds) in enumerate(entries):
        axes.barh(position, fraction, color=colours[binds], height=0.7)
    axes.margins(x=0.08, y=0.02)
    axes.set_xlabel("part of the ceiling reached")
    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    axes.legend(handles=handles, title="bound by", fontsize=8)
    _finish(figure, axes, [label for label, _, _ in entries], title, path)


def _bars(texts: Sequence[str], ends: Sequence[float]) -> tuple[Figure, Axes]:
    """A figure with room for a bar a line, and what is written at the end of each."""
    figure = Figure(figsize=(9, 1.4 + 0.32 * len(texts)), layout="constrained")
    axes = figure.add_subplot()
    axes.axvline(1.0, color="grey", linewidth=0.8)
    for position, (text, end) in enumerate(zip(texts, ends, strict=True)):
        write_value(axes, text, end, position)
    return figure, axes


def _finish(
    figure: Figure, axes: Axes, labels: Sequence[str], title: str, path: str | Path
) -> None:
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    figure.suptitle(title, fontsize=10)  # centred on the figure: the labels take half of it
    figure.savefig(path, dpi=120)
