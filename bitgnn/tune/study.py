"""TrialStore: every trial of a search in an Optuna study, in memory or in an SQLite file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

import bitgnn
from bitgnn import _library
from bitgnn._files import FileError
from bitgnn.convert import ModelShape, Plan
from bitgnn.measure.report import cpu_model
from bitgnn.measure.timing import Timing
from bitgnn.tune.objective import Measures
from bitgnn.tune.workload import Score, Workload

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
    """A file holds no search, a damaged one, or that of another model, graph or machine."""


@dataclass(frozen=True)
class Trial:
    """One plan and its results.

    Attributes:
        score: of its letters, without training.
        memory: bytes at the peak of a forward.
        estimate: seconds of a forward, timed briefly.
        timing: of whole forwards; None where none was measured.
        widen: multiple of the hidden channels that the model has.
    """

    plan: Plan
    score: Score
    memory: float
    estimate: float
    timing: Timing | None = None
    widen: float = 1.0

    @property
    def latency(self) -> float:
        """Measured seconds, else the estimate."""
        return self.estimate if self.timing is None else self.timing.median

    @property
    def measures(self) -> Measures:
        """Measurements that limits and objectives compare."""
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
            "widen": self.widen,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Trial:
        """Read what :meth:`to_dict` gave; numbers that no trial gives are refused."""
        score = Score(content["validation"], content["test"])
        memory, estimate, widen = (content[name] for name in ("memory", "estimate", "widen"))
        amounts, timing = [memory, estimate, widen], content["timing"]
        if timing is not None:
            timing = Timing(tuple(timing["seconds"]), timing["calls_per_repeat"])
            amounts += [*timing.seconds, timing.calls]
        shares = [score.validation, *([] if score.test is None else [score.test])]
        if (
            not all(0 <= share <= 1 for share in shares)
            or not all(0 <= amount < math.inf for amount in amounts)
            or (timing is not None and not timing.seconds)
        ):
            raise ValueError(f"no trial gives {shares} and {amounts}")
        return cls(Plan.from_dict(content["plan"]), score, memory, estimate, timing, widen)


def letters_key(letters: Mapping[str, str]) -> str:
    """One text for equal letters."""
    return json.dumps(dict(letters), sort_keys=True)


def attributes_of(kind: str, plans: Sequence[Trial], size: int) -> dict[str, Any]:
    """Attributes of the study's trials: plans that were tried, and their number."""
    return {"kind": kind, "size": size, "plans": [plan.to_dict() for plan in plans]}


def fastest(plans: Sequence[Trial]) -> tuple[Trial, list[float]]:
    """The fastest of some plans, and its values in the study's directions."""
    best = min(plans, key=lambda trial: trial.latency)
    return best, [best.score.validation, best.latency, best.memory]


def environment_of(device: torch.device) -> dict[str, Any]:
    """The machine and the software, on which times depend beside the plan."""
    versions = {"bitgnn": bitgnn.__version__, "torch": torch.__version__}
    if device.type == "cuda":
        driver = None  # version of NVIDIA's kernel module, where the system tells
        with contextlib.suppress(OSError, IndexError):
            driver = DRIVER_FILE.read_text().splitlines()[0]
        return {
            "device": torch.cuda.get_device_name(device),
            "capability": list(torch.cuda.get_device_capability(device)),
            "cuda": torch.version.cuda,
            "driver": driver,
            **versions,
        }
    return {
        "device": cpu_model(),
        "threads": torch.get_num_threads(),
        "capability": _library.library_info().cpu_capability,
        **versions,
    }


def signature_of(workload: Workload) -> str:
    """A text that identifies model, weights, data, metric, machine and versions."""
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
    """Trials of one workload, kept in an SQLite file or in memory.

    Processes that name the same file share its trials; each width has a study of its own there.
    Each letter choice is one trial of the study with its plans and brief timings, each measured
    plan another one. A file of another ``signature`` is refused.
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
        """Optuna's study, made on first use."""
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

        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_SECONDS)
            try:
                # The name is no part of the URL, where some characters have a meaning.
                storage = optuna.storages.RDBStorage(
                    "sqlite:///trials", engine_kwargs={"creator": partial(_connected, self.path)}
                )
                return optuna.create_study(
                    storage=storage, study_name=self._name, directions=DIRECTIONS,
                    load_if_exists=True,
                )  # fmt: skip
            except DatabaseError as error:  # also where another process makes the file just now
                reason = error.orig
        raise StorageError(f"{self.path}: cannot be used ({reason})")

    def news(self) -> tuple[dict[str, tuple[list[Trial], int]], list[Trial]]:
        """Trials finished since the last call: by letters, plans tried and their number.

        And those that were measured as a whole.
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

    def add(self, kind: str, plans: Sequence[Trial], size: int = 1) -> None:
        """Keep the plans of a letter choice that no sampler proposed, or a measured plan."""
        if self.path is None:
            return
        from optuna.trial import create_trial

        attributes = attributes_of(kind, plans, size)
        with self._errors_named():
            self.study.add_trial(create_trial(values=fastest(plans)[1], user_attrs=attributes))

    @property
    def has_front(self) -> bool:
        """True if an earlier call has measured the Pareto front."""
        if self.path is None:
            return False
        with self._errors_named():
            return bool(self.study.user_attrs.get("front"))

    def add_front(self) -> None:
        """Record that the Pareto front is measured, so that a later call keeps its plans."""
        if self.path is not None:
            with self._errors_named():
                self.study.set_user_attr("front", True)

    def drop(self, asked: optuna.Trial) -> None:
        """Close a trial without a result."""
        from optuna.trial import TrialState

        self.study.tell(asked, state=TrialState.FAIL)


def check_file(path: Path) -> None:
    """Refuse a file that holds no trials before anything is added to it."""
    if path.is_dir():
        raise StorageError(f"{path}: is a folder; name a file for the trials")
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        is_database = file.read(len(SQLITE_HEAD)) == SQLITE_HEAD
    if is_database:
        try:
            with contextlib.closing(_connected(path)) as connection:
                rows = connection.execute("select name from sqlite_master where type = 'table'")
                tables = {name for (name,) in rows}
            is_database = not tables or "studies" in tables
        except sqlite3.DatabaseError:
            is_database = False
    if not is_database:
        raise StorageError(f"{path}: is no file of trials; name another storage or delete it")


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=WAIT_SECONDS, check_same_thread=False)
