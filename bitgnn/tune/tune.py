"""tune(): the plan of a model that is best on its data, with reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from torch import nn

from bitgnn.bench.environment import cpu_model
from bitgnn.train.experiment import make_progress
from bitgnn.tune.accuracy import Accuracy
from bitgnn.tune.baselines import baselines
from bitgnn.tune.budget import Budget, parse_seconds
from bitgnn.tune.cost_model import CostModel
from bitgnn.tune.explore import EXPLORED_LATER
from bitgnn.tune.finetune import SHORT, FineTuned, fine_tune
from bitgnn.tune.measure import gpu_seconds
from bitgnn.tune.objective import (
    Constraint,
    Objective,
    ObjectiveError,
    check_objective,
    explain_unmet,
)
from bitgnn.tune.pins import Pins
from bitgnn.tune.result import Point, TuneResult, letters_of
from bitgnn.tune.search import Search
from bitgnn.tune.space import Space
from bitgnn.tune.study import Trial, TrialStore, signature_of
from bitgnn.tune.timings import TimingCache
from bitgnn.tune.workload import MetricName, Workload

__all__ = ["TuneInterrupted", "tune"]

TITLES = {
    "letters": "letters scored, plans estimated",
    "measure": "plans measured",
    "finetune": "epochs of fine-tuning",
}
FINE_TUNED_BY = 0.95
"""Part of the budget that fine-tuning and what ran before it may use up."""


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
    constraints: Iterable[str | Constraint] = ("accuracy drop <= 1%",),
    *,
    pins: Pins | None = None,
    allow: Mapping[str, Sequence[str]] | None = None,
    budget: str | float | Budget | None = None,
    finetune: int = 0,
    metric: MetricName = "accuracy",
    device: torch.device | str | None = None,
    seed: int = 0,
    storage: str | Path | None = None,
    cache: str | Path | None = None,
    output: str | Path | None = None,
    trained: Mapping[str, nn.Module] | None = None,
    progress: bool = True,
) -> TuneResult:
    """Find the letters, orders, layout, method and executor that suit a model and its data.

    Every chain of letters (up to :data:`~bitgnn.tune.explore.MOST_CHAINS`; beyond, those that an
    Optuna sampler proposes) is scored on the validation nodes without training, every way to run
    it is estimated from the times of its operator calls, and at most a fifth of the space is
    measured as a whole.

    Args:
        model: a trained model, unchanged.
        data: PyG ``Data`` with ``x``, ``edge_index``, ``y`` and ``val_mask``.
        objective: ``"latency"``, ``"memory"`` or ``"accuracy"``.
        constraints: limits such as ``"latency <= 2 ms"``, ``"memory <= 10 MB"`` or
            ``"accuracy drop <= 1%"``, which counts from the score of the model as it is given.
        pins: letters that are settled, such as ``{"conv1": "FBB+BBB"}`` or
            ``["first layer stays F"]``.
        allow: values to choose from, by ``"features"``, ``"layout"``, ``"method"``,
            ``"executor"`` or ``"order"``.
        budget: time for all of it, such as ``"60s"``; None for as long as it takes.
        finetune: epochs for each of a few finalists, scored in their letters; 0 for none.
        metric: ``"accuracy"`` or ``"roc_auc"``.
        device: where to measure; None for the model's device.
        seed: of the sampler and of fine-tuning.
        storage: SQLite file with every trial: a search that was stopped goes on from it, and
            processes that name the same file share the work. None: ``tune.db`` in ``output`` where
            Optuna is installed, else in memory.
        cache: JSON file of operator timings. None: ``timings.json`` in ``output``, if any.
        output: folder for the result's files, see :meth:`TuneResult.save`.
        trained: models for the baselines ``"PyG fp32"`` and ``"Bi-GCN emulated"``; without, these
            have the weights of ``model``.
        progress: whether to draw bars with the time left.

    Returns:
        Every point measured, the Pareto front, and the recommended plan with reasons.

    Raises:
        ObjectiveError: an objective, limit or budget that cannot be read, or limits that no plan
            keeps; the message says which and by how much.
        StorageError: ``storage`` holds something else.
        TuneInterrupted: stopped by Ctrl-C; finished trials are kept in ``storage``.
        ValueError: the model or the data do not fit, see :meth:`Workload.of`.
        OSError: a file cannot be written.
    """
    limits = tuple(Constraint.parse(text) for text in constraints)
    check_objective(objective)
    if finetune < 0:
        raise ObjectiveError(f"tune: finetune must be a number of epochs, got {finetune}")
    if not isinstance(budget, Budget):
        budget = Budget(None if budget is None else parse_seconds(budget))
    workload = Workload.of(model, data, metric=metric, device=device)
    if finetune and (workload.train_mask is None or not bool(workload.train_mask.any())):
        raise ValueError("tune: data has no training mask (train_mask), which fine-tuning needs")
    space = Space.from_workload(workload, pins, allow)
    folder = None if output is None else Path(output)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        cache = cache or folder / "timings.json"
        if storage is None and find_spec("optuna") is not None:
            storage = folder / "tune.db"
    store = TrialStore(storage, signature_of(workload))
    with _bars(progress) as show:
        search = Search(
            space,
            Accuracy(space),
            CostModel(TimingCache(cache, workload.device), workload.device),
            store,
            limits,
            budget,
            seed,
            show,
            thorough=finetune > 0,
            objective=objective,
        )
        try:
            result = _Tuning(search, workload, finetune, show).run(trained)
        except KeyboardInterrupt:
            raise _interrupted(search) from None
    if folder is not None:
        result.save(folder)
    return result


@dataclass
class _Tuning:
    """The stages of one call of :func:`tune`."""

    search: Search
    workload: Workload
    epochs: int
    show: Callable[[str, int, int], Any]

    def run(self, trained: Mapping[str, nn.Module] | None) -> TuneResult:
        search = self.search
        others = baselines(self.workload, trained)
        complete = search.explore()
        measured = search.measure()
        for share in EXPLORED_LATER[:1] if self.epochs else EXPLORED_LATER:
            if not complete:
                complete = search.explore(share)
                measured = search.measure() and measured
        timings = search.final([baseline.run for baseline in others])
        tuned = self._fine_tune() if self.epochs else []
        points = [
            *(Point(b.name, b.score, b.memory, t) for b, t in zip(others, timings, strict=True)),
            *self._points(tuned),
        ]
        kept = [p for p in points if p.plan is not None and search.meets(p.measures)]
        if not kept:
            found = [p.measures for p in points if p.plan is not None]
            unmet = explain_unmet(found, search.constraints, search.reference)
            cut = "" if complete and measured else " in the time there was"
            raise ObjectiveError(f"{unmet}{cut}")
        best = self._with_gpu_seconds(
            min(kept, key=lambda p: (p.measures.rank(search.objective), p.epochs))
        )
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
            _description(self.workload),
            search.budget.spent,
            search.seed,
            complete and measured,
            search.noise,
            search.failed,
        )

    def _with_gpu_seconds(self, point: Point) -> Point:
        """The point with what a GPU works for it: calls of small models are mostly the host's."""
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
        total = self.epochs * len(finalists)
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self.show("finetune", done, total)

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


def _description(workload: Workload) -> dict[str, Any]:
    """Names and sizes in plain values."""
    device, graph = workload.device, workload.edge_index
    is_index = isinstance(graph, torch.Tensor) and graph.layout == torch.strided
    edges = graph.size(1) if is_index else int(getattr(graph, "nnz", graph._nnz)())
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_model()
    return {
        "model": type(workload.model).__name__,
        "nodes": workload.num_nodes,
        "edges": int(edges),
        "features": workload.x.size(1),
        "metric": workload.metric,
        "device": name,
        "kind": device.type,
    }


@contextmanager
def _bars(progress: bool) -> Iterator[Callable[[str, int, int], Any]]:
    """Draws a bar for each stage, never while something is timed."""
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
