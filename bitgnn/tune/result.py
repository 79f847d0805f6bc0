"""TuneResult: the distilled plans beside the float model, and which one to take and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.table import Table
from torch import nn

from bitgnn.convert import Plan, freeze
from bitgnn.inference import FrozenModel
from bitgnn.measure.timing import Timing
from bitgnn.tune.accuracy import Score
from bitgnn.tune.objective import (
    Constraint,
    Measures,
    Objective,
    ObjectiveError,
    explain_unmet,
    pareto_front,
    preference,
)
from bitgnn.tune.students import Student
from bitgnn.tune.trial import Trial


@dataclass(frozen=True)
class Point:
    """A distilled plan, or the float model beside it, with everything measured.

    Attributes:
        name: what to call it.
        score: on the validation nodes, and on the test nodes for information.
        memory: bytes at the peak of a forward.
        timing: of whole forwards.
        plan: the plan; None for the baseline.
        student: the distilled model that the plan is for; None for the baseline.
        gpu_seconds: what a GPU works in a forward, the host's launches and waiting left out; None
            on a CPU, and where it was not measured.
    """

    name: str
    score: Score
    memory: float
    timing: Timing
    plan: Plan | None = None
    student: Student | None = None
    gpu_seconds: float | None = None

    @property
    def measures(self) -> Measures:
        """Accuracy, latency and memory."""
        return Measures(self.score.validation, self.timing.median, self.memory)

    def freeze(self) -> FrozenModel:
        """The distilled model frozen with the plan.

        Raises:
            ValueError: it is the baseline.
        """
        if self.plan is None or self.student is None:
            raise ValueError(f"{self.name}: has no plan to freeze")
        return freeze(self.student.model, self.plan, check=False)  # scored in this form


@dataclass(frozen=True, eq=False)
class TuneResult:
    """What :func:`bitgnn.tune` found.

    Attributes:
        recommended: the best plan that keeps every limit; where :attr:`missed` is not None, the one
            that comes nearest.
        teacher: the float model, trained, that the students learnt from.
        points: the teacher as a baseline, then the distilled plans.
        trials: every plan that was looked at, most of them timed briefly alone.
        objective: what the recommended plan is best at.
        constraints: what it keeps.
        reference: the teacher's validation score, which losses of accuracy count from.
        space: number of plans there are.
        workload: sizes and names for the record.
        seconds: time the search took.
        seed: of everything drawn.
        complete: whether nothing was left out for lack of time.
        noise: what to say of a machine that was not quiet, or None.
        failed: plans that could not run, with the reason.
        doubt: why the teacher's score is lower than it can be, or None.
        remarks: further sentences for :attr:`reasons`.
    """

    recommended: Point
    teacher: nn.Module
    points: tuple[Point, ...]
    trials: tuple[Trial, ...]
    objective: Objective
    constraints: tuple[Constraint, ...]
    reference: float
    space: int
    workload: Mapping[str, Any]
    seconds: float
    seed: int = 0
    complete: bool = True
    noise: str | None = None
    failed: Mapping[Plan, str] = field(default_factory=dict)
    doubt: str | None = None
    remarks: tuple[str, ...] = ()

    @cached_property
    def front(self) -> tuple[Point, ...]:
        """Points that no other one beats in everything, fastest first."""
        places = pareto_front([point.measures for point in self.points])
        return tuple(self.points[place] for place in places)

    @property
    def model(self) -> nn.Module:
        """The distilled model that the recommended plan is for."""
        assert self.recommended.student is not None
        return self.recommended.student.model

    @property
    def plan(self) -> Plan:
        """The recommended plan, with what was measured in its notes."""
        found, plan, student = self.recommended, self.recommended.plan, self.recommended.student
        assert plan is not None
        assert student is not None
        notes = {
            "accuracy": found.score.validation,
            "test_accuracy": found.score.test,
            "latency_seconds": found.timing.median,
            "gpu_seconds": found.gpu_seconds,
            "memory_bytes": int(found.memory),
            "device": str(self.workload["device"]),
            "graph": {key: self.workload[key] for key in ("nodes", "edges", "features")},
            "widen": student.workload.widen,
            "distilled_epochs": student.epochs,
            "keeps_limits": self.missed is None,
            "reasons": list(self.reasons),
        }
        return replace(plan, notes=notes)

    @property
    def measured(self) -> int:
        """Plans that were measured in turns."""
        return sum(trial.timing is not None for trial in self.trials)

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why the recommended plan, in sentences; the first one says whether limits are missed."""
        from bitgnn.tune.report import reasons_for

        return reasons_for(self)

    def freeze(self) -> FrozenModel:
        """The recommended point's model frozen with its plan."""
        return self.recommended.freeze()

    def meets(self, point: Point) -> bool:
        """Whether a point keeps every limit."""
        return all(limit.is_met(point.measures, self.reference) for limit in self.constraints)

    def verdict(self, point: Point) -> str:
        """Whether a point keeps every limit, in a word."""
        if not self.meets(point):
            return "missed"
        return "kept" if self.missed is None or not self.meets(self.recommended) else "unknown"

    @cached_property
    def missed(self) -> str | None:
        """Which limits the recommended plan misses, or why nobody can tell; None if it keeps all.

        A loss of accuracy says nothing where the teacher was not trained for as long as it should
        be.
        """
        if not self.meets(self.recommended):
            found = [point.measures for point in self.points if point.plan is not None]
            cut = "" if self.complete else " in the time there was"
            return explain_unmet(found, self.constraints, self.reference) + cut
        limits = [str(limit) for limit in self.constraints if limit.what == "accuracy drop"]
        if self.doubt is None or not limits:
            return None
        return f"it is not known whether {' and '.join(limits)} is kept: {self.doubt}"

    def table(self, most: int = 20) -> Table:
        """The baseline, the front, and the best of the rest, for a terminal.

        Args:
            most: rows beside the baseline and the recommended plan.
        """
        from bitgnn.tune.report import result_table

        return result_table(self, most)

    def save(self, folder: str | Path) -> list[Path]:
        """Write ``tune.json``, ``tune.csv``, ``tune.png`` and ``plan.yaml``.

        Returns:
            The files.

        Raises:
            OSError: one cannot be written; what was there before stays whole.
        """
        from bitgnn.tune.report import write_result

        return write_result(self, Path(folder))

    def __str__(self) -> str:
        return " ".join(self.reasons)


class LimitsMissed(ObjectiveError):
    """No plan is known to keep every limit.

    Attributes:
        result: of the search, with the plan that comes nearest as the recommended one.
    """

    def __init__(self, result: TuneResult) -> None:
        super().__init__(f"tune: {result.missed}")
        self.result = result


def choose(
    points: Sequence[Point],
    constraints: Sequence[Constraint],
    reference: float,
    objective: Objective,
) -> Point:
    """The plan to recommend: the best one that keeps every limit, else the nearest one.

    Args:
        points: the baseline and plans, of which there is one at least.
        constraints: limits.
        reference: score that the loss of accuracy is counted from.
        objective: what it is best at.
    """
    plans = [point for point in points if point.plan is not None]
    return min(plans, key=lambda p: preference(p.measures, constraints, reference, objective))


def letters_of(plan: Plan) -> str:
    """Letters of the layers in one cell."""
    return " ".join(plan.letters.values())


def cells_of(plan: Plan) -> list[str]:
    """Letters, order and form of the features of a plan."""
    order = " ".join(f"{name} {value}" for name, value in plan.order.items())
    return [letters_of(plan), order, plan.features]
