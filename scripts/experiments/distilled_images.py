"""Distils the papers' networks of images: how far bits are from floats.

One float teacher a network and seed, trained by distill() itself, and a student for each form; a
form is a number that hidden channels are multiplied by, and after colons fields of the recipe, or
``activation``, ``first`` and ``last`` of the configuration
(``1:last=binary:learning_rate=0.003``). A tenth of the training images validates; accuracies are of
the test images. Finished runs are kept in OUTPUT.jsonl, teachers, students and checkpoints of
others in OUTPUT.parts; none is done again.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from augmented_images import AugmentedImages, normalized
from image_sets import load_images
from kept_runs import study_parser
from kept_students import add_student_options, mean_scores, run_students, students_of
from torch import Tensor, nn

from bitgnn import ImageConfig
from bitgnn.distillation.result import Distilled
from bitgnn.models import mlp, resnet, vgg

BATCH = 128
HELD_OUT = 0.1
OPTIONS = {"activation", "first", "last"}
"""Fields of the configuration that a form may set."""


@dataclass(frozen=True)
class Network:
    """A network with its images.

    Attributes:
        build: gives it untrained.
        dataset: as :func:`load_images` takes it.
        flip: whether half of the images to train on are mirrored.
        shift: pixels that they are moved by at most.
    """

    build: Callable[[], nn.Module]
    dataset: str
    flip: bool
    shift: int


NETWORKS = {
    "MLP, MNIST": Network(partial(mlp, "fp32"), "mnist", False, 1),
    "VGG, CIFAR-10": Network(partial(vgg, "fp32"), "cifar10_jpeg_12k", True, 4),
    "ResNet-14, CIFAR-10": Network(partial(resnet, 14, "fp32"), "cifar10_jpeg_12k", True, 4),
}
"""MLP, VGG and ResNet-14 of BSTC (Li et al. 2019) and TCBNN (Li and Su 2020)."""


class Batches:
    """Images and labels in batches; training images are shuffled, mirrored and shifted."""

    def __init__(self, images: Tensor, labels: Tensor, network: Network | None = None) -> None:
        self.images, self.labels, self.augmented = images, labels, None
        if network is not None:
            self.augmented = AugmentedImages(images, network.flip, network.shift)

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


def run(job: tuple[dict[str, Any], str | None, str], folder: Path) -> dict[str, Any]:
    """One teacher and its students."""
    case, root, device = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    network = NETWORKS[case["task"]]
    (images, labels), (test_images, test_labels) = load_images(network.dataset, root)
    torch.manual_seed(case["seed"])
    order = torch.randperm(len(labels))
    held = order[: int(HELD_OUT * len(order))]
    kept = order[len(held) :]
    training, validation = (
        Batches(images[rows].to(device), labels[rows].to(device), augmentation)
        for rows, augmentation in ((kept, network), (held, None))
    )
    test = Batches(test_images.to(device), test_labels.to(device))
    model = network.build().to(device)

    def options(form: str) -> dict[str, Any]:
        factor, *rest = form.split(":")
        named = dict(field.split("=") for field in rest)
        config: dict[str, Any] = {key: named.pop(key) for key in OPTIONS & set(named)}
        width = float(factor)
        return {
            "precision": ImageConfig(**config), "widen": None if width == 1 else width,
            "epochs": case["epochs"], "validation": validation, "recipe": named,
        }  # fmt: skip

    def judge(result: Distilled) -> dict[str, Any]:
        models = result.teacher, result.frozen, result.model
        teacher, student, trained = (accuracy(one, test) for one in models)
        return {
            "teacher": teacher, "test": student, "gap": 100 * (teacher - student),
            "trained": trained, "history": [row["val_score"] for row in result.history],
            "teacher_history": [row["val_score"] for row in result.teacher_history],
        }  # fmt: skip

    return students_of(case, folder, model, training, options, judge)


def cases(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every run."""
    for seed in range(arguments.seeds):
        for task in arguments.networks:
            yield {
                "task": task, "seed": seed, "epochs": arguments.epochs, "forms": arguments.forms
            }  # fmt: skip


def main() -> int:
    """Entry point."""
    parser = study_parser(__doc__, "distilled_images.json")
    names = list(NETWORKS)
    parser.add_argument("--networks", nargs="+", default=names, choices=names)
    parser.add_argument("--epochs", type=int, help="default: those that distill() chooses")
    add_student_options(parser, ["1", "2"], seeds=3)
    arguments = parser.parse_args()
    return run_students(cases(arguments), run, mean_scores, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
