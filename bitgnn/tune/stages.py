"""The stages of a tuning: a student of each width, searches in its weights, finalists."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bitgnn.convert.swap.graphs import own_letters
from bitgnn.measure.timing import Timing, gpu_seconds, measure_in_turns, noise
from bitgnn.tune.accuracy import Accuracy
from bitgnn.tune.baselines import Baseline, baseline_of
from bitgnn.tune.budget import Budget
from bitgnn.tune.objective import ObjectiveError, pareto_front, preference
from bitgnn.tune.pins import Pins
from bitgnn.tune.result import Point, TuneResult, choose, letters_of
from bitgnn.tune.search import Search
from bitgnn.tune.space import Space
from bitgnn.tune.students import Student, Students
from bitgnn.tune.study import TrialStore, signature_of
from bitgnn.tune.trial import Trial, letters_key

FINALISTS, FINAL_ROUNDS = 4, 15
"""Plans distilled beside "bin" of each width, and repeats of the last measurement of each."""
SEARCHED_BY, DISTILLED_BY = 0.7, 0.95
"""Parts of the budget that searching, and distilling the finalists behind it, may use up."""
TAUGHT_SHARE = 0.6
"""Part of the searching time left that distilling a width's first student may use up."""
LEAST_SHARE = 0.5
"""Part of the time of its width's first student below which no finalist is begun."""
TITLES = {"letters": "letters scored, plans timed briefly", "measure": "plans measured"}
LEAST_SECONDS = 1e-3
"""Enough for an epoch, since one that is begun is ended."""

Show = Callable[[str, int, int], Any]


class TuneInterrupted(KeyboardInterrupt):
    """A search was stopped by its user; the message says what is kept and how to go on.

    Attributes:
        trials: plans that were looked at.
    """

    def __init__(self, message: str, trials: Sequence[Trial]) -> None:
        super().__init__(message)
        self.trials = tuple(trials)


@dataclass
class Tuning:
    """The stages of one call of :func:`tune`.

    Attributes:
        baseline: the teacher beside the plans; None before it is trained.
        firsts: of each width, the student in the letters of "bin" and the search in its weights.
        remarks: what the time did not suffice for.
    """

    students: Students
    budget: Budget
    pins: Pins | None
    allow: Mapping[str, Sequence[str]] | None
    storage: str | Path | None
    settings: dict[str, Any]
    progress: bool
    baseline: Baseline | None = None
    firsts: list[tuple[Student, Search]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    complete: bool = True

    def run(self, widths: Sequence[float]) -> TuneResult:
        """Search all widths, distill the finalists, and measure them beside the teacher."""
        for number, widen in enumerate(widths):
            if number and not self.budget.fits("width", SEARCHED_BY):
                left = ", ".join(f"{width:g}" for width in widths[number:])
                self._left_out(f"hidden channels × {left}")
                break
            begin = self.budget.spent
            self._search(widen)
            self.budget.did("width", self.budget.spent - begin)
        if not any(search.measured for _, search in self.firsts):
            reasons = sorted({r for _, search in self.firsts for r in search.failed.values()})
            raise ObjectiveError(f"tune: no plan can be run ({'; '.join(reasons)})")
        return self._result(self._distilled(self._finalists()))

    def _search(self, widen: float) -> None:
        """Distill the first student of a width and look at all plans in its weights."""
        self._say(f"distilling bin, hidden channels × {widen:g}")
        budget = self.budget.part(SEARCHED_BY).part(TAUGHT_SHARE)
        first = self.students.teach(widen, budget=_seconds(budget))
        if self.baseline is None:
            assert self.students.teacher is not None, "it was there before its student"
            workload = replace(self.students.workload, model=self.students.teacher)
            self.baseline = baseline_of(workload)
        space = Space.from_workload(first.workload, self.pins, self.allow)
        store = TrialStore(self.storage, signature_of(first.workload), widen)
        with _stage_bars(self.progress, f"× {widen:g}") as show:
            search = Search(
                space, Accuracy(space), store, self.baseline.score.validation,
                budget=self.budget.part(SEARCHED_BY), progress=show, **self.settings,
            )  # fmt: skip
            self.firsts.append((first, search))
            self.complete &= search.explore()
            self.complete &= search.measure()

    def _finalists(self) -> list[tuple[Trial, Student | None]]:
        """One plan of each choice of letters and width worth distilling, with its student if any.

        Those of "bin" that the search has distilled already, then the Pareto front of the search,
        best first.
        """
        found: dict[tuple[float, str], Trial] = {}
        for _, search in self.firsts:
            for trial in sorted(search.measured, key=lambda t: t.measures.rank(search.objective)):
                found.setdefault((trial.widen, letters_key(trial.plan.letters)), trial)
        done: list[tuple[Trial, Student | None]] = []
        for first, search in self.firsts:
            own = letters_key(own_letters(first.model))
            key = first.workload.widen, own
            # Not measured, perhaps; pins may forbid it.
            plans = [found.pop(key)] if key in found else search.by_letters.get(own, [])
            if plans:
                done.append((min(plans, key=lambda t: t.measures.rank(search.objective)), first))
        trials = list(found.values())
        front = [trials[place] for place in pareto_front([t.measures for t in trials])]
        _, search = self.firsts[0]
        front.sort(
            key=lambda t: preference(
                t.measures, search.constraints, search.reference, search.objective
            )
        )
        return done + [(trial, None) for trial in front[:FINALISTS]]

    def _distilled(self, finalists: Sequence[tuple[Trial, Student | None]]) -> list[Point]:
        """The finalists in their own letters, as long as there is time; not measured yet."""
        points: list[Point] = []
        took = {first.workload.widen: first.seconds for first, _ in self.firsts}
        for number, (trial, student) in enumerate(finalists):
            if student is None:
                left = self.budget.until(DISTILLED_BY) - self.budget.spent
                if points and left < LEAST_SHARE * took[trial.widen]:
                    self._left_out(f"{len(finalists) - number} of {len(finalists)} finalists")
                    break
                self._say(
                    f"distilling finalist {number + 1} of {len(finalists)}: "
                    f"{letters_of(trial.plan)}, hidden channels × {trial.widen:g}"
                )
                # As many as fit share the time; none of them needs more than all of it.
                waiting = len(finalists) - number
                fitting = min(waiting, left / max(took[trial.widen], LEAST_SECONDS))
                budget = self.budget.part(DISTILLED_BY, max(1, int(fitting)))
                student = self.students.teach(trial.widen, trial.plan, _seconds(budget))
            score, candidate = student.scored(trial.plan)
            name = f"{letters_of(trial.plan)} ×{trial.widen:g}"
            memory, timing = float(candidate.memory.peak), Timing((trial.latency,), 1)
            points.append(Point(name, score, memory, timing, trial.plan, student))
        return points

    def _result(self, points: list[Point]) -> TuneResult:
        """Measure all points in turns with the teacher, and choose."""
        searches = [search for _, search in self.firsts]
        first, workload, baseline = searches[0], self.students.workload, self.baseline
        assert baseline is not None
        assert self.students.teacher is not None
        candidates = [p.student.scored(p.plan)[1] for p in points if p.student and p.plan]
        runs = [*(candidate.run for candidate in candidates), baseline.run]
        seconds = None if math.isinf(self.budget.seconds) else max(0.0, self.budget.left)
        *timings, of_teacher = measure_in_turns(
            runs, workload.device, rounds=FINAL_ROUNDS, seconds=seconds
        )
        points = [replace(p, timing=t) for p, t in zip(points, timings, strict=True)]
        best = choose(points, first.constraints, first.reference, first.objective)
        place = points.index(best)
        kernels = candidates[place].kernels
        best = points[place] = replace(best, gpu_seconds=gpu_seconds(kernels, workload.device))
        measured = [timing for search in searches for timing in search.timings]
        return TuneResult(
            best,
            self.students.teacher,
            (Point(baseline.name, baseline.score, baseline.memory, of_teacher), *points),
            tuple(trial for search in searches for trial in search.trials),
            first.objective,
            tuple(first.constraints),
            baseline.score.validation,
            sum(search.num_plans for search in searches),
            workload.description,
            self.budget.spent,
            self.students.seed,
            self.complete,
            noise([*measured, *timings, of_teacher]),
            {plan: reason for search in searches for plan, reason in search.failed.items()},
            self.students.doubt,
            tuple(self.remarks),
        )

    def _left_out(self, what: str) -> None:
        self.remarks.append(f"The budget left no time for {what}.")
        self.complete = False

    def _say(self, text: str) -> None:
        if self.progress:
            Console(stderr=True).print(text, highlight=False)

    def interrupted(self, folder: Path | None) -> TuneInterrupted:
        """What was finished before Ctrl-C, and how to go on."""
        trials = [trial for _, search in self.firsts for trial in search.trials]
        students, plans = f"students: {self.students.taught}", f"plans looked at: {len(trials)}"
        if folder is not None:
            kept = f"stopped; kept in {folder} are distilled {students}, {plans}"
        elif self.storage is not None:
            kept = f"stopped; kept in {self.storage} are {plans}"
        else:
            return TuneInterrupted(
                f"stopped with distilled {students}, {plans}; name an output folder to go on from "
                "there next time",
                trials,
            )
        return TuneInterrupted(f"{kept}; the same call goes on from there", trials)


def _seconds(budget: Budget) -> float | None:
    """As distill() takes them."""
    return None if math.isinf(budget.seconds) else max(budget.seconds, LEAST_SECONDS)


@contextmanager
def _stage_bars(progress: bool, width: str) -> Iterator[Show]:
    """Draws a bar for each stage, never while something is timed.

    Yields:
        What to call with a stage, what is done of it, and all of it.
    """
    if not progress:
        yield lambda stage, done, total: None
        return
    # Drawn where an update asks for it: a thread would draw while something is timed.
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
    )
    tasks: dict[str, Any] = {}

    def show(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            tasks[stage] = bars.add_task(f"{width} {TITLES[stage]}", total=total)
        bars.update(tasks[stage], completed=done, total=total, refresh=True)

    with bars:
        yield show
