"""Students of one teacher: each choice of width and letters is distilled once."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from bitgnn._files import FileError
from bitgnn._plain import read_json
from bitgnn.convert import Plan
from bitgnn.distillation import Distilled, distill
from bitgnn.distillation.fitting import BUDGET_SPENT
from bitgnn.measure.report import write_json
from bitgnn.tune.accuracy import Accuracy, Score
from bitgnn.tune.space import Candidate, Space
from bitgnn.tune.workload import Workload

LONGEST = 120
"""Characters of a folder's name, beyond which letters are told by a checksum."""


@dataclass(frozen=True, eq=False)
class Student:
    """A binary model that was distilled.

    Attributes:
        workload: the model with the data.
        epochs: trained.
        seconds: of its training.
    """

    workload: Workload
    epochs: int
    seconds: float

    @property
    def model(self) -> nn.Module:
        """In the letters it was trained in, in evaluation."""
        return self.workload.model

    def scored(self, plan: Plan) -> tuple[Score, Candidate]:
        """A plan in its own letters: the score of the frozen model, and the model ready to run.

        Raises:
            ValueError: the plan does not fit.
        """
        return self._accuracy.of(plan), self._accuracy.space.candidates.make(plan)

    @cached_property
    def _accuracy(self) -> Accuracy:
        return Accuracy(Space.from_workload(self.workload))


@dataclass
class Students:
    """Distills students, the teacher first where it is not trained.

    Attributes:
        workload: the float model that was given, and its data.
        data: the same data as distill() takes them.
        folder: for checkpoints and logs; a call with the same arguments goes on from there.
        epochs: of each training; None for the rule of distill().
        seed: of all trainings.
        trained: whether the model that was given is; None looks at its scores.
        teacher: trained; None before the first student.
        doubt: why the teacher is worse than it should be; None where it is not.
        taught: number of students so far.
    """

    workload: Workload
    data: Any
    folder: Path
    epochs: int | None = None
    seed: int = 0
    trained: bool | None = None
    teacher: nn.Module | None = None
    doubt: str | None = None
    taught: int = field(default=0, init=False)

    def teach(self, widen: float, plan: Plan | None = None, budget: float | None = None) -> Student:
        """Distill a student.

        Args:
            widen: multiple of the hidden channels, at least 1.
            plan: with its letters; None for those of ``"bin"``.
            budget: seconds.

        Raises:
            DistillError: the model cannot be widened, or learn from the data.
            CheckpointError: the folder holds a training of something else.
            FileError: a file in it is damaged.
            KeyboardInterrupt: Ctrl-C; the same call goes on.
        """
        log = self.folder / f"x{widen:g}-{'bin' if plan is None else _title(plan)}"
        with warnings.catch_warnings():
            # The first one says what is wrong with all.
            warnings.filterwarnings("ignore", message="distill: stopped by Ctrl-C")
            if self.teacher is not None:
                warnings.simplefilter("ignore", UserWarning)
            found = distill(
                self.workload.model if self.teacher is None else self.teacher,
                self.data,
                "bin" if plan is None else plan,
                widen=None if widen == 1 else widen,
                epochs=self.epochs,
                budget=_first_budget(log, budget),
                seed=self.seed,
                log=log,
                trained=self.trained if self.teacher is None else True,
            )
        if found.interrupted:
            raise KeyboardInterrupt
        if self.teacher is None:
            self._keep_teacher(found)
        self.taught += 1
        workload = replace(self.workload, model=found.model, widen=widen)
        return Student(workload, len(found.history), found.seconds)

    def _keep_teacher(self, found: Distilled) -> None:
        self.teacher = found.teacher
        if found.ended.get("teacher") == BUDGET_SPENT:
            epochs = len(found.teacher_history)
            self.doubt = f"the budget ended the float model's training at epoch {epochs}"


def _title(plan: Plan) -> str:
    """A plan's letters as the name of a folder."""
    letters = "_".join(plan.letters.values()).replace("+", "-")
    return letters if len(letters) <= LONGEST else hashlib.sha256(letters.encode()).hexdigest()


def _first_budget(log: Path, seconds: float | None) -> float | None:
    """Seconds that the first call gave a student, kept for those that go on.

    With more of them a teacher would be trained on, and no longer be what its students learnt from.
    """
    file = log / "budget.json"
    if not file.exists():
        log.mkdir(parents=True, exist_ok=True)
        write_json(file, {"seconds": seconds})
    kept = read_json(file)
    value = kept.get("seconds") if isinstance(kept, dict) else ""
    if value is not None and not isinstance(value, int | float):
        raise FileError(f"{file}: is damaged; delete it to go on with another budget")
    return value
