"""The command behind scripts/train_images.py: trains, freezes, compares and records networks."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from bitgnn._files import write_atomically
from bitgnn.bench.report import write_json
from bitgnn.data import DataError, ImageData, load_images
from bitgnn.train.checkpoint import CheckpointError
from bitgnn.train.config import ConfigError
from bitgnn.train.experiment import make_progress
from bitgnn.train.images.proof import FrozenCheck, check_frozen
from bitgnn.train.images.recipe import ImageConfig, load_image_config
from bitgnn.train.images.record import image_chart, image_record
from bitgnn.train.images.unit import ImageRun, ImageRuns, train_image_unit, trained_network
from bitgnn.train.log import LogError
from bitgnn.train.loop import TrainingError
from bitgnn.train.store import OutputError
from bitgnn.train.unit import RunOptions

__all__ = ["EXPERIMENTS", "main"]

EXPERIMENTS = ("mnist_mlp", "cifar_vgg", "cifar_resnet14")
BINARY_FORM = "binary"
FAILED, INTERRUPTED = 1, 130
MENDABLE = (
    CheckpointError,
    ConfigError,
    DataError,
    LogError,
    OutputError,
    TrainingError,
    OSError,
    ValueError,
)


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
    console = Console()
    try:
        differing = [line for name in parsed.only for line in _experiment(name, parsed, console)]
        records = _records(parsed.results)
        if records:
            write_atomically(parsed.results / "images.png", image_chart(records))
    except MENDABLE as error:
        print(f"train_images: error: {' '.join(str(error).split())}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("train_images: stopped; the same command goes on", file=sys.stderr)
        return INTERRUPTED
    for line in differing:
        print(f"train_images: {line}", file=sys.stderr)
    return FAILED if differing else 0


def _parser(root: Path) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=EXPERIMENTS, help="names of configurations")
    parser.add_argument("--data-root", help="folder of the data sets (default: BITGNN_DATA)")
    parser.add_argument("--output", type=Path, default=Path("bitgnn-images"), help="of the runs")
    parser.add_argument("--results", type=Path, default=root / "scripts" / "results")
    parser.add_argument("--configs", type=Path, default=root / "configs" / "images")
    parser.add_argument("--seeds", type=int, help="repeats (default: the configuration's)")
    parser.add_argument("--epochs", type=int, help="instead of the configuration's")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--deterministic", action="store_true", help="repeat bit for bit on CUDA too; slower"
    )
    parser.add_argument(
        "--checkpoint-every", type=float, help="least seconds between a run's checkpoints"
    )
    parser.add_argument(
        "--frozen",
        nargs="*",
        choices=("cpu", "cuda"),
        help="devices to compare frozen networks on (default: the CPU and where they trained)",
    )
    return parser


def _config(name: str, parsed: argparse.Namespace) -> ImageConfig:
    config = load_image_config(parsed.configs / f"{name}.yaml")
    content = config.model_dump()
    for key in ("seeds", "epochs"):
        value = getattr(parsed, key)
        if value is not None and value < 1:
            raise ValueError(f"--{key} must be at least 1, got {value}")
    if parsed.seeds is not None:
        content["seeds"] = parsed.seeds
    if parsed.epochs is not None:
        for recipe in content["forms"].values():
            recipe["epochs"] = parsed.epochs
    return ImageConfig.model_validate(content)


def _experiment(name: str, parsed: argparse.Namespace, console: Console) -> list[str]:
    """Train and record one experiment; what is wrong with its frozen networks."""
    config = _config(name, parsed)
    options = RunOptions(parsed.device, parsed.checkpoint_every, deterministic=parsed.deterministic)
    device = options.torch_device()
    store = ImageRuns(parsed.output / name, config)
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


def _records(results: Path) -> list[dict[str, Any]]:
    """The records at hand, in the order of the experiments."""
    paths = [results / f"images_{name}.json" for name in EXPERIMENTS]
    return [json.loads(path.read_text("utf-8")) for path in paths if path.is_file()]
