"""tune(): the plan of a model that is best on its data, with reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from torch import nn

from bitgnn.measure.latency import gpu_seconds
from bitgnn.train.experiment import make_progress
from bitgnn.tune.accuracy import Accuracy
from bitgnn.tune.baselines import PYG, baselines
from bitgnn.tune.budget import Budget, adding_up, parse_seconds
from bitgnn.tune.finetune import SHORT, FineTuned, fine_tune
from bitgnn.tune.objective import (
    Constraint,
    Objective,
    ObjectiveError,
    check_objective,
    read_limits,
)
from bitgnn.tune.pins import Pins
from bitgnn.tune.reference import Given, Reference, find_reference
from bitgnn.tune.result import LimitsMissed, Point, TuneResult, choose, letters_of
from bitgnn.tune.search import Search
from bitgnn.tune.space import Space
from bitgnn.tune.study import TrialStore, signature_of
from bitgnn.tune.trial import Trial
from bitgnn.tune.workload import MetricName, Workload

__all__ = ["TuneInterrupted", "tune"]

FINE_TUNED_BY = 0.95
"""Part of the budget that fine-tuning and what ran before it may use up."""
TITLES = {
    "reference": "epochs of fp32 to compare with",
    "letters": "letters scored, plans timed briefly",
    "measure": "plans measured",
    "finetune": "epochs of fine-tuning",
}


class TuneInterrupted(KeyboardInterrupt):
    """A search was stopped by its user; the message says what is kept and how to go on.

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
    reference: nn.Module | Given | None = None,
    pins: Pins | None = None,
    allow: Mapping[str, Sequence[str]] | None = None,
    budget: str | float | Budget | None = None,
    finetune: int = 0,
    metric: MetricName = "accuracy",
    device: torch.device | str | None = None,
    seed: int = 0,
    storage: str | Path | None = None,
    output: str | Path | None = None,
    trained: Mapping[str, nn.Module] | None = None,
    progress: bool = True,
) -> TuneResult:
    """Find the letters, orders and form of features that suit a model and its data.

    Every chain of letters (up to :data:`~bitgnn.tune.explore.MOST_CHAINS`; beyond, those that an
    Optuna sampler proposes) is scored on the validation nodes without training, its plans are
    timed briefly, and at most a fifth of the space is measured in turns.

    Args:
        model: a trained model, unchanged.
        data: PyG ``Data`` with ``x``, ``edge_index``, ``y`` and ``val_mask``.
        objective: ``"latency"``, ``"memory"`` or ``"accuracy"``.
        constraints: limits such as ``"latency <= 2 ms"``, ``"memory <= 10 MB"`` or
            ``"accuracy drop <= 1%"``, which counts from the model in floats, see ``reference``.
        reference: model in floats (fp32) from whose validation score the accuracy drop is counted;
            ``"given"`` counts it from ``model``, whatever its letters. None: from ``model`` where
            that is in floats, else from its architecture in PyG's arithmetic, which is trained for
            this on the training nodes within the budget.
        pins: letters that are settled, such as ``{"conv1": "FBB+BBB"}`` or
            ``["first layer stays F"]``.
        allow: values to choose from, by ``"features"`` or ``"order"``.
        budget: time for all of it, such as ``"60s"``; None for as long as it takes.
        finetune: epochs for each of a few finalists, scored in their letters; 0 for none.
        metric: ``"accuracy"`` or ``"roc_auc"``.
        device: where to measure; None for the model's device.
        seed: of the sampler and of fine-tuning.
        storage: SQLite file with every trial: a search that was stopped goes on from it, and
            processes that name the same file share the work. None: ``tune.db`` in ``output`` where
            Optuna is installed, else in memory.
        output: folder for the result's files, see :meth:`TuneResult.save`.
        trained: models for the baselines ``"PyG fp32"``, which is a ``reference`` too, and
            ``"Bi-GCN emulated"``, which has the weights of ``model`` otherwise.
        progress: whether to draw bars with the time left.

    Returns:
        Every point measured, the Pareto front, and the recommended plan with reasons.

    Raises:
        LimitsMissed: no plan keeps every limit, or the budget was too short to train the model
            that the loss of accuracy is counted from; the message says which and by how much.
            Its ``result`` holds the plan that comes nearest, and the files are written.
        ObjectiveError: an objective, limit or budget that cannot be read.
        StorageError: ``storage`` holds something else.
        TuneInterrupted: stopped by Ctrl-C; finished trials are kept in ``storage``.
        TrainingError: the model to count from cannot be trained.
        ValueError: the model, the data or ``reference`` do not fit, see :meth:`Workload.of`.
        OSError: a file cannot be written.
    """
    limits = read_limits(constraints)
    check_objective(objective)
    if finetune < 0:
        raise ObjectiveError(f"tune: finetune must be a number of epochs, got {finetune}")
    if not isinstance(budget, Budget):
        budget = Budget(None if budget is None else parse_seconds(budget))
    workload = Workload.of(model, data, metric=metric, device=device)
    if finetune and not workload.is_trainable:
        raise ValueError("tune: data has no training mask (train_mask), which fine-tuning needs")
    space = Space.from_workload(workload, pins, allow)
    folder = None if output is None else Path(output)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        storage = default_storage(folder) if storage is None else storage
    store = TrialStore(storage, signature_of(workload))
    with _stage_bars(progress) as show:
        try:
            counted_from = find_reference(
                workload, reference, trained or {}, limits, budget, seed, partial(show, "reference")
            )
        except KeyboardInterrupt:
            raise TuneInterrupted("stopped while training fp32; nothing is kept", ()) from None
        budget.begin_stage()
        search = Search(
            space,
            Accuracy(space),
            store,
            limits,
            budget,
            seed,
            show,
            thorough=finetune > 0,
            objective=objective,
        )
        try:
            result = _Tuning(search, workload, counted_from, finetune, show).run(trained or {})
        except KeyboardInterrupt:
            raise _interrupted(search) from None
    if folder is not None:
        result.save(folder)
    if result.missed is not None:
        raise LimitsMissed(result)
    return result


def default_storage(folder: Path) -> Path | None:
    """File of trials in an output folder; None without Optuna, which writes it."""
    return folder / "tune.db" if find_spec("optuna") is not None else None


@dataclass
class _Tuning:
    """The stages of one call of :func:`tune`."""

    search: Search
    workload: Workload
    reference: Reference
    epochs: int
    show: Callable[[str, int, int], Any]

    def run(self, trained: Mapping[str, nn.Module]) -> TuneResult:
        search, reference = self.search, self.reference
        if reference.model is not None:
            trained = {**trained, PYG: reference.model}
        others = baselines(self.workload, trained)
        if reference.model is not None:
            search.counted_from = next(b.score.validation for b in others if b.family == PYG)
        complete = search.explore()
        measured = search.measure()
        timings = search.final([baseline.run for baseline in others])
        tuned = self._fine_tune() if self.epochs else []
        points = [
            *(Point(b.name, b.score, b.memory, t) for b, t in zip(others, timings, strict=True)),
            *self._points(tuned),
        ]
        if not any(point.plan is not None for point in points):
            reasons = sorted(set(search.failed.values()))
            raise ObjectiveError(f"tune: no plan can be run ({'; '.join(reasons)})")
        chosen = choose(points, search.constraints, search.reference, search.objective)
        best = self._with_gpu_seconds(chosen)
        model = next((f.model for t, f in tuned if _is_of(best, t)), self.workload.model)
        return TuneResult(
            best,
            model,
            tuple(best if point.name == best.name else point for point in points),
            tuple(search.trials),
            search.objective,
            tuple(search.constraints),
            search.reference,
            search.num_plans,
            self.workload.description,
            search.budget.spent,
            search.seed,
            complete and measured,
            search.noise,
            search.failed,
            reference.name,
            search.accuracy.own.validation,
            reference.doubt,
        )

    def _with_gpu_seconds(self, point: Point) -> Point:
        """Adds the time the GPU itself works; calls of small models are dominated by the host."""
        assert point.plan is not None
        device = self.workload.device
        kernels = self.search.space.candidates.make(point.plan).kernels
        return replace(point, gpu_seconds=gpu_seconds(kernels, device))

    def _points(self, tuned: Sequence[tuple[Trial, FineTuned]]) -> Iterator[Point]:
        for number, trial in enumerate(self.search.measured, 1):
            assert trial.timing is not None
            name = f"plan {number}: {letters_of(trial.plan)}"
            shared = (trial.memory, trial.timing, trial.plan, trial.estimate)
            yield Point(name, trial.score, *shared)
            for other, found in tuned:
                if other.plan == trial.plan:
                    yield Point(f"{name}, fine-tuned", found.score, *shared, max(1, found.epochs))

    def _fine_tune(self) -> list[tuple[Trial, FineTuned]]:
        """Finalists in their letters, as long as there is time."""
        budget, found = self.search.budget, []
        finalists = self.search.finalists()
        advance = adding_up(partial(self.show, "finetune"), self.epochs * len(finalists))
        for trial in finalists:
            if not budget.fits("finalist", FINE_TUNED_BY):
                break
            before = budget.spent
            trained = fine_tune(
                self.workload,
                trial.plan.letters,
                recipe=SHORT.model_copy(update={"epochs": self.epochs}),
                seed=self.search.seed,
                on_epochs=advance,
                should_stop=lambda: not budget.fits("epoch", FINE_TUNED_BY),
            )
            budget.did("finalist", budget.spent - before)
            if trained.score.validation > trial.score.validation:
                found.append((trial, trained))
        return found


def _is_of(point: Point, trial: Trial) -> bool:
    return point.epochs > 0 and point.plan == trial.plan


def _interrupted(search: Search) -> TuneInterrupted:
    trials = search.trials
    measured = len(search.measured)
    kept = f"{len(trials)} plans looked at and {measured} measured"
    if search.store.path is None:
        message = f"stopped with {kept}; name a storage to go on from there next time"
    else:
        message = (
            f"stopped; {kept} are kept in {search.store.path}, the same call goes on from there"
        )
    return TuneInterrupted(message, trials)


@contextmanager
def _stage_bars(progress: bool) -> Iterator[Callable[[str, int, int], Any]]:
    """Draws a bar for each stage, never while something is timed.

    Args:
        progress: whether to draw at all.

    Yields:
        What to call with a stage, what is done of it, and all of it.
    """
    if not progress:
        yield lambda stage, done, total: None
        return
    bars: Progress = make_progress(Console(stderr=True), in_thread=False)
    tasks: dict[str, Any] = {}

    def show(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            tasks[stage] = bars.add_task(TITLES[stage], total=total)
        bars.update(tasks[stage], completed=done, total=total, refresh=True)

    with bars:
        yield show
