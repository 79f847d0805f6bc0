"""TuneResult: the plans a search measured beside the baselines, and which one to take and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.table import Table
from torch import nn

from bitgnn.bench.report import format_bytes, format_seconds
from bitgnn.bench.timing import Timing
from bitgnn.convert import Plan, freeze
from bitgnn.inference import FrozenModel
from bitgnn.tune.accuracy import Score
from bitgnn.tune.objective import Constraint, Measures, Objective, pareto_front
from bitgnn.tune.study import Trial

__all__ = ["Point", "TuneResult", "reasons_for"]


LEAST_POINTS = 0.005
"""Differences of accuracy below this are none."""


@dataclass(frozen=True)
class Point:
    """A plan or a baseline whose latency was measured.

    Attributes:
        name: what to call it.
        score: on the validation nodes, and on the test nodes for information.
        memory: bytes at the peak of a forward.
        timing: of whole forwards.
        plan: the plan; None for a baseline.
        estimate: seconds that the cost model expected; None for a baseline.
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
        recommended: the best plan that keeps every limit.
        model: the model that the recommended plan is for: the one given, or a fine-tuned copy.
        points: baselines, then measured plans.
        trials: every plan that was looked at, most of them estimated alone.
        objective: what the recommended plan is best at.
        constraints: what it keeps.
        reference: validation score of the model as it was given.
        space: number of plans there are.
        workload: sizes and names for the record.
        seconds: time the search took.
        seed: of everything drawn.
        complete: whether nothing was left out for lack of time.
        noise: what to say of a machine that was not quiet, or None.
        failed: plans that could not run, with the reason.
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
            "reasons": list(self.reasons),
        }
        return Plan(
            plan.letters, plan.order, plan.features, plan.layout, plan.method, plan.executor,
            plan.model, notes,
        )  # fmt: skip

    @property
    def measured(self) -> int:
        """Plans whose whole forwards were measured."""
        return sum(trial.timing is not None for trial in self.trials)

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why the recommended plan, in sentences."""
        return reasons_for(self)

    def freeze(self) -> FrozenModel:
        """The model frozen with the recommended plan."""
        return freeze(self.model, self.plan)

    def meets(self, point: Point) -> bool:
        """Whether a point keeps every limit."""
        return all(limit.is_met(point.measures, self.reference) for limit in self.constraints)

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


def reasons_for(result: TuneResult) -> tuple[str, ...]:
    """Why the recommended plan, in sentences.

    Args:
        result: of a search.
    """
    best = result.recommended
    assert best.plan is not None
    found = best.measures
    drop = 100 * (result.reference - found.accuracy)
    change = f"{drop:.2f} points below" if drop > 0 else f"{-drop:.2f} points above"
    change = "the same as" if abs(drop) < LEAST_POINTS else change
    limits = " and ".join(map(str, result.constraints)) or "no limits"
    lines = [
        f"Take {best.plan.describe()}.",
        f"It has the best {result.objective} of {result.measured} measured plans under {limits}: "
        f"{format_seconds(found.latency)} a forward, {format_bytes(found.memory)}, "
        f"{100 * found.accuracy:.2f}% on the validation nodes, {change} the model as given.",
    ]
    if best.gpu_seconds is not None:
        lines.append(
            f"Of the {format_seconds(found.latency)} from a call until its result is there the GPU "
            f"works {format_seconds(best.gpu_seconds)}; the rest is the host's, which launches and "
            "waits."
        )
    if best.epochs:
        lines.append(f"Its weights were fine-tuned for {best.epochs} epochs in these letters.")
    for point in result.points:
        if point.plan is None:
            lines.append(f"{_against(found, point)}.")
    lines += _next_best(result)
    share = result.measured / max(result.space, 1)
    lines.append(
        f"{result.measured} of {result.space} plans were measured as a whole ({share:.0%}), "
        f"{len(result.trials)} estimated from their operator calls, in {result.seconds:.0f} s."
    )
    if not result.complete:
        lines.append("The time was up before everything was looked at; more may find better.")
    if result.noise:
        lines.append(f"{result.noise[0].upper()}{result.noise[1:]}.")
    return tuple(lines)


def _against(found: Measures, point: Point) -> str:
    """The recommended plan beside a baseline."""
    other = point.measures
    points = 100 * (found.accuracy - other.accuracy)
    return (
        f"Beside {point.name}: {other.latency / found.latency:.2f} times as fast, "
        f"{other.memory / found.memory:.2f} times less memory, {points:+.2f} points of accuracy"
    )


def _next_best(result: TuneResult) -> list[str]:
    """Which faster or smaller plan was passed over, and why."""
    best = result.recommended.measures.rank(result.objective)
    passed = [
        point
        for point in result.points
        if point.plan is not None
        and point.measures.rank(result.objective) < best
        and not result.meets(point)
    ]
    if not passed:
        return []
    point = min(passed, key=lambda p: p.measures.rank(result.objective))
    assert point.plan is not None
    missed = [
        f"{limit.what} {limit.show(limit.value(point.measures, result.reference))}"
        for limit in result.constraints
        if not limit.is_met(point.measures, result.reference)
    ]
    return [
        f"Passed over: {point.plan.describe()} with {format_seconds(point.timing.median)}, "
        f"for it misses a limit ({', '.join(missed)})."
    ]


def letters_of(plan: Plan) -> str:
    """Letters of the layers in one cell."""
    return " ".join(plan.letters.values())


def ways_of(plan: Plan) -> Sequence[str]:
    """Order, layout with its method, executor and features of a plan, as cells."""
    layout = plan.layout if plan.method is None else f"{plan.layout} {plan.method}"
    order = " ".join(f"{name} {value}" for name, value in plan.order.items())
    return order, layout, plan.executor, plan.features
