"""The record of trainings on text, and a picture of all forms."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from bitgnn.data import CharacterData, TokenData
from bitgnn.measure.environment import environment
from bitgnn.measure.report import open_frame, png
from experiments.text.recipe import PRETRAINING, DecoderConfig, TextConfig

if TYPE_CHECKING:
    from experiments.text.experiment import TextRun

__all__ = ["text_chart", "text_record"]

COLORS = ("#8a8f98", "#d1603d", "#3d7ea6", "#4a8f4a", "#8f5aa8")
# The same in every panel, so that columns can be compared.
FORM_COLORS = dict(zip(("fp32", "binary", "bwta_bit", "bwta_level", "fresh"), COLORS, strict=True))
SCORES = {
    "accuracy": "accuracy, %",
    "matthews": "Matthews correlation, %",
    "perplexity": "perplexity",
}


def text_chart(records: Sequence[Mapping[str, Any]]) -> bytes:
    """Validation loss and test score over the epochs, one column an experiment, as a PNG.

    Args:
        records: of :func:`~experiments.text.record.text_record`.
    """
    figure = Figure(figsize=(4.6 * len(records), 6.4), layout="constrained")
    panels = figure.subplots(2, len(records), squeeze=False)
    for column, record in zip(panels.T, records, strict=True):
        colors = _form_colors(record["forms"])
        for form, entry in record["forms"].items():
            color = colors[form]
            for axes, name, factor in (
                (column[0], "validation_loss", 1.0),
                (column[1], "test_score", record["score_factor"]),
            ):
                curves = [[factor * row[name] for row in run["history"]] for run in entry["runs"]]
                _plot_mean(axes, curves, color, form)
        column[0].set_title(record["config"]["title"], fontsize=10)
        column[0].set_ylabel("validation loss")
        column[1].set_ylabel(f"test {SCORES[record['metric']]}")
        column[1].set_xlabel("epoch")
        if record["metric"] == "perplexity":
            column[1].set_yscale("log")
            for set_formatter in (
                column[1].yaxis.set_major_formatter,
                column[1].yaxis.set_minor_formatter,
            ):
                set_formatter(ScalarFormatter())
        for axes in column:
            axes.grid(color="#dddddd", linewidth=0.6)
            axes.legend(fontsize=8, frameon=False)
            open_frame(axes)
    return png(figure)


def _form_colors(forms: Collection[str]) -> dict[str, str]:
    """A colour a form; forms without one of their own take what is left, in turn."""
    colors = {form: FORM_COLORS[form] for form in forms if form in FORM_COLORS}
    free = [color for color in COLORS if color not in colors.values()] or COLORS
    others = (form for form in forms if form not in FORM_COLORS)
    return colors | dict(zip(others, itertools.cycle(free), strict=False))


def _plot_mean(axes: Axes, curves: Sequence[Sequence[float]], color: str, label: str) -> None:
    for curve in curves:
        axes.plot(range(1, len(curve) + 1), curve, color=color, alpha=0.3, lw=0.7)
    means = [
        statistics.mean(value for value in values if value is not None)
        for values in itertools.zip_longest(*curves)
    ]
    axes.plot(range(1, len(means) + 1), means, color=color, lw=1.7, label=label)


PER_CENT = 100.0


def text_record(
    config: TextConfig | DecoderConfig,
    data: TokenData | CharacterData,
    runs: Sequence[TextRun],
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything that table and chart show and what it rests on, in plain values.

    Args:
        config: the experiment.
        data: its sentences or characters.
        runs: the finished ones.
        extra: further entries.
    """
    is_decoder = isinstance(data, CharacterData)
    factor = 1.0 if is_decoder else PER_CENT
    entries = {
        form: _entry([run for run in runs if run.form == form], factor)
        for form in (PRETRAINING, *config.forms)
        if any(run.form == form for run in runs)
    }
    # Its scores are shares of hidden tokens, to be compared with no form's.
    before = {form: entries.pop(form) for form in (PRETRAINING,) if form in entries}
    return {
        "benchmark": "training on text",
        "environment": environment(Path(__file__).resolve().parents[3]),
        "config": config.model_dump(mode="json"),
        "metric": "perplexity" if isinstance(data, CharacterData) else data.metric,
        "score_factor": factor,
        "dataset": _sizes(data),
        "note": "scores of the test data behind the last epoch, no epoch chosen by them; mean and "
        "sample standard deviation over seeds; seconds with other trainings beside",
        "forms": entries,
        **before,
        **(extra or {}),
    }


def _entry(runs: Sequence[TextRun], factor: float) -> dict[str, Any]:
    """Means and spread over the seeds of a form."""
    scores = [factor * run.test_score for run in runs]
    return {
        "test_mean": statistics.mean(scores),
        "test_std": statistics.stdev(scores) if len(runs) > 1 else 0.0,
        "validation_mean": statistics.mean(factor * run.validation_score for run in runs),
        "validation_loss_mean": statistics.mean(run.validation_loss for run in runs),
        "epochs_median": statistics.median(len(run.history) for run in runs),
        "seconds_mean": statistics.mean(run.seconds for run in runs),
        "runs": [asdict(run) for run in runs],
    }


def _sizes(data: TokenData | CharacterData) -> dict[str, Any]:
    parts = ("train", "validation", "test")
    if isinstance(data, CharacterData):
        sizes = {part: getattr(data, part).numel() for part in parts}
        return {"unit": "characters", "vocabulary": len(data.alphabet), **sizes}
    sizes = {part: len(getattr(data, part)) for part in parts}
    return {"unit": "sentences", "vocabulary": data.vocabulary, **sizes}
