"""The command behind scripts/train_images.py: trains, freezes, compares and records networks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from bitgnn.data import ImageData, load_images
from bitgnn.measure.report import write_json
from bitgnn.models import IMAGE_NETWORKS
from bitgnn.train.run import RunOptions, machine_name
from experiments.images.recipe import ImageConfig, load_image_config
from experiments.images.record import FrozenCheck, check_frozen, image_record
from experiments.images.task import ImageTask
from experiments.training.commands import (
    experiment_parser,
    options_of,
    overridden,
    status_of,
)
from experiments.training.experiment import Experiment, Unit, train_units
from experiments.training.loop import Trained
from experiments.training.task import Task

__all__ = ["EXPERIMENTS", "ImageExperiment", "ImageRun", "main"]

EXPERIMENTS = ("mnist_mlp", "cifar_vgg", "cifar_resnet14")
BINARY_FORM = "binary"


@dataclass(frozen=True)
class ImageRun:
    """One finished training on images.

    Attributes:
        form: name of the form.
        seed: random seed.
        test_accuracy: share of the test images whose class comes out right, behind the last epoch.
        seconds: time of all epochs, tests included.
        history: one row an epoch, with the columns of
            :class:`~experiments.images.task.ImageTask`.
        machine: processor and torch version it was trained with.
    """

    form: str
    seed: int
    test_accuracy: float
    seconds: float
    history: list[dict[str, float]]
    machine: str


def build_network(config: ImageConfig, form: str, data: ImageData) -> nn.Module:
    """The network of a form (``fp32`` or ``binary``), with fresh weights."""
    network: nn.Module = IMAGE_NETWORKS[config.model](precision=form, classes=len(data.classes))
    return network


class ImageExperiment(Experiment):
    """An experiment on images.

    Args:
        config: the experiment.
        data: its images on the device.
        folder: output folder of the runs.
        options: how often checkpoints are written.
    """

    run_kind = ImageRun

    def __init__(
        self, config: ImageConfig, data: ImageData, folder: Path, options: RunOptions
    ) -> None:
        super().__init__(config, folder, options)
        self.data = data

    def build(self, form: str) -> nn.Module:
        """The network on the device, its kernels in the layout that tensor cores want."""
        model = build_network(self.config, form, self.data).to(self.data.train.labels.device)
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def task(self, form: str, model: nn.Module, teacher: nn.Module | None) -> Task:
        """The images and the network."""
        return ImageTask(model, self.data, self.recipe(form), teacher)

    def run(self, form: str, seed: int, task: Task, trained: Trained) -> ImageRun:
        """The accuracy behind the last epoch."""
        history = trained.history
        seconds = sum(row["seconds"] for row in history)
        accuracy = history[-1]["test_accuracy"]
        return ImageRun(form, seed, accuracy, seconds, history, machine_name(task.device))


def main(arguments: Sequence[str] | None = None, root: Path = Path()) -> int:
    """Train every form and seed of the experiments, check the frozen networks, write records.

    Runs that are finished or under way in the output folder are not started anew.

    Args:
        arguments: of the command line; None takes those of the process.
        root: the project's folder, where ``configs`` is.

    Returns:
        Exit status: 0, 1 where a frozen network differs or something is wrong, 130 on an interrupt.
    """
    configs = root / "configs" / "images"
    parser = experiment_parser(__doc__, configs, "bitgnn-images", EXPERIMENTS)
    parser.add_argument(
        "--frozen",
        nargs="*",
        choices=("cpu", "cuda"),
        help="devices to compare frozen networks on (default: the CPU and where they trained)",
    )
    parsed = parser.parse_args(arguments)
    return status_of("train_images", parsed.output, lambda: _run(parsed, Console()))


def _run(parsed: argparse.Namespace, console: Console) -> list[str]:
    """Train and record; what is wrong with the frozen networks."""
    results = parsed.results or parsed.output
    return [line for name in parsed.only for line in _experiment(name, parsed, results, console)]


def _experiment(
    name: str, parsed: argparse.Namespace, results: Path, console: Console
) -> list[str]:
    """Train and record one experiment; what is wrong with its frozen networks."""
    config = overridden(load_image_config(parsed.configs / f"{name}.yaml"), parsed)
    options = options_of(parsed)
    device = options.torch_device()
    data = load_images(config.dataset, parsed.data_root).to(device)
    experiment = ImageExperiment(config, data, parsed.output / name, options)
    devices = {"cpu", device.type} if parsed.frozen is None else set(parsed.frozen)
    runs: list[tuple[ImageRun, list[FrozenCheck]]] = []
    differing: list[str] = []

    def finished(unit: Unit, run: Any) -> str:
        checks = []
        if unit.form == BINARY_FORM:
            model = experiment.trained(unit.form, unit.seed)
            checks = [check_frozen(model, data.test, where) for where in sorted(devices)]
        runs.append((run, checks))
        differing.extend(
            f"{config.title} {unit.form}, seed {unit.seed + 1}/{config.seeds}: "
            f"frozen on {c.device}: {c.images - c.equal} of {c.images} differ"
            for c in checks
            if c.equal != c.images
        )
        equal = (f"; frozen equal on {c.device}: {c.equal}/{c.images}" for c in checks)
        return f"{100 * run.test_accuracy:.2f} % in {run.seconds:.1f} s{''.join(equal)}"

    units = [Unit(experiment, f, seed) for seed in range(config.seeds) for f in config.forms]
    # One after the other: they draw from the device's default generator.
    train_units(units, device, console, finished, together=False)
    write_json(results / f"images_{name}.json", image_record(config, data, runs))
    return differing
