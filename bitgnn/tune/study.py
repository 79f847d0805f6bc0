"""TrialStore: every trial of a search in an Optuna study, in memory or in an SQLite file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

import bitgnn
from bitgnn import _library
from bitgnn._files import FileError
from bitgnn.convert import ModelShape
from bitgnn.measure.report import cpu_model
from bitgnn.tune.trial import Trial, best_of, letters_key, values_of
from bitgnn.tune.workload import Workload

if TYPE_CHECKING:
    import optuna

STUDY = "bitgnn tune, x{:g}"
DRIVER_FILE = Path("/proc/driver/nvidia/version")
DIRECTIONS: tuple[Literal["maximize", "minimize"], ...] = ("maximize", "minimize", "minimize")
SQLITE_HEAD = b"SQLite format 3\0"
WAIT_SECONDS = 60
"""How long a process waits for another one that writes the file."""
ATTEMPTS, PAUSE_SECONDS = 5, 0.4
"""Of opening the file, which another process may be making."""


class StorageError(FileError):
    """A file that holds no search, a damaged one, or that of another model, graph or machine."""


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

    Processes that name the same file share its trials; each width has a study of its own there.
    Each letter choice is one trial of the study with its plans and brief timings, each measured
    plan another one.

    Args:
        path: SQLite file; None keeps trials in memory alone.
        signature: of :func:`signature_of`.
        widen: multiple of the hidden channels.

    Raises:
        StorageError: the file is something else, or of another workload.
    """

    def __init__(self, path: str | Path | None, signature: str, widen: float = 1.0) -> None:
        self.path = None if path is None else Path(path)
        self._name = STUDY.format(widen)
        self._read: set[int] = set()
        if self.path is None:
            return
        check_file(self.path)
        with self._errors_named():
            known = self.study.user_attrs.get("signature")
            if known is None:
                self.study.set_user_attr("signature", signature)
        if known not in (None, signature):
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

        attempt = 0
        while True:
            attempt += 1
            try:
                # The name is no part of the URL, where some characters have a meaning.
                storage = optuna.storages.RDBStorage(
                    "sqlite:///trials", engine_kwargs={"creator": partial(_connected, self.path)}
                )
                return optuna.create_study(
                    storage=storage,
                    study_name=self._name,
                    directions=DIRECTIONS,
                    load_if_exists=True,
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
        by_letters: dict[str, tuple[list[Trial], int]] = {}
        measured: list[Trial] = []
        if self.path is None:
            return by_letters, measured
        from optuna.trial import TrialState

        states = (TrialState.COMPLETE,)
        with self._errors_named():
            for found in self.study.get_trials(deepcopy=False, states=states):
                if found.number in self._read:
                    continue
                self._read.add(found.number)
                plans = [Trial.from_dict(entry) for entry in found.user_attrs["plans"]]
                if found.user_attrs["kind"] == "letters":
                    size = int(found.user_attrs["size"])
                    by_letters[letters_key(plans[0].plan.letters)] = plans, size
                else:
                    measured += plans
        return by_letters, measured

    @contextlib.contextmanager
    def _errors_named(self) -> Iterator[None]:
        """Errors of reading and writing trials name the file."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except StorageError:
            raise
        except SQLAlchemyError as error:
            reason = getattr(error, "orig", None) or error
        except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
            reason = error
        else:
            return
        raise StorageError(
            f"{self.path}: a trial cannot be read or written ({type(reason).__name__}: {reason}); "
            "name another storage or delete it"
        )

    def add_letters(self, plans: Sequence[Trial], size: int) -> None:
        """Keep the plans of a letter choice that no sampler proposed, and how many there are."""
        self._add("letters", best_of(plans), plans, size)

    def add_measured(self, trials: Sequence[Trial]) -> None:
        """Keep plans that were measured as a whole."""
        for trial in trials:
            self._add("measured", trial, [trial], 1)

    @property
    def has_front(self) -> bool:
        """Whether a call before has measured the Pareto front."""
        if self.path is None:
            return False
        with self._errors_named():
            return bool(self.study.user_attrs.get("front"))

    def add_front(self) -> None:
        """Keep that the Pareto front is measured: going on would choose other plans each time."""
        if self.path is not None:
            with self._errors_named():
                self.study.set_user_attr("front", True)

    def drop(self, asked: optuna.Trial) -> None:
        """Close a trial that came to nothing."""
        from optuna.trial import TrialState

        self.study.tell(asked, state=TrialState.FAIL)

    def _add(self, kind: str, best: Trial, plans: Sequence[Trial], size: int) -> None:
        if self.path is None:
            return
        from optuna.trial import create_trial

        trial = create_trial(
            values=values_of(best),
            user_attrs={"kind": kind, "size": size, "plans": [plan.to_dict() for plan in plans]},
        )
        with self._errors_named():
            self.study.add_trial(trial)


def check_file(path: Path) -> None:
    """Refuse what cannot be a file of trials, before anything is added to it.

    Raises:
        StorageError: it is a folder, or something else wrote it.
        OSError: it cannot be read.
    """
    if path.is_dir():
        raise StorageError(f"{path}: is a folder; name a file for the trials")
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        is_database = file.read(len(SQLITE_HEAD)) == SQLITE_HEAD
    if is_database:
        with _opened(path) as tables:
            is_database = not tables or "studies" in tables
    if not is_database:
        raise StorageError(f"{path}: is no file of trials; name another storage or delete it")


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=WAIT_SECONDS, check_same_thread=False)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[set[str]]:
    """Names of a database's tables; none of ours where it cannot be read."""
    try:
        with contextlib.closing(_connected(path)) as connection:
            rows = connection.execute("select name from sqlite_master where type = 'table'")
            yield {name for (name,) in rows}
    except sqlite3.DatabaseError:
        yield {"?"}
