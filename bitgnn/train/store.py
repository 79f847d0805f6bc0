"""Output folder of an experiment: finished runs are kept, found again, and never mixed."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from bitgnn.train.config import ExperimentConfig, Form

__all__ = ["OutputError", "Run", "RunStore", "write_atomically"]

CONFIG_FILE = "config.json"
RUNS_FOLDER = "runs"


class OutputError(RuntimeError):
    """The output folder cannot be used; the message says why."""


@dataclass(frozen=True)
class Run:
    """One finished training.

    Attributes:
        form: precision.
        seed: random seed.
        test_accuracy: share of test nodes classified rightly at the lowest validation loss.
        val_accuracy: the same of validation nodes.
        val_loss: the lowest validation loss.
        epoch: its epoch.
        seconds: wall-clock time of the training.
        machine: processor and torch version it was trained with.
    """

    form: Form
    seed: int
    test_accuracy: float
    val_accuracy: float
    val_loss: float
    epoch: int
    seconds: float
    machine: str


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it appears whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink(missing_ok=True)
        raise


class RunStore:
    """Finished runs of one configuration in one folder.

    The folder is created and tried for writing at once, before any work is done.

    Args:
        folder: output folder.
        config: the experiment.

    Raises:
        OutputError: the folder cannot be written, or holds runs of another configuration.
    """

    def __init__(self, folder: Path, config: ExperimentConfig) -> None:
        self.folder = folder
        self.runs = folder / RUNS_FOLDER
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.runs):
                pass
            # Each folder has its own permissions.
            with tempfile.NamedTemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written ({error.strerror})") from error
        self._match(config)

    def _match(self, config: ExperimentConfig) -> None:
        """Record the configuration, or compare it with the recorded one.

        The number of seeds may differ: more of them go on where fewer ended.
        """
        wanted = config.model_dump(mode="json", exclude={"seeds"})
        file = self.folder / CONFIG_FILE
        if not file.exists():
            write_atomically(file, json.dumps(wanted, indent=2).encode() + b"\n")
            return
        try:
            recorded = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise OutputError(f"{file}: cannot be read ({error})") from error
        different = _first_difference(recorded, wanted)
        if different is not None:
            raise OutputError(
                f"{self.folder}: holds runs of another configuration ({different}); choose "
                "another --output or delete the folder"
            )

    def load(self, form: Form, seed: int) -> tuple[Run, dict[str, Tensor]] | None:
        """A finished run and its state; None where it is missing or damaged."""
        try:
            run = Run(**json.loads(self._path(form, seed, "json").read_text()))
            state = safetensors.torch.load_file(self._path(form, seed, "safetensors"))
        except (OSError, ValueError, TypeError, safetensors.SafetensorError):
            return None
        return run, state

    def save(self, run: Run, state: dict[str, Tensor]) -> None:
        """Keep a finished run; the JSON comes last and makes it count."""
        contiguous = {name: tensor.contiguous() for name, tensor in state.items()}
        weights = self._path(run.form, run.seed, "safetensors")
        write_atomically(weights, safetensors.torch.save(contiguous))
        text = json.dumps(asdict(run), indent=2) + "\n"
        write_atomically(self._path(run.form, run.seed, "json"), text.encode())

    def _path(self, form: Form, seed: int, ending: str) -> Path:
        return self.runs / f"{form}-{seed}.{ending}"


def _first_difference(recorded: Any, wanted: Any, key: str = "") -> str | None:
    """First key where two nested mappings differ, with both values."""
    if isinstance(recorded, dict) and isinstance(wanted, dict):
        for name in sorted({*recorded, *wanted}):
            inner = f"{key}.{name}" if key else name
            found = _first_difference(recorded.get(name), wanted.get(name), inner)
            if found is not None:
                return found
        return None
    if recorded == wanted:
        return None
    return f"{key}: {recorded!r} there, {wanted!r} here"
