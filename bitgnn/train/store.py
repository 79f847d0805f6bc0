"""Output folder of an experiment: finished runs are kept, found again, and never mixed."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor

from bitgnn._checksummed import read_sealed, sealed_tensors
from bitgnn._files import FileError, FolderInUseError, locked, write_atomically
from bitgnn._plain import read_json
from bitgnn.train.config import ExperimentConfig
from bitgnn.train.recipe import Strict

CONFIG_FILE = "config.json"
RUNS_FOLDER = "runs"


class OutputError(RuntimeError):
    """The output folder cannot be used; the message says why."""


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other trainings and tunings out of an output folder, which is made where it is missing.

    Raises:
        OutputError: another process is at work in the folder, or it cannot be made.
    """
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(folder))
        except FolderInUseError as error:
            raise OutputError(str(error)) from None
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written ({error.strerror})") from error
        yield


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
            recorded = read_json(file)
        except (OSError, FileError) as error:
            raise OutputError(f"{file}: cannot be read ({error})") from error
        different = _first_difference(recorded, wanted)
        if different is not None:
            raise OutputError(
                f"{self.folder}: holds runs of another configuration ({different}); choose "
                "another --output or delete the folder"
            )

    def load(self, form: str, seed: int) -> tuple[AnyRun, dict[str, Tensor]] | None:
        """A finished run and its state; None where it is missing, damaged or altered."""
        try:
            found = read_json(self._path(form, seed, "json"))
            state, values = read_sealed(self._path(form, seed, "safetensors"))
            run = self._kind(**values)
        except (OSError, FileError, TypeError):
            return None
        is_whole = found == values and (run.form, run.seed) == (form, seed)
        return (run, state) if is_whole else None

    def save(self, run: AnyRun, state: dict[str, Tensor]) -> None:
        """Keep a finished run.

        The weights hold the run's values under one checksum; the JSON repeats them for people to
        read, comes last and makes the run count.
        """
        values = json.loads(json.dumps(vars(run)))
        weights = self._path(run.form, run.seed, "safetensors")
        write_atomically(weights, sealed_tensors(state, values))
        text = json.dumps(values, indent=2) + "\n"
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
