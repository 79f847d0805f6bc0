"""Chart of an experiment: accuracy, memory and latency of each form side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bitgnn.measure.report import format_bytes, format_seconds, open_frame, png
from bitgnn.train.deploy import FormResult

__all__ = ["draw_chart"]

FORM_COLORS = {"fp32": "#8a8f98", "full": "#3d7ea6", "bin": "#d1603d"}
OTHER_COLORS = ("#6a9a5b", "#8a6fb0", "#c9a227", "#4fa3a0", "#b0647f")
PARTS = {
    "features": ("features", "#3d7ea6"),
    "graph": ("adjacency", "#8fb8ce"),
    "activations": ("activations", "#e0a458"),
    "weights": ("weights", "#d1603d"),
}
"""Name, attribute and colour of each part of the memory."""


def _form_color(form: str, number: int) -> str:
    """Colour of the ``number``-th form."""
    return FORM_COLORS.get(form, OTHER_COLORS[number % len(OTHER_COLORS)])


def draw_chart(
    title: str, score: str, labels: Mapping[str, str], results: Sequence[FormResult]
) -> bytes:
    """Three panels as a PNG.

    Args:
        title: of the whole chart.
        score: name of the metric.
        labels: name to show by form.
        results: what each form achieves.

    Returns:
        Bytes of the image.
    """
    figure = Figure(figsize=(12.5, 1.6 + 0.62 * len(results)), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    accuracy, memory, latency = panels
    names = [labels[result.form] for result in results]
    colors = [_form_color(result.form, number) for number, result in enumerate(results)]

    means, spreads = [r.mean for r in results], [r.std for r in results]
    error = {"ecolor": "#333333", "capsize": 3}
    accuracy.barh(names, means, xerr=spreads, color=colors, height=0.6, error_kw=error)
    texts = [f"{r.mean:.1f} ± {r.std:.1f}" for r in results]
    _annotate(accuracy, texts, [r.mean + r.std for r in results])
    accuracy.set_xticks(range(0, 101, 20))
    accuracy.set_title(f"Test {score}, % (mean ± std of {len(results[0].runs)} seeds)")

    left = [0.0] * len(results)
    for part, (attribute, color) in PARTS.items():
        # Where the memory is not counted it is None, which has none of the attributes.
        sizes = [getattr(result.memory, attribute, 0) / 1024 for result in results]
        memory.barh(names, sizes, left=left, color=color, height=0.6, label=part)
        left = [before + size for before, size in zip(left, sizes, strict=True)]
    texts = ["" if r.memory is None else format_bytes(r.memory.peak) for r in results]
    _annotate(memory, texts, left)
    memory.set_title("Memory of a forward pass, KiB")
    memory.legend(fontsize=8, frameon=False, loc="center right")

    medians = [1e3 * result.fastest[1].median for result in results]
    latency.barh(names, medians, color=colors, height=0.6)
    texts = [f"{format_seconds(r.fastest[1].median)} ({r.fastest[0]})" for r in results]
    _annotate(latency, texts, medians)
    latency.set_title("Median latency of a forward pass, ms")

    accuracy.invert_yaxis()
    open_frame(*panels)
    for axes in panels:
        axes.tick_params(left=False)
    for axes in (memory, latency):
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.title.set_fontsize(10)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    return png(figure)


def _annotate(axes: Axes, texts: Sequence[str], ends: Sequence[float]) -> None:
    """Write each bar's value behind its end and leave room for it."""
    widest = max(ends)
    for row, (text, end) in enumerate(zip(texts, ends, strict=True)):
        axes.text(end + 0.02 * widest, row, text, va="center", fontsize=9)
    axes.set_xlim(0, 1.55 * widest or 1.0)
