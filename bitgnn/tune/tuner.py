"""tune(): precision, order and width of a model that are best on its data, with reasons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from torch import nn

from bitgnn._files import alone_in
from bitgnn.convert.swap.graphs import own_letters
from bitgnn.measure.timing import Timing, gpu_seconds, measure_in_turns, noise
from bitgnn.tune.letters import Pins
from bitgnn.tune.objective import (
    Budget,
    Constraint,
    Goal,
    Objective,
    ObjectiveError,
    pareto_front,
    parse_seconds,
)
from bitgnn.tune.result import LimitsMissed, Point, TuneResult
from bitgnn.tune.search import Search, stage_bars
from bitgnn.tune.space import Accuracy, Space
from bitgnn.tune.students import Baseline, Student, Students, baseline_of
from bitgnn.tune.study import Trial, TrialStore, check_file, letters_key, signature_of
from bitgnn.tune.workload import MetricName, Workload

WIDTHS = (1.0, 2.0, 4.0)
"""Multiples of the hidden channels that are tried."""
STUDENTS = "students"
"""Folder of their checkpoints in the output folder."""
FINALISTS, FINAL_ROUNDS = 4, 15
"""Plans distilled beside "bin" of each width, and repeats of the last measurement of each."""
SEARCHED_BY, DISTILLED_BY = 0.7, 0.95
"""Parts of the budget that searching, and distilling the finalists behind it, may use up."""
TAUGHT_SHARE = 0.6
"""Part of the searching time left that distilling a width's first student may use up."""
LEAST_SHARE = 0.5
"""Part of the time of its width's first student below which no finalist is begun."""
LEAST_SECONDS = 1e-3
"""Enough for an epoch, since one that is begun is ended."""


class TuneInterrupted(KeyboardInterrupt):
    """A search was interrupted; the message says what is kept and how to go on.

    Attributes:
        trials: plans that were looked at.
    """

    def __init__(self, message: str, trials: Sequence[Trial]) -> None:
        super().__init__(message)
        self.trials = tuple(trials)


def tune(
    model: nn.Module,
    data: Any,
    objective: Objective = "latency",
    constraints: str | Constraint | Iterable[str | Constraint] = ("accuracy drop <= 1%",),
    *,
    widen: float | Sequence[float] = WIDTHS,
    pins: Pins | None = None,
    allow: Mapping[str, Sequence[str]] | None = None,
    trained: bool | None = None,
    epochs: int | None = None,
    budget: str | float | Budget | None = None,
    metric: MetricName = "accuracy",
    device: torch.device | str | None = None,
    seed: int = 0,
    storage: str | Path | None = None,
    output: str | Path | None = None,
    progress: bool = True,
) -> TuneResult:
    """Find the letters, order, form of features and width that suit a float model and its data.

    Of each width a student is distilled in the letters of ``"bin"``, see :func:`bitgnn.distill`.
    In its weights every choice of letters (of more than 512 those that an Optuna sampler proposes)
    is scored on the validation nodes, its plans are timed briefly, and at most a fifth of them is
    measured in turns. The best of all widths are distilled in their own letters from the same
    teacher, and measured in turns beside it: these are the points of the result.

    Args:
        model: a model in floats, trained or not, unchanged; one that is not is trained first.
        data: PyG ``Data`` with ``x``, ``edge_index``, ``y``, ``train_mask`` and ``val_mask``.
        objective: ``"latency"``, ``"memory"`` or ``"accuracy"``.
        constraints: limits such as ``"latency <= 2 ms"``, ``"memory <= 10 MB"`` or
            ``"accuracy drop <= 1%"``, which counts from the float model's validation score.
        widen: multiples of the hidden channels to try, or a single one.
        pins: letters that are settled, such as ``{"conv1": "FBB+BBB"}`` or
            ``["first layer stays F"]``.
        allow: values to choose from, by ``"features"`` or ``"order"``.
        trained: whether ``model`` is trained; None looks at its scores.
        epochs: of each training; None for the rule of :func:`bitgnn.distill`.
        budget: time for all of it, such as ``"60s"``; None for as long as it takes.
        metric: ``"accuracy"`` or ``"roc_auc"``.
        device: where to train and measure; None for the model's device.
        seed: of the trainings and of the sampler.
        storage: SQLite file with every trial: a search that was stopped goes on from it, and
            processes that name the same file share the work. None: ``tune.db`` in ``output`` where
            Optuna is installed, else in memory.
        output: folder for the result's files, see :meth:`TuneResult.save`, and for the students'
            checkpoints: the same call goes on where it was stopped or killed.
        progress: whether to draw bars.

    Returns:
        Every distilled plan, the Pareto front, and the recommended plan with reasons.

    Raises:
        LimitsMissed: no plan keeps every limit, or the budget was too short to train the float
            model; the message says which and by how much. Its ``result`` holds the plan that
            comes nearest, and the files are written.
        ObjectiveError: an objective, limit or budget that cannot be read.
        DistillError: the model cannot be widened, or nothing can be learnt from the data.
        StorageError: ``storage`` holds something else.
        CheckpointError: ``output`` holds students of something else.
        OutputError: ``output`` cannot be written, or another process is at work in it.
        TuneInterrupted: stopped by Ctrl-C; what was finished is kept in ``output``.
        ValueError: the model or the data do not fit, see :meth:`Workload.of`.
        OSError: a file cannot be written.
    """
    goal = Goal.read(objective, constraints)
    widths = (widen,) if isinstance(widen, int | float) else tuple(dict.fromkeys(widen))
    if not widths or not all(1 <= width < math.inf for width in widths):
        raise ValueError(f"tune: widen must be numbers of at least 1, got {widen}")
    if not isinstance(budget, Budget):
        budget = Budget(None if budget is None else parse_seconds(budget))
    workload = Workload.of(model, data, metric=metric, device=device)
    letters = own_letters(workload.model)
    if set("BT") & set("".join(letters.values())):
        raise ValueError(f"tune: model must be in floats, got one with the letters {letters}")
    Space.from_workload(workload, pins, allow)  # refuses pins and values
    folder = None if output is None else Path(output)
    if storage is None and folder is not None and find_spec("optuna") is not None:
        storage = folder / "tune.db"
    if storage is not None:
        check_file(Path(storage))
    with ExitStack() as held:
        if folder is not None:
            held.enter_context(alone_in(folder))
        place = Path(held.enter_context(TemporaryDirectory())) if folder is None else folder
        students = Students(workload, data, place / STUDENTS, epochs, seed, trained)
        tuning = _Tuning(students, goal, budget, pins, allow, storage, seed, progress)
        try:
            result = tuning.run(sorted(widths))
        except KeyboardInterrupt:
            raise tuning.interrupted(folder) from None
        if folder is not None:
            result.save(folder)
    if result.missed is not None:
        raise LimitsMissed(result)
    return result


@dataclass
class _Tuning:
    """The stages of one call: a student of each width, searches in its weights, finalists."""

    students: Students
    goal: Goal
    budget: Budget
    pins: Pins | None
    allow: Mapping[str, Sequence[str]] | None
    storage: str | Path | None
    seed: int
    progress: bool
    baseline: Baseline | None = None
    # Of each width, the student in the letters of "bin" and the search in its weights.
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
        """Distill the first student of a width and search all plans with its weights."""
        self._say(f"distilling bin, hidden channels × {widen:g}")
        first = self._teach(widen, None, self.budget.part(SEARCHED_BY).part(TAUGHT_SHARE))
        if self.baseline is None:
            assert self.students.teacher is not None, "it was there before its student"
            workload = replace(self.students.workload, model=self.students.teacher)
            self.baseline = baseline_of(workload)
            self.goal = replace(self.goal, reference=self.baseline.score.validation)
        space = Space.from_workload(first.workload, self.pins, self.allow)
        store = TrialStore(self.storage, signature_of(first.workload), widen)
        with stage_bars(self.progress, f"× {widen:g}") as show:
            part = self.budget.part(SEARCHED_BY)
            search = Search(space, Accuracy(space), store, self.goal, part, self.seed, show)
            self.firsts.append((first, search))
            self.complete &= search.explore()
            self.complete &= search.measure()

    def _teach(self, widen: float, plan: Any, budget: Budget) -> Student:
        seconds = max(budget.seconds, LEAST_SECONDS)
        return self.students.teach(widen, plan, None if math.isinf(seconds) else seconds)

    def _finalists(self) -> list[tuple[Trial, Student | None]]:
        """One plan for each promising choice of letters and width, with its student if any.

        Those of "bin" that the search has distilled already, then the Pareto front of the search,
        best first.
        """

        def rank(trial: Trial) -> tuple[float, ...]:
            return trial.measures.rank(self.goal.objective)

        found: dict[tuple[float, str], Trial] = {}
        for _, search in self.firsts:
            for trial in sorted(search.measured, key=rank):
                found.setdefault((trial.widen, letters_key(trial.plan.letters)), trial)
        done: list[tuple[Trial, Student | None]] = []
        for first, search in self.firsts:
            own = letters_key(own_letters(first.model))
            key = first.workload.widen, own
            # Not measured, perhaps; pins may forbid it.
            plans = [found.pop(key)] if key in found else search.by_letters.get(own, [])
            if plans:
                done.append((min(plans, key=rank), first))
        trials = list(found.values())
        front = [trials[place] for place in pareto_front([t.measures for t in trials])]
        front.sort(key=lambda trial: self.goal.preference(trial.measures))
        return done + [(trial, None) for trial in front[:FINALISTS]]

    def _distilled(self, finalists: Sequence[tuple[Trial, Student | None]]) -> list[Point]:
        """Distill the finalists in their own letters while there is time."""
        points: list[Point] = []
        took = {first.workload.widen: first.seconds for first, _ in self.firsts}
        for number, (trial, student) in enumerate(finalists):
            letters = " ".join(trial.plan.letters.values())
            if student is None:
                left = self.budget.left_until(DISTILLED_BY)
                if points and left < LEAST_SHARE * took[trial.widen]:
                    self._left_out(f"{len(finalists) - number} of {len(finalists)} finalists")
                    break
                self._say(
                    f"distilling finalist {number + 1} of {len(finalists)}: "
                    f"{letters}, hidden channels × {trial.widen:g}"
                )
                # As many as fit share the time; none of them needs more than all of it.
                waiting = len(finalists) - number
                fitting = min(waiting, left / max(took[trial.widen], LEAST_SECONDS))
                budget = self.budget.part(DISTILLED_BY, max(1, int(fitting)))
                student = self._teach(trial.widen, trial.plan, budget)
            score, candidate = student.scored(trial.plan)
            memory, timing = float(candidate.memory.peak), Timing((trial.latency,), 1)
            name = f"{letters} ×{trial.widen:g}"
            points.append(Point(name, score, memory, timing, trial.plan, student))
        return points

    def _result(self, points: list[Point]) -> TuneResult:
        """Measure all points in turns with the teacher, and choose."""
        searches = [search for _, search in self.firsts]
        workload, baseline = self.students.workload, self.baseline
        assert baseline is not None
        assert self.students.teacher is not None
        candidates = [p.student.scored(p.plan)[1] for p in points if p.student and p.plan]
        runs = [*(candidate.run for candidate in candidates), baseline.run]
        *timings, of_teacher = measure_in_turns(
            runs, workload.device, rounds=FINAL_ROUNDS, seconds=self.budget.seconds_left
        )
        points = [replace(p, timing=t) for p, t in zip(points, timings, strict=True)]
        best = min(points, key=lambda point: self.goal.preference(point.measures))
        place = points.index(best)
        kernels = candidates[place].kernels
        best = points[place] = replace(best, gpu_seconds=gpu_seconds(kernels, workload.device))
        measured = [timing for search in searches for timing in search.timings]
        return TuneResult(
            best,
            self.students.teacher,
            (Point(baseline.name, baseline.score, baseline.memory, of_teacher), *points),
            tuple(trial for search in searches for trial in search.trials),
            self.goal.objective,
            self.goal.constraints,
            self.goal.reference,
            sum(search.num_plans for search in searches),
            workload.description,
            self.budget.spent,
            self.seed,
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
        """Say what was finished before Ctrl-C, and how to go on."""
        trials = [trial for _, search in self.firsts for trial in search.trials]
        students, plans = f"students: {self.students.taught}", f"plans looked at: {len(trials)}"
        goes_on = "the same call goes on from there"
        if folder is not None:
            said = f"stopped; kept in {folder} are distilled {students}, {plans}; {goes_on}"
        elif self.storage is not None:
            said = f"stopped; kept in {self.storage} are {plans}; {goes_on}"
        else:
            said = (
                f"stopped with distilled {students}, {plans}; name an output folder to go on from "
                "there next time"
            )
        return TuneInterrupted(said, trials)
