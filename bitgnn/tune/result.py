"""TuneResult: the distilled candidates with the float model, the best of them, and the front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from bitgnn.measure.timing import Timing
from bitgnn.tune.candidates import Candidate
from bitgnn.tune.forwards import Forward, frozen
from bitgnn.tune.goal import Goal, Measures, pareto_front
from bitgnn.tune.report import report_text, write_result


@dataclass(frozen=True, eq=False)
class Point:
    """A candidate that was distilled, frozen and measured, or the float model.

    Attributes:
        name: precisions and width, or the form of the float model's graph.
        forward: its call, scores, and bytes.
        timing: seconds of a forward, taken in turns with all other points.
        model: the distilled model; the teacher of the float model's points.
        candidate: precisions and width; None of the float model.
        epochs: of the training; 0 of the float model.
        ended: why the training ended.
    """

    name: str
    forward: Forward = field(repr=False)
    timing: Timing = field(repr=False)
    model: nn.Module = field(repr=False)
    candidate: Candidate | None = None
    epochs: int = 0
    ended: str = ""

    @property
    def score(self) -> float:
        """Score of the validation nodes, as :func:`bitgnn.distill` scores."""
        return self.forward.score

    @property
    def test(self) -> float | None:
        """Score of the test nodes, for information; None without any."""
        return self.forward.test

    @property
    def memory(self) -> int:
        """Bytes at the peak of a forward, graph, features and weights included."""
        return self.forward.memory

    @property
    def latency(self) -> float:
        """Median seconds of a forward."""
        return self.timing.median

    @property
    def measures(self) -> Measures:
        """Score, latency and memory."""
        return Measures(self.score, self.latency, self.memory)

    def freeze(self) -> Any:
        """The candidate's model frozen.

        Raises:
            ValueError: it is the float model.
        """
        if self.candidate is None:
            raise ValueError(f"{self.name}: is the float model, which has nothing to freeze")
        return frozen(self.model)


@dataclass(frozen=True, eq=False)
class TuneResult:
    """Result of :func:`bitgnn.tune`; prints as a report.

    Attributes:
        points: of the candidates, in the order in which they were tried.
        floats: of the float model, one for each form of the graph it takes.
        teacher: the float model, trained, that the candidates learnt from.
        goal: objective and limits.
        left_out: candidates for which the budget left no time.
        failed: reasons of candidates that could not be trained or run.
        remarks: sentences on anything that went other than it should.
        metric: name of the score.
        workload: names and sizes for the record.
        seconds: of the whole call.
        budget: seconds it was given; None for as long as it takes.
        doubt: why the teacher's score is lower than it can be, or None.
    """

    points: tuple[Point, ...]
    floats: tuple[Point, ...]
    teacher: nn.Module = field(repr=False)
    goal: Goal
    left_out: tuple[Candidate, ...]
    failed: Mapping[Candidate, str]
    remarks: tuple[str, ...]
    metric: str
    workload: Mapping[str, Any]
    seconds: float
    budget: float | None = None
    doubt: str | None = None

    @cached_property
    def best(self) -> Point:
        """The best point of the objective that keeps every limit, else the nearest to them."""
        return min(self.points, key=lambda point: self.goal.preference(point.measures))

    @cached_property
    def front(self) -> tuple[Point, ...]:
        """Points that no other one beats in score, latency and memory at once, fastest first."""
        places = pareto_front([point.measures for point in self.points])
        return tuple(self.points[place] for place in places)

    @cached_property
    def baseline(self) -> Point:
        """The float model with the form of the graph that is fastest."""
        return min(self.floats, key=lambda point: point.latency)

    @cached_property
    def missed(self) -> str | None:
        """Limits that the best point misses, or why that is not known; None if it keeps all.

        A loss of accuracy says nothing where the teacher's training was cut short.
        """
        found, reference = self.best.measures, self.goal.reference
        limits = self.goal.missed(found)
        if limits:
            has = ", ".join(
                f"{limit.quantity} {limit.show(limit.value(found, reference))}" for limit in limits
            )
            cut = " in the time there was" if self.left_out else ""
            wanted = " and ".join(map(str, self.goal.constraints))
            return f"no candidate keeps {wanted}{cut}; the nearest, {self.best.name}, has {has}"
        drops = [str(c) for c in self.goal.constraints if c.quantity == "accuracy drop"]
        if self.doubt is None or not drops:
            return None
        return f"it is not known whether {' and '.join(drops)} is kept: {self.doubt}"

    def freeze(self) -> Any:
        """The best point's model frozen."""
        return self.best.freeze()

    def save(self, folder: str | Path) -> list[Path]:
        """Write ``tune.json``, ``tune.png`` and the frozen best model, ``model``.

        Returns:
            The files, and the model's folder.

        Raises:
            OSError: one cannot be written; an older one stays whole.
        """
        return write_result(self, Path(folder))

    def __str__(self) -> str:
        return report_text(self)


class LimitsMissed(ValueError):
    """No candidate is known to keep every limit.

    Attributes:
        result: everything that was measured; its best point is the one nearest to the limits.
    """

    def __init__(self, result: TuneResult) -> None:
        super().__init__(f"tune: {result.missed}")
        self.result = result
