"""TuneResult: the distilled plans and the float model, and a recommendation with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.table import Table
from torch import nn

from bitgnn.convert import Plan, freeze
from bitgnn.inference import FrozenModel
from bitgnn.measure.report import format_bytes, format_seconds
from bitgnn.measure.timing import Timing
from bitgnn.tune.objective import (
    Constraint,
    Goal,
    Measures,
    Objective,
    ObjectiveError,
    pareto_front,
)
from bitgnn.tune.students import Student
from bitgnn.tune.study import Trial
from bitgnn.tune.workload import Score

LEAST_POINTS = 0.005
"""Differences of accuracy below this are none."""


@dataclass(frozen=True)
class Point:
    """A distilled plan, or the float model, with all measurements.

    Attributes:
        name: what to call it.
        score: on the validation nodes, and on the test nodes for information.
        memory: bytes at the peak of a forward.
        timing: of whole forwards.
        plan: the plan; None for the baseline.
        student: the distilled model that the plan is for; None for the baseline.
        gpu_seconds: what a GPU works in a forward without the host's launches and waiting; None on
            a CPU, and where it was not measured.
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

    @property
    def widen(self) -> float | None:
        """Multiple of the hidden channels; None of the baseline."""
        return None if self.student is None else self.student.workload.widen

    def __str__(self) -> str:
        """A plan in words, with the width if that is not the model's."""
        if self.plan is None:
            return self.name
        wider = "" if self.widen == 1 else f", {self.widen:g} times the hidden channels"
        return f"{self.plan.describe()}{wider}"

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
    """Result of :func:`bitgnn.tune`.

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

    @property
    def goal(self) -> Goal:
        """Objective and limits."""
        return Goal(self.objective, self.constraints, self.reference)

    @property
    def plans(self) -> tuple[Point, ...]:
        """Points of distilled plans."""
        return tuple(point for point in self.points if point.plan is not None)

    @property
    def baselines(self) -> tuple[Point, ...]:
        """Points of the float model."""
        return tuple(point for point in self.points if point.plan is None)

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
        found = self.recommended
        plan, student = found.plan, found.student
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
            "widen": found.widen,
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
        """Reasons for the recommended plan, in sentences; the first says if limits are missed."""
        return tuple(_reasons(self))

    def freeze(self) -> FrozenModel:
        """The recommended point's model frozen with its plan."""
        return self.recommended.freeze()

    def meets(self, point: Point) -> bool:
        """True if a point keeps every limit."""
        return self.goal.meets(point.measures)

    def verdict(self, point: Point) -> str:
        """One word that says if a point keeps every limit."""
        if not self.meets(point):
            return "missed"
        return "kept" if self.missed is None or not self.meets(self.recommended) else "unknown"

    @cached_property
    def missed(self) -> str | None:
        """Limits that the recommended plan misses, or why that is unknown; None if it keeps all.

        A loss of accuracy says nothing where the teacher was not trained for as long as it should
        be.
        """
        if not self.meets(self.recommended):
            cut = "" if self.complete else " in the time there was"
            return self.goal.explain_unmet(point.measures for point in self.plans) + cut
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


def _reasons(result: TuneResult) -> Iterator[str]:
    """Reasons for the recommended plan, in sentences; the first one says if limits are missed."""
    best = result.recommended
    found = best.measures
    facts = (
        f"{format_seconds(found.latency)} per forward pass, {format_bytes(found.memory)}, "
        f"{100 * found.accuracy:.2f}% on the validation nodes, {_change(result, found.accuracy)}"
    )
    if result.missed is None:
        limits = " and ".join(map(str, result.constraints)) or "no limits"
        yield f"Take {best}."
        yield (
            f"It has the best {result.objective} of {len(result.plans)} distilled plans under "
            f"{limits}: {facts}."
        )
    else:
        yield f"No plan is recommended: {result.missed}."
        yield f"The plan nearest to the limits is {best}: {facts}."
    if result.doubt is not None and not result.meets(best):
        yield f"Accuracies are lower than they can be: {result.doubt}."
    if best.gpu_seconds is not None:
        yield (
            f"Of the {format_seconds(found.latency)} from a call until its result is there the GPU "
            f"works {format_seconds(best.gpu_seconds)}; the rest is the host's, which launches and "
            "waits."
        )
    if best.student is not None:
        yield f"It was distilled in these letters for {best.student.epochs} epochs."
    if result.missed is None:
        for point in result.baselines:
            other, points = point.measures, 100 * (found.accuracy - point.measures.accuracy)
            yield (
                f"Beside {point.name}: {other.latency / found.latency:.2f} times as fast, "
                f"{other.memory / found.memory:.2f} times less memory, {points:+.2f} points of "
                "accuracy."
            )
        yield from _passed_over(result)
    yield from result.remarks
    share = result.measured / max(result.space, 1)
    yield (
        f"{result.measured} of {result.space} plans were measured in turns ({share:.0%}), "
        f"{len(result.trials)} timed briefly, in {result.seconds:.0f} s."
    )
    if not result.complete:
        yield "The time was up before everything was looked at; more may find better."
    if result.noise:
        yield f"{result.noise[0].upper()}{result.noise[1:]}."


def _change(result: TuneResult, accuracy: float) -> str:
    """An accuracy and the one from which the loss counts."""
    drop = 100 * (result.reference - accuracy)
    if abs(drop) < LEAST_POINTS:
        return "the same as the float model"
    change = f"{abs(drop):.2f} points {'below' if drop > 0 else 'above'}"
    return f"{change} the float model ({100 * result.reference:.2f}%)"


def _passed_over(result: TuneResult) -> Iterator[str]:
    """Name the faster or smaller plan that was passed over, and why."""

    def rank(point: Point) -> tuple[float, ...]:
        return point.measures.rank(result.objective)

    better = [point for point in result.plans if rank(point) < rank(result.recommended)]
    point = min((p for p in better if not result.meets(p)), key=rank, default=None)
    if point is None:
        return
    missed = ", ".join(
        f"{limit.what} {limit.show(limit.value(point.measures, result.reference))}"
        for limit in result.constraints
        if not limit.is_met(point.measures, result.reference)
    )
    seconds = format_seconds(point.timing.median)
    yield f"Passed over: {point} with {seconds}, for it misses a limit ({missed})."
