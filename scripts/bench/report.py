"""Tables and charts of benchmark records: Markdown and bars, and on what they were measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitgnn.measure.report import format_ratio


def format_reached(part: float) -> str:
    """The part of a goal that was reached, never rounded up: ``format_reached(0.997) == "99%"``."""
    rounding_error = 1e-9
    return f"{math.floor(part * 100 + rounding_error)}%"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is aligned left, the others right.

    Raises:
        ValueError: A row is longer or shorter than the header.
    """
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"bench.markdown_table: row {row!r} must have {len(header)} cells")
    lines = [header, [":---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def environment_line(record: dict[str, Any]) -> str:
    """One sentence naming the machine, threads, versions and commit of a record."""
    machine = record["environment"]
    versions = machine["versions"]
    commit = (machine["commit"] or "unknown")[:10] + (" with changes" if machine["dirty"] else "")
    if record.get("benchmark", "").endswith("cuda"):
        device = f"{machine['gpu']}, CUDA {machine['cuda']}"
    else:
        device = f"{machine['cpu']} ({machine['capability']}), {machine['threads']} threads"
    return (
        f"{device}, "
        f"torch {versions['torch']}, PyG {versions['torch-geometric']}, "
        f"commit {commit}, {machine['date'][:10]}; medians of {record['settings']['repeats']} "
        f"interleaved repeats."
    )


def trained_on(record: dict[str, Any], *, pyg: bool = False) -> str:
    """Machine, versions, commit and date of a training, without a full stop."""
    machine = record["environment"]
    versions = machine["versions"]
    commit = (machine["commit"] or "unknown")[:10] + (" with changes" if machine["dirty"] else "")
    return (
        f"Trained on {machine['gpu'] or machine['cpu']}, torch {versions['torch']}, "
        + (f"PyG {versions['torch-geometric']}, " if pyg else "")
        + f"commit {commit}, {machine['date'][:10]}"
    )


def bar_chart(
    path: str | Path,
    labels: Sequence[str],
    ratios: Sequence[float],
    targets: Sequence[float | None],
    title: str,
) -> None:
    """Saves a horizontal bar chart of speed ratios on a logarithmic axis, targets as ticks.

    Args:
        path: Image file; the suffix chooses the format.
        labels: One label a bar, the first on top.
        ratios: How many times faster than the baseline, positive.
        targets: The ratio aimed at, None where there is none.
        title: Heading.

    Raises:
        OSError: The file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 0.32 * len(labels)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    positions = range(len(labels))
    widths = [ratio - 1.0 for ratio in ratios]
    axes.barh(positions, widths, left=1.0, color="#4c78a8", height=0.7)
    for position, ratio, target in zip(positions, ratios, targets, strict=True):
        axes.annotate(
            format_ratio(ratio),
            (max(ratio, 1.0), position),
            (3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
        if target is not None:
            axes.vlines(target, position - 0.45, position + 0.45, color="#e45756", label="goal")
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(positions, labels, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12, y=0.02)
    axes.set_xlabel("times faster than the best baseline")
    axes.set_title(title, fontsize=10)
    goals = [line for line in axes.collections if line.get_label() == "goal"]
    if goals:
        axes.legend(handles=goals[:1], loc="lower right", fontsize=8)
    figure.savefig(path, dpi=120)


def fraction_chart(path: str | Path, entries: Sequence[tuple[str, float, str]], title: str) -> None:
    """Draws how much of its ceiling each case reaches, coloured by what binds it.

    Args:
        path: PNG file.
        entries: Label, fraction of the ceiling and name of the ceiling of each case.
        title: Heading.

    Raises:
        OSError: The file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    colours = dict(
        zip(
            sorted({binds for _, _, binds in entries}),
            ("#4c78a8", "#f58518", "#54a24b", "#b279a2"),
            strict=False,
        )
    )
    figure = Figure(figsize=(9, 1.4 + 0.3 * len(entries)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for position, (_, fraction, binds) in enumerate(entries):
        axes.barh(position, fraction, color=colours[binds], height=0.7, label=binds)
        axes.annotate(
            f"{fraction:.0%}",
            (fraction, position),
            (3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(entries)), [label for label, _, _ in entries], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.08, y=0.02)
    axes.set_xlabel("part of the ceiling reached")
    figure.suptitle(title, fontsize=10)  # centred on the figure: the labels take half of it
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(unique.values(), unique.keys(), title="bound by", fontsize=8)
    figure.savefig(path, dpi=120)
