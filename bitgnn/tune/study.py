"""TrialStore: every trial of a search in an Optuna study, in memory or in an SQLite file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

import bitgnn
from bitgnn import _library
from bitgnn.convert import ModelShape, Plan
from bitgnn.measure.environment import cpu_model
from bitgnn.measure.timing import Timing
from bitgnn.tune.accuracy import Score
from bitgnn.tune.objective import Measures
from bitgnn.tune.workload import Workload

if TYPE_CHECKING:
    import optuna

__all__ = ["StorageError", "Trial", "TrialStore", "check_file", "environment_of", "signature_of"]

STUDY = "bitgnn tune"
DRIVER_FILE = Path("/proc/driver/nvidia/version")
DIRECTIONS: tuple[Literal["maximize", "minimize"], ...] = ("maximize", "minimize", "minimize")
SQLITE_HEAD = b"SQLite format 3\0"
WAIT_SECONDS = 60
"""How long a process waits for another one that writes the file."""
ATTEMPTS, PAUSE_SECONDS = 5, 0.4
"""Of opening the file, which another process may be making."""


class StorageError(ValueError):
    """A file that holds no search, or the search of another model, graph or machine."""


@dataclass(frozen=True)
class Trial:
    """One plan and what is known of it.

    Attributes:
        plan: the plan.
        score: of its letters, without training.
        memory: bytes at the peak of a forward.
        estimate: seconds of a forward, timed briefly.
        timing: of whole forwards; None where none was measured.
    """

    plan: Plan
    score: Score
    memory: float
    estimate: float
    timing: Timing | None = None

    @property
    def latency(self) -> float:
        """Measured seconds where there are any, else the estimate."""
        return self.estimate if self.timing is None else self.timing.median

    @property
    def measures(self) -> Measures:
        """What limits and objectives ask for."""
        return Measures(self.score.validation, self.latency, self.memory)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that :meth:`from_dict` reads."""
        return {
            "plan": self.plan.to_dict(),
            "validation": self.score.validation,
            "test": self.score.test,
            "memory": self.memory,
            "estimate": self.estimate,
            "timing": None if self.timing is None else self.timing.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Trial:
        """Read what :meth:`to_dict` gave.

        Raises:
            KeyError: an entry is missing.
            TypeError: an entry is of another type.
            ValueError: the plan is none, or a number is none that is measured.
        """
        timing = content["timing"]
        trial = cls(
            Plan.from_dict(content["plan"]),
            Score(content["validation"], content["test"]),
            content["memory"],
            content["estimate"],
            None
            if timing is None
            else Timing(tuple(timing["seconds"]), timing["calls_per_repeat"]),
        )
        seconds = (trial.estimate,) if trial.timing is None else trial.timing.seconds
        if not all(0 < value < math.inf for value in (trial.estimate, trial.memory, *seconds)):
            raise ValueError("seconds and bytes must be above 0 and finite")
        if not 0 <= trial.score.validation <= 1:
            raise ValueError(f"validation must lie in [0, 1], got {trial.score.validation}")
        return trial


def environment_of(device: torch.device) -> dict[str, Any]:
    """What times on a device depend on beside the plan: the machine and the software."""
    versions = {"bitgnn": bitgnn.__version__, "torch": torch.__version__}
    if device.type == "cuda":
        return {
            "device": torch.cuda.get_device_name(device),
            "capability": list(torch.cuda.get_device_capability(device)),
            "cuda": torch.version.cuda,
            "driver": _driver(),
            **versions,
        }
    return {
        "device": cpu_model(),
        "threads": torch.get_num_threads(),
        "capability": _library.library_info().cpu_capability,
        **versions,
    }


def _driver() -> str | None:
    """Version of NVIDIA's kernel module, None where the system does not tell."""
    try:
        return DRIVER_FILE.read_text().splitlines()[0]
    except (OSError, IndexError):
        return None


def signature_of(workload: Workload) -> str:
    """A text that differs for another model, other weights, data, metric, machine or versions."""
    digest = hashlib.sha256(str(ModelShape.of(workload.model)).encode())
    for name, tensor in workload.model.state_dict().items():
        digest.update(name.encode())
        if isinstance(tensor, Tensor):
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    graph = workload.edge_index
    edges = [list(graph.shape), int(graph.sum())] if isinstance(graph, Tensor) else [str(graph)]
    data = {
        "x": [list(workload.x.shape), float(workload.x.double().sum())],
        "edges": edges,
        "labels": int(workload.y.sum()),
        "validation": workload.val_mask.nonzero().sum().item(),
        "weighted": workload.edge_weight is not None,
        "metric": workload.metric,
        "environment": environment_of(workload.device),
    }
    digest.update(json.dumps(data, sort_keys=True).encode())
    return digest.hexdigest()


class TrialStore:
    """Trials of one workload, kept in a file where one is named.

    Processes that name the same file share its trials. Each letter choice is one trial of the
    study with its plans and brief timings, each measured plan another one.

    Args:
        path: SQLite file; None keeps trials in memory alone.
        signature: of :func:`signature_of`.

    Raises:
        StorageError: the file is something else, or of another workload.
    """

    def __init__(self, path: str | Path | None, signature: str) -> None:
        self.path = None if path is None else Path(path)
        self._read: set[int] = set()
        if self.path is None:
            return
        check_file(self.path)
        with self._reading():
            known = self.study.user_attrs.get("signature")
        if known is None:
            self.study.set_user_attr("signature", signature)
        elif known != signature:
            raise StorageError(
                f"{self.path}: holds the search of another model, graph or machine; "
                "name another storage or delete it"
            )

    @cached_property
    def study(self) -> optuna.Study:
        """Optuna's study, made on first use.

        Raises:
            StorageError: Optuna is not installed, or the file cannot be used.
        """
        try:
            import optuna
        except ImportError:
            raise StorageError(
                "tune: keeping trials in a file, and large spaces, need Optuna: "
                "pip install 'bitgnn[tune]'"
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        if self.path is None:
            return optuna.create_study(directions=DIRECTIONS)
        from sqlalchemy.exc import DatabaseError

        connect = partial(sqlite3.connect, self.path, timeout=WAIT_SECONDS, check_same_thread=False)
        attempt = 0
        while True:
            attempt += 1
            try:
                storage = optuna.storages.RDBStorage(
                    "sqlite:///trials",  # a URL would take some characters of the path as its own
                    engine_kwargs={"creator": connect},
                )
                return optuna.create_study(
                    storage=storage, study_name=STUDY, directions=DIRECTIONS, load_if_exists=True
                )
            except DatabaseError as error:  # also where another process makes the file just now
                if attempt == ATTEMPTS:
                    raise StorageError(f"{self.path}: cannot be used ({error.orig})") from None
                time.sleep(PAUSE_SECONDS)

    def news(self) -> tuple[dict[str, tuple[list[Trial], int]], list[Trial]]:
        """Trials finished since the last call.

        Returns:
            By letters, the plans that were looked at and how many there are; and those measured.

        Raises:
            StorageError: a trial cannot be read.
        """
        chains: dict[str, tuple[list[Trial], int]] = {}
        measured: list[Trial] = []
        if self.path is None:
            return chains, measured
        from optuna.trial import TrialState

        states = (TrialState.COMPLETE,)
        with self._reading():
            for found in self.study.get_trials(deepcopy=False, states=states):
                if found.number in self._read:
                    continue
                self._read.add(found.number)
                plans = [Trial.from_dict(entry) for entry in found.user_attrs["plans"]]
                if found.user_attrs["kind"] == "letters":
                    size = int(found.user_attrs["size"])
                    chains[letters_key(plans[0].plan.letters)] = plans, size
                else:
                    measured += plans
        return chains, measured

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Turns what a damaged or altered file raises into one error that names it.

        Raises:
            StorageError: something in the file cannot be read.
        """
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except StorageError:
            raise
        except (LookupError, RecursionError, SQLAlchemyError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            raise StorageError(f"{self.path}: a trial cannot be read ({reason})") from None

    def add_letters(self, plans: Sequence[Trial], size: int) -> None:
        """Keep the plans of a letter choice that no sampler proposed, and how many there are."""
        self._add("letters", best_of(plans), plans, size)

    def add_measured(self, trials: Sequence[Trial]) -> None:
        """Keep plans that were measured as a whole."""
        for trial in trials:
            self._add("measured", trial, [trial], 1)

    def drop(self, asked: optuna.Trial) -> None:
        """Close a trial that came to nothing."""
        from optuna.trial import TrialState

        self.study.tell(asked, state=TrialState.FAIL)

    def _add(self, kind: str, best: Trial, plans: Sequence[Trial], size: int) -> None:
        if self.path is None:
            return
        from optuna.trial import create_trial

        self.study.add_trial(
            create_trial(
                values=values_of(best),
                user_attrs={
                    "kind": kind,
                    "size": size,
                    "plans": [trial.to_dict() for trial in plans],
                },
            )
        )


def letters_key(letters: Mapping[str, str]) -> str:
    """One text for equal letters."""
    return json.dumps(dict(letters), sort_keys=True)


def best_of(plans: Sequence[Trial]) -> Trial:
    """The fastest of some plans."""
    return min(plans, key=lambda trial: trial.latency)


def values_of(trial: Trial) -> list[float]:
    """What the study's directions are of."""
    return [trial.score.validation, trial.latency, trial.memory]


def merged(trial: Trial, timing: Timing) -> Trial:
    """A trial with further repeats."""
    if trial.timing is None:
        return replace(trial, timing=timing)
    return replace(trial, timing=Timing(trial.timing.seconds + timing.seconds, timing.calls))


def check_file(path: Path) -> None:
    """Refuse what cannot be a file of trials, before anything is added to it.

    Raises:
        StorageError: it is a folder, or something else wrote it.
        OSError: it cannot be read.
    """
    if path.is_dir():
        raise StorageError(f"{path}: is a folder; name a file for the trials")
    if not path.parent.is_dir():
        raise StorageError(f"{path}: the folder {path.parent} does not exist")
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        is_database = file.read(len(SQLITE_HEAD)) == SQLITE_HEAD
    if is_database:
        with _opened(path) as tables:
            is_database = not tables or "studies" in tables
    if not is_database:
        raise StorageError(f"{path}: is no file of trials; name another storage or delete it")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[set[str]]:
    """Names of a database's tables; none of ours where it cannot be read."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=WAIT_SECONDS)) as connection:
            rows = connection.execute("select name from sqlite_master where type = 'table'")
            yield {name for (name,) in rows}
    except sqlite3.DatabaseError:
        yield {"?"}
