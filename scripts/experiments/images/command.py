"""The command behind scripts/train_images.py: trains, freezes, compares and records networks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from bitgnn._files import write_atomically
from bitgnn.data import ImageData, load_images
from bitgnn.measure.report import write_json
from bitgnn.train.experiment import make_progress
from bitgnn.train.unit import RunOptions
from experiments.images.recipe import ImageConfig, load_image_config
from experiments.images.record import FrozenCheck, check_frozen, image_chart, image_record
from experiments.images.unit import ImageRun, ImageRuns, train_image_unit, trained_network
from experiments.training.commands import experiment_parser, overridden, records_at, status_of

__all__ = ["EXPERIMENTS", "main"]

EXPERIMENTS = ("mnist_mlp", "cifar_vgg", "cifar_resnet14")
BINARY_FORM = "binary"


def main(arguments: Sequence[str] | None = None, root: Path = Path()) -> int:
    """Train every form and seed of the experiments, check the frozen networks, write records.

    Runs that are finished or under way in the output folder are not started anew.

    Args:
        arguments: of the command line; None takes those of the process.
        root: the project's folder, where ``configs`` and ``scripts/results`` are.

    Returns:
        Exit status: 0, 1 where a frozen network differs or something is wrong, 130 on an interrupt.
    """
    parsed = _parser(root).parse_args(arguments)
    return status_of("train_images", lambda: _run(parsed, Console()))


def _run(parsed: argparse.Namespace, console: Console) -> list[str]:
    """Train and record; what is wrong with the frozen networks."""
    differing = [line for name in parsed.only for line in _experiment(name, parsed, console)]
    records = records_at(parsed.results, "images", EXPERIMENTS)
    if records:
        write_atomically(parsed.results / "images.png", image_chart(records))
    return differing


def _parser(root: Path) -> argparse.ArgumentParser:
    parser = experiment_parser(__doc__, root, "configs/images", "bitgnn-images", EXPERIMENTS)
    parser.add_argument(
        "--frozen",
        nargs="*",
        choices=("cpu", "cuda"),
        help="devices to compare frozen networks on (default: the CPU and where they trained)",
    )
    return parser


def _experiment(name: str, parsed: argparse.Namespace, console: Console) -> list[str]:
    """Train and record one experiment; what is wrong with its frozen networks."""
    config = overridden(load_image_config(parsed.configs / f"{name}.yaml"), parsed)
    options = RunOptions(parsed.device, parsed.checkpoint_every, parsed.deterministic)
    device = options.torch_device()
    store = ImageRuns(parsed.output / name, config, ImageRun)
    data = load_images(config.dataset, parsed.data_root).to(device)
    devices = {"cpu", device.type} if parsed.frozen is None else set(parsed.frozen)
    finished: list[tuple[ImageRun, list[FrozenCheck]]] = []
    differing = []
    total = config.seeds * sum(recipe.epochs for recipe in config.forms.values())
    with make_progress(console) as progress:
        task = progress.add_task("", total=total)
        for seed in range(config.seeds):
            for form in config.forms:
                title = f"{config.title} {form}, seed {seed + 1}/{config.seeds}"
                progress.update(task, description=title)
                run = train_image_unit(
                    config, form, seed, data, store, options,
                    lambda count: progress.advance(task, count),
                )  # fmt: skip
                checks = []
                if form == BINARY_FORM:
                    checks = _checks(config, seed, data, store, sorted(devices))
                finished.append((run, checks))
                console.print(
                    f"{title}: {100 * run.test_accuracy:.2f} % in {run.seconds:.1f} s"
                    + "".join(f"; frozen equal on {c.device}: {c.equal}/{c.images}" for c in checks)
                )
                differing += [
                    f"{title}: frozen on {c.device}: {c.images - c.equal} of {c.images} differ"
                    for c in checks
                    if c.equal != c.images
                ]
    write_json(parsed.results / f"images_{name}.json", image_record(config, data, finished))
    return differing


def _checks(
    config: ImageConfig, seed: int, data: ImageData, store: ImageRuns, devices: Sequence[str]
) -> list[FrozenCheck]:
    model = trained_network(config, BINARY_FORM, seed, data, store)
    return [check_frozen(model, data.test, torch.device(device)) for device in devices]
