"""tune(): precision, order and width of a model that are best on its data, with reasons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from bitgnn._files import alone_in
from bitgnn.convert.swap.graphs import own_letters
from bitgnn.tune.budget import Budget, parse_seconds
from bitgnn.tune.objective import (
    Constraint,
    Objective,
    check_objective,
    read_limits,
)
from bitgnn.tune.pins import Pins, pinned_choices
from bitgnn.tune.result import LimitsMissed, TuneResult
from bitgnn.tune.space import Space
from bitgnn.tune.stages import TuneInterrupted, Tuning
from bitgnn.tune.students import Students
from bitgnn.tune.study import check_file
from bitgnn.tune.workload import MetricName, Workload

__all__ = ["WIDTHS", "TuneInterrupted", "tune"]

WIDTHS = (1.0, 2.0, 4.0)
"""Multiples of the hidden channels that are tried."""
STUDENTS = "students"
"""Folder of their checkpoints in the output folder."""


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
    In its weights every choice of letters (up to :data:`~bitgnn.tune.explore.MOST_CHOICES`; beyond,
    those that an Optuna sampler proposes) is scored on the validation nodes, its plans are timed
    briefly, and at most a fifth of them is measured in turns. The best of all widths are distilled
    in their own letters from the same teacher, and measured in turns beside it: these, with their
    own accuracies, are the points of the result.

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
    limits = read_limits(constraints)
    check_objective(objective)
    widths = (widen,) if isinstance(widen, int | float) else tuple(dict.fromkeys(widen))
    if not widths or not all(1 <= width < math.inf for width in widths):
        raise ValueError(f"tune: widen must be numbers of at least 1, got {widen}")
    if not isinstance(budget, Budget):
        budget = Budget(None if budget is None else parse_seconds(budget))
    workload = Workload.of(model, data, metric=metric, device=device)
    letters = own_letters(workload.model)
    if set("BT") & set("".join(letters.values())):
        raise ValueError(f"tune: model must be in floats, got one with the letters {letters}")
    Space.from_workload(workload, None, allow)
    pinned_choices(workload.model, pins)
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
        settings = {"constraints": limits, "objective": objective, "seed": seed}
        tuning = Tuning(students, budget, pins, allow, storage, settings, progress)
        try:
            result = tuning.run(sorted(widths))
        except KeyboardInterrupt:
            raise tuning.interrupted(folder) from None
        if folder is not None:
            result.save(folder)
    if result.missed is not None:
        raise LimitsMissed(result)
    return result
