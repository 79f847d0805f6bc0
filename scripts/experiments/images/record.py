"""The record of trainings on images: accuracies over seeds and epochs, goals, frozen networks."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from matplotlib.figure import Figure

from bitgnn.data import ImageData
from bitgnn.measure.environment import environment
from bitgnn.measure.report import open_frame, png
from experiments.images.proof import FrozenCheck
from experiments.images.recipe import ImageConfig
from experiments.images.unit import ImageRun

__all__ = ["image_chart", "image_record"]

Finished = tuple[ImageRun, Sequence[FrozenCheck]]
COLORS = {"fp32": "#8a8f98", "binary": "#d1603d"}
PUBLISHED_COLOR = "#3d7ea6"


def image_record(
    config: ImageConfig, data: ImageData, finished: Sequence[Finished]
) -> dict[str, Any]:
    """Everything that table and chart show and what it rests on, in plain values.

    Args:
        config: the experiment.
        data: its images.
        finished: runs with the comparisons of their frozen networks.
    """
    forms: dict[str, Any] = {}
    for form in config.forms:
        ours = [(run, checks) for run, checks in finished if run.form == form]
        if not ours:
            continue
        accuracies = [100 * run.test_accuracy for run, _ in ours]
        forms[form] = {
            "accuracy_mean_percent": statistics.mean(accuracies),
            "accuracy_std_points": statistics.stdev(accuracies) if len(ours) > 1 else 0.0,
            "epoch_seconds_median": statistics.median(
                row["seconds"] for run, _ in ours for row in run.history
            ),
            "seconds_mean": statistics.mean(run.seconds for run, _ in ours),
            "runs": [
                {**asdict(run), "frozen": [asdict(check) for check in checks]}
                for run, checks in ours
            ],
        }
    return {
        "benchmark": "training on images",
        "environment": environment(),
        "config": config.model_dump(mode="json"),
        "dataset": {
            "name": data.name,
            "train": len(data.train),
            "test": len(data.test),
            "image": list(data.train.images.shape[1:]),
        },
        "note": "accuracies of the test images behind the last epoch, no epoch chosen by them; "
        "mean and sample standard deviation over seeds",
        "forms": forms,
    }


def image_chart(records: Sequence[Mapping[str, Any]]) -> bytes:
    """Test accuracy over the epochs, one panel an experiment, as a PNG.

    Args:
        records: of :func:`image_record`.
    """
    figure = Figure(figsize=(4.3 * len(records), 3.9), layout="constrained")
    panels = figure.subplots(1, len(records), squeeze=False)[0]
    for axes, record in zip(panels, records, strict=True):
        lowest = 100.0
        for form, entry in record["forms"].items():
            curves = [
                [100 * row["test_accuracy"] for row in run["history"]] for run in entry["runs"]
            ]
            for curve in curves:
                axes.plot(range(1, len(curve) + 1), curve, color=COLORS[form], alpha=0.35, lw=0.8)
            means = [statistics.mean(values) for values in zip(*curves, strict=True)]
            label = f"{form}: {means[-1]:.1f} %"
            axes.plot(range(1, len(means) + 1), means, color=COLORS[form], lw=1.8, label=label)
            lowest = min(lowest, means[len(means) // 4])
        published = record["config"]["published"]
        if published is not None:
            axes.axhspan(*published, color=PUBLISHED_COLOR, alpha=0.15, lw=0, label="papers")
            lowest = min(lowest, published[0])
        margin = 0.25 * (100 - lowest)
        axes.set_ylim(max(0.0, lowest - margin), None)
        axes.set_title(record["config"]["title"], fontsize=10)
        axes.set_xlabel("epoch")
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.legend(fontsize=8, frameon=False, loc="lower right")
        open_frame(axes)
    panels[0].set_ylabel("test accuracy, %")
    return png(figure)
