"""Arguments, exit statuses and errors of the command that trains the papers' tables."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from bitgnn.train import MENDABLE, RunOptions
from bitgnn.train.recipe import Strict
from bitgnn.train.store import alone_in

__all__ = ["experiment_parser", "options_of", "overridden", "status_of"]

FAILED, INTERRUPTED = 1, 130
Config = TypeVar("Config", bound=Strict)


def status_of(name: str, folder: Path, work: Callable[[], Iterable[str]]) -> int:
    """Run a command's work, alone in its folder, and tell what went wrong on standard error.

    A request to terminate, such as that of a scheduler whose time is over, is an interrupt too.

    Args:
        name: of the command.
        folder: output folder, which no other process may work in meanwhile.
        work: returns what it found wrong, a line each.

    Returns:
        Exit status: 0, 1 where something is wrong, 130 on an interrupt.
    """
    try:
        with _termination_as_interrupt(), alone_in(folder):
            found = list(work())
    except MENDABLE as error:
        print(f"{name}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"{name}: stopped; the same command goes on", file=sys.stderr)
        return INTERRUPTED
    for line in found:
        print(f"{name}: {line}", file=sys.stderr)
    return FAILED if found else 0


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # other threads get no signals
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def experiment_parser(
    description: str | None, configs: Path, output: str, names: Sequence[str]
) -> argparse.ArgumentParser:
    """A parser with the arguments that all trainings of networks have.

    Args:
        description: of the command.
        configs: default folder of the configurations.
        output: default folder of the runs.
        names: of those trained by default.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", nargs="+", default=names, help="names of configurations")
    parser.add_argument("--data-root", help="folder of the data sets (default: BITGNN_DATA)")
    parser.add_argument("--output", type=Path, default=Path(output), help="folder of the runs")
    parser.add_argument("--results", type=Path, help="folder of the records (default: --output)")
    parser.add_argument("--configs", type=Path, default=configs)
    parser.add_argument("--seeds", type=int, help="repeats (default: the configuration's)")
    parser.add_argument("--epochs", type=int, help="of every form, not the configuration's")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="reproducible bit for bit on CUDA too, but slower",
    )
    parser.add_argument(
        "--checkpoint-every", type=float, help="minimum seconds between a run's checkpoints"
    )
    return parser


def options_of(parsed: argparse.Namespace) -> RunOptions:
    """How runs are carried out, as the command line says."""
    return RunOptions(parsed.device, parsed.checkpoint_every, parsed.deterministic)


def overridden(config: Config, parsed: argparse.Namespace) -> Config:
    """The configuration with ``--seeds`` and ``--epochs`` where they are given.

    Raises:
        ValueError: one of them is below 1.
    """
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
    return type(config).model_validate(content)
