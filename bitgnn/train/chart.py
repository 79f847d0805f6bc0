"""Chart of an experiment: accuracy, memory and latency of each form side by side."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bitgnn.measure.report import format_bytes, format_seconds
from bitgnn.train.deploy import FormResult

__all__ = ["draw_chart", "form_color"]

FORM_COLORS = {"fp32": "#8a8f98", "full": "#3d7ea6", "bin": "#d1603d"}
OTHER_COLORS = ("#6a9a5b", "#8a6fb0", "#c9a227", "#4fa3a0", "#b0647f")
PART_COLORS = {
    "features": "#3d7ea6",
    "graph": "#8fb8ce",
    "activations": "#e0a458",
    "weights": "#d1603d",
}


def form_color(form: str, number: int) -> str:
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
    canvas = FigureCanvasAgg(figure)
    accuracy, memory, latency = figure.subplots(1, 3, sharey=True)
    names = [labels[result.form] for result in results]
    colors = [form_color(result.form, number) for number, result in enumerate(results)]

    accuracy.barh(
        names,
        [result.mean for result in results],
        xerr=[result.std for result in results],
        color=colors,
        height=0.6,
        error_kw={"ecolor": "#333333", "capsize": 3},
    )
    _annotate(
        accuracy,
        [f"{r.mean:.1f} ± {r.std:.1f}" for r in results],
        [r.mean + r.std for r in results],
    )
    seeds = len(results[0].runs)
    accuracy.set_xticks(range(0, 101, 20))
    accuracy.set_title(f"Test {score}, % (mean ± std of {seeds} seeds)")

    left = [0.0] * len(results)
    for part, color in PART_COLORS.items():
        sizes = [_part(result, part) / 1024 for result in results]
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
    for axes in (accuracy, memory, latency):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(left=False)
    for axes in (memory, latency):
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.title.set_fontsize(10)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    image = io.BytesIO()
    canvas.print_png(image)
    return image.getvalue()


def _annotate(axes: Axes, texts: Sequence[str], ends: Sequence[float]) -> None:
    """Write each bar's value behind its end and leave room for it."""
    widest = max(ends)
    for row, (text, end) in enumerate(zip(texts, ends, strict=True)):
        axes.text(end + 0.02 * widest, row, text, va="center", fontsize=9)
    axes.set_xlim(0, 1.55 * widest or 1.0)


def _part(result: FormResult, part: str) -> int:
    use = result.memory
    if use is None:
        return 0
    return {
        "features": use.features,
        "graph": use.adjacency,
        "activations": use.activations,
        "weights": use.weights,
    }[part]
