"""Distils the ResNet-14 of the papers on small colour images: how far bits are from floats.

One float teacher a seed, trained by distill() itself, and a student for each form; a form is a
number that hidden channels are multiplied by, and behind colons fields of the recipe
(``1:learning_rate=0.003``). A tenth of the training images validates; accuracies are of the test
images. Finished runs are kept in OUTPUT.jsonl and not done again.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from images.task import TrainingImages, normalized
from kept_runs import run_and_keep
from torch import Tensor, nn

import bitgnn
from bitgnn.data import load_images
from bitgnn.models import resnet

BATCH = 128
HELD_OUT = 0.1
SHIFT = 4


class Batches:
    """Images and labels in batches; those to train on shuffled, mirrored and shifted.

    Args:
        images: uint8 ``[N, C, H, W]`` on the device.
        labels: int64 ``[N]``.
        is_training: whether to shuffle and augment.
    """

    def __init__(self, images: Tensor, labels: Tensor, is_training: bool) -> None:
        self.images, self.labels = images, labels
        self.augmented = TrainingImages(images, flip=True, crop=SHIFT) if is_training else None

    def __len__(self) -> int:
        return -(-len(self.labels) // BATCH)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        device = self.labels.device
        order = torch.arange(len(self.labels), device=device)
        if self.augmented is not None:
            order = torch.randperm(len(order), device=device)
        for rows in order.split(BATCH):
            if self.augmented is not None:
                yield self.augmented.batch(rows), self.labels[rows]
            else:
                yield normalized(self.images[rows]), self.labels[rows]


@torch.no_grad()
def accuracy(model: nn.Module, batches: Batches) -> float:
    """Share of right answers."""
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in batches)
    return right / len(batches.labels)


def run(job: tuple[dict[str, Any], str | None, str]) -> dict[str, Any]:
    """One teacher and its students."""
    case, root, device = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    data = load_images("cifar10_jpeg_12k", root)
    torch.manual_seed(case["seed"])
    order = torch.randperm(len(data.train))
    held = order[: int(HELD_OUT * len(order))]
    kept = order[len(held) :]
    images, labels = data.train.images, data.train.labels
    training, validation = (
        Batches(images[rows].to(device), labels[rows].to(device), rows is kept)
        for rows in (kept, held)
    )
    test = Batches(data.test.images.to(device), data.test.labels.to(device), False)
    model: nn.Module = resnet(14, "fp32").to(device)
    students: dict[str, Any] = {}
    for form in case["forms"]:
        factor, *fields = form.split(":")
        wider = None if float(factor) == 1 else resnet(14, "fp32", width=float(factor)).to(device)
        result = bitgnn.distill(
            model, training, widen=wider,
            epochs=case["epochs"], seed=case["seed"], validation=validation,
            trained=bool(students), recipe=dict(field.split("=") for field in fields),
        )  # fmt: skip
        model = result.teacher
        if result.teacher_history:
            case = {**case, "teacher_seconds": result.teacher_seconds}
        frozen = bitgnn.freeze(result.model)
        teacher, student = accuracy(model, test), accuracy(frozen, test)
        students[form] = {
            "teacher": teacher, "test": student, "gap": 100 * (teacher - student),
            "trained": accuracy(result.model, test), "seconds": result.seconds,
            "val": result.scores.val, "teacher_val": result.teacher_scores.val,
            "history": [row["val_score"] for row in result.history],
        }  # fmt: skip
    return {**case, "students": students}


def cases(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every run."""
    for seed in range(arguments.seeds):
        yield {"seed": seed, "epochs": arguments.epochs, "forms": arguments.forms}


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean accuracies and gap of each form."""
    rows = []
    for form in dict.fromkeys(form for one in runs for form in one["students"]):
        mine = [one["students"][form] for one in runs if form in one["students"]]
        names = ("teacher", "test", "gap")
        means = {name: statistics.mean(student[name] for student in mine) for name in names}
        rows.append({"form": form, "runs": len(mine), **means})
    return rows


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="folder with raw data (default: BITGNN_DATA)")
    parser.add_argument("--output", type=Path, default=Path("distilled_images.json"))
    parser.add_argument("--forms", nargs="+", default=["1", "2"])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    return run_and_keep(
        cases(arguments), run, summary, arguments.output, arguments.data, arguments.device,
        arguments.workers,
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
