"""The record of trainings on images: accuracies, goals, frozen networks beside trained ones."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import bitgnn
from bitgnn.data import ImageData, ImageSet
from bitgnn.measure.environment import environment
from experiments.images.recipe import ImageConfig
from experiments.images.task import TEST_BATCH, normalized

if TYPE_CHECKING:
    from experiments.images.command import ImageRun

__all__ = ["FrozenCheck", "check_frozen", "class_scores", "image_record"]


@dataclass(frozen=True)
class FrozenCheck:
    """What a frozen network said beside the trained one.

    Attributes:
        device: where both ran.
        images: number of images.
        equal: on how many the classes are equal.
        largest_difference: of a class score.
        test_accuracy: share of right answers of the frozen network.
    """

    device: str
    images: int
    equal: int
    largest_difference: float
    test_accuracy: float


def check_frozen(model: nn.Module, part: ImageSet, device: torch.device | str) -> FrozenCheck:
    """Compare frozen and emulated classes of all images on a device.

    Args:
        model: a trained binary network; left as it is.
        part: the images.
        device: where both run.
    """
    emulated = copy.deepcopy(model).eval().to(device)
    frozen = bitgnn.freeze(emulated)
    there = part.to(device)
    expected, found = class_scores(emulated, there), class_scores(frozen, there)
    classes = found.argmax(1)
    return FrozenCheck(
        torch.device(device).type,
        len(part),
        int((classes == expected.argmax(1)).sum()),
        float((found - expected).abs().max()) if len(part) else 0.0,
        int((classes == there.labels).sum()) / max(len(part), 1),
    )


@torch.no_grad()
def class_scores(model: nn.Module, part: ImageSet) -> Tensor:
    """``[N, classes]`` scores of all images."""
    batches = (normalized(images) for images in part.images.split(TEST_BATCH))
    return torch.cat(
        [model(x.contiguous(memory_format=torch.channels_last)).float() for x in batches]
    )


def image_record(
    config: ImageConfig, data: ImageData, finished: Sequence[tuple[ImageRun, Sequence[FrozenCheck]]]
) -> dict[str, Any]:
    """Everything that the table shows and what it rests on, in plain values.

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
        "environment": environment(Path(__file__).resolve().parents[3]),
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
