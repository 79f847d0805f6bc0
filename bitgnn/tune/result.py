"""TuneResult: the plans a search measured beside the baselines, and which one to take and why."""

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
from bitgnn.tune.reference import AS_GIVEN
from bitgnn.tune.trial import Trial

__all__ = ["LimitsMissed", "Point", "TuneResult", "choose"]


@dataclass(frozen=True)
class Point:
    """A plan or a baseline whose latency was measured.

    Attributes:
        name: what to call it.
        score: on the validation nodes, and on the test nodes for information.
        memory: bytes at the peak of a forward.
        timing: of whole forwards.
        plan: the plan; None for a baseline.
        estimate: seconds of the brief timing; None for a baseline.
        epochs: of fine-tuning behind the score; 0 for the weights as they were given.
        gpu_seconds: what a GPU works in a forward, the host's launches and waiting left out; None
            on a CPU, and where it was not measured.
    """

    name: str
    score: Score
    memory: float
    timing: Timing
    plan: Plan | None = None
    estimate: float | None = None
    epochs: int = 0
    gpu_seconds: float | None = None

    @property
    def measures(self) -> Measures:
        """Accuracy, latency and memory."""
        return Measures(self.score.validation, self.timing.median, self.memory)


@dataclass(frozen=True, eq=False)
class TuneResult:
    """What :func:`bitgnn.tune` found.

    Attributes:
        recommended: the best plan that keeps every limit; where :attr:`missed` is not None, the one
            that comes nearest.
        model: the model that the recommended plan is for: the one given, or a fine-tuned copy.
        points: baselines, then measured plans.
        trials: every plan that was looked at, most of them timed briefly alone.
        objective: what the recommended plan is best at.
        constraints: what it keeps.
        reference: validation score that the loss of accuracy is counted from.
        space: number of plans there are.
        workload: sizes and names for the record.
        seconds: time the search took.
        seed: of everything drawn.
        complete: whether nothing was left out for lack of time.
        noise: what to say of a machine that was not quiet, or None.
        failed: plans that could not run, with the reason.
        counted_from: the model that the loss of accuracy is counted from, in words.
        own: validation score of the model as it was given.
        doubt: why the score of the model that the loss is counted from is too low, or None.
        remarks: further sentences for :attr:`reasons`.
    """

    recommended: Point
    model: nn.Module
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
    counted_from: str = AS_GIVEN
    own: float = 0.0
    doubt: str | None = None
    remarks: tuple[str, ...] = ()

    @cached_property
    def front(self) -> tuple[Point, ...]:
        """Points that no other one beats in everything, fastest first."""
        places = pareto_front([point.measures for point in self.points])
        return tuple(self.points[place] for place in places)

    @property
    def plan(self) -> Plan:
        """The recommended plan, with what was measured in its notes."""
        assert self.recommended.plan is not None
        found, plan = self.recommended, self.recommended.plan
        notes = {
            "accuracy": found.score.validation,
            "test_accuracy": found.score.test,
            "latency_seconds": found.timing.median,
            "gpu_seconds": found.gpu_seconds,
            "memory_bytes": int(found.memory),
            "device": str(self.workload["device"]),
            "graph": {key: self.workload[key] for key in ("nodes", "edges", "features")},
            "fine_tuned_epochs": found.epochs,
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
        """The model frozen with the recommended plan."""
        return freeze(self.model, self.plan, check=False)  # the plan was scored in this form

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

        A loss of accuracy says nothing where the model that it is counted from was not trained for
        as long as it should be.
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
        """Baselines, the front, and the best of the rest, for a terminal.

        Args:
            most: rows beside the baselines and the recommended plan.
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
        points: baselines and plans, of which there is one at least.
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
