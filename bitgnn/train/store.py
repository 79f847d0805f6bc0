"""Output folder of an experiment: finished runs are kept, found again, and never mixed."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import safetensors
import safetensors.torch
from torch import Tensor

from bitgnn._files import write_atomically
from bitgnn.train.config import ExperimentConfig
from bitgnn.train.recipe import Strict

__all__ = ["OutputError", "Run", "RunFiles", "RunStore"]

CONFIG_FILE = "config.json"
RUNS_FOLDER = "runs"


class OutputError(RuntimeError):
    """The output folder cannot be used; the message says why."""


@dataclass(frozen=True)
class Run:
    """One finished training.

    Attributes:
        form: name of the form.
        seed: random seed.
        test_score: score of the test nodes at the epoch chosen (share or area, not per cent).
        val_score: the same of validation nodes.
        val_loss: validation loss at that epoch.
        epoch: the epoch chosen, from 0.
        epochs: epochs trained.
        seconds: time of these epochs.
        machine: processor and torch version it was trained with.
    """

    form: str
    seed: int
    test_score: float
    val_score: float
    val_loss: float
    epoch: int
    epochs: int
    seconds: float
    machine: str


class _Named(Protocol):
    """What every run says of itself."""

    @property
    def form(self) -> str: ...

    @property
    def seed(self) -> int: ...


AnyRun = TypeVar("AnyRun", bound=_Named)


class RunFiles(Generic[AnyRun]):
    """Finished runs of one configuration in one folder.

    The folder is created and tried for writing at once, before any work is done.

    Args:
        folder: output folder.
        config: the experiment.
        kind: dataclass of the runs.

    Raises:
        OutputError: the folder cannot be written, or holds runs of another configuration.
    """

    def __init__(self, folder: Path, config: Strict, kind: type[AnyRun]) -> None:
        self.folder = folder
        self._kind = kind
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

    def _match(self, config: Strict) -> None:
        """Record the configuration, or compare it with the recorded one.

        The number of seeds may differ: more of them go on where fewer ended. A folder in which
        nothing was trained yet takes any configuration.
        """
        wanted = config.model_dump(mode="json", exclude={"seeds"})
        file = self.folder / CONFIG_FILE
        kept = (*self.runs.glob("*.json"), *self.runs.glob("*.checkpoint"))
        if not file.exists() or not kept:
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

    def load(self, form: str, seed: int) -> tuple[AnyRun, dict[str, Tensor]] | None:
        """A finished run and its state; None where it is missing or damaged."""
        try:
            run = self._kind(**json.loads(self._path(form, seed, "json").read_text()))
            state = safetensors.torch.load_file(self._path(form, seed, "safetensors"))
        except (OSError, ValueError, TypeError, safetensors.SafetensorError):
            return None
        return run, state

    def save(self, run: AnyRun, state: dict[str, Tensor]) -> None:
        """Keep a finished run; the JSON comes last and makes it count."""
        contiguous = {name: tensor.contiguous() for name, tensor in state.items()}
        weights = self._path(run.form, run.seed, "safetensors")
        write_atomically(weights, safetensors.torch.save(contiguous))
        text = json.dumps(vars(run), indent=2) + "\n"
        write_atomically(self._path(run.form, run.seed, "json"), text.encode())
        self.clear_leftovers(run.form, run.seed)

    def checkpoint(self, form: str, seed: int) -> Path:
        """File of a run under way."""
        return self._path(form, seed, "checkpoint")

    def log(self, form: str, seed: int) -> Path:
        """Path of a run's logs without their endings."""
        return self.runs / f"{form}-{seed}-log"

    def clear_leftovers(self, form: str, seed: int, under_way: bool = False) -> None:
        """Remove what a kill left behind: half-written files, and a finished run's checkpoint.

        Args:
            form: of the run.
            seed: of the run.
            under_way: the run goes on, so its checkpoint stays.
        """
        if not under_way:
            self.checkpoint(form, seed).unlink(missing_ok=True)
        for path in self.runs.glob(f".{form}-{seed}[.-]*"):
            path.unlink(missing_ok=True)

    def _path(self, form: str, seed: int, ending: str) -> Path:
        return self.runs / f"{form}-{seed}.{ending}"


class RunStore(RunFiles[Run]):
    """Finished runs of an experiment on a graph.

    Args:
        folder: output folder.
        config: the experiment.

    Raises:
        OutputError: the folder cannot be written, or holds runs of another configuration.
    """

    def __init__(self, folder: Path, config: ExperimentConfig) -> None:
        super().__init__(folder, config, Run)


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
