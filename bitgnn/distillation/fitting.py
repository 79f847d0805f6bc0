"""Training of teacher and student: epochs, validation, checkpoints, the best state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import Adam
from tqdm import tqdm

from bitgnn._warn import warn
from bitgnn.distillation.captured import RepeatedEpoch
from bitgnn.distillation.dropout import scaled_dropout
from bitgnn.distillation.errors import DistillError
from bitgnn.distillation.problems import Problem
from bitgnn.nn.activation_quantizer import ActivationQuantizer
from bitgnn.train.keeping import Keeper, Keeping, RunLog
from bitgnn.train.recipe import Schedule
from bitgnn.train.session import BestState, Session

__all__ = ["ALL_EPOCHS", "BUDGET_SPENT", "DistillRecipe", "Fit", "dropout_for", "fit", "recipe_for"]

WHOLE_EPOCHS = 200
STEPS, LEAST_EPOCHS = 2000, 20
ASKED = 25
"""Epochs between looks at whether training on a GPU is over."""
ALL_EPOCHS, BUDGET_SPENT = "after all epochs", "by the budget"
MUCH_OVERFIT = 0.05
"""Overfitting from which on a student has all of the model's dropout."""
MANY_LABELS = 4000
"""Labelled rows from which on a student has ever less of it."""
RATE = 3
"""Column of the learning rate."""
TIE = 1e-4
"""What a unit of divergence weighs beside the score where the best state is chosen."""


class DistillRecipe(Schedule):
    """How teacher and student are trained: by Adam, with :class:`Schedule`'s attributes and these.

    Attributes:
        weight_decay: of the teacher; students have none on latent weights.
        teacher_weight: ``w`` in ``(1 - w) labels + w teacher``.
        sharpen: exponent of the teacher's probabilities.
        smooth: smooth them over the graph where validation nodes gain.
        dropout: factor of the model's own dropout probabilities in training.
        patience: share of the epochs, but at least 20, without a better one after which training
            at a constant rate stops; None trains them all. Falling rates have the best ones last.
    """

    weight_decay: float = Field(0.0, ge=0)
    teacher_weight: float = Field(0.0, ge=0, le=1)
    sharpen: float = Field(2.0, gt=0)
    smooth: bool = True
    dropout: float = Field(1.0, ge=0)
    patience: float | None = Field(1 / 3, gt=0, le=1)


def dropout_for(overfit: float, labelled: int) -> float:
    """What is left of the model's dropout for a student.

    A teacher that scores as well on rows it has not seen does not overfit, nor will a binary
    student, which dropout would only cost accuracy. The more rows are labelled, the less a
    student of few bits can learn by heart.

    Args:
        overfit: the teacher's score of training rows less that of validation rows.
        labelled: training rows.
    """
    return min(1.0, max(0.0, overfit / MUCH_OVERFIT), MANY_LABELS / labelled)


def recipe_for(problem: Problem, epochs: int | None) -> tuple[DistillRecipe, DistillRecipe]:
    """The recipes of teacher and student; what they depend on is a property of the data.

    Whole graphs have 200 epochs, batches about 2 000 steps; each kind of problem says itself
    what is special about it.

    Args:
        problem: the data.
        epochs: of both; None for the rule.
    """
    if epochs is None:
        whole = min(WHOLE_EPOCHS, max(LEAST_EPOCHS, math.ceil(STEPS / problem.steps)))
        epochs = WHOLE_EPOCHS if problem.steps == 1 else whole
    # Adam and weight decay of PyG's tutorials (Kipf and Welling 2017).
    teacher = {"learning_rate": 0.01, "weight_decay": 5e-4, **problem.teacher_options}
    student = {
        "learning_rate": 0.01,
        "schedule": "cosine",
        "teacher_weight": 0.5,
        **problem.student_options,
    }
    return DistillRecipe(epochs=epochs, **teacher), DistillRecipe(epochs=epochs, **student)


def _groups(model: nn.Module) -> list[dict[str, Any]]:
    """Parameters to train; learnt scales of activations move in units of where they start.

    Steps of Adam are as large as the rate, which would take a small scale below zero at once. Units
    are powers of two, so that scales of a size share a step of the optimizer.
    """
    quantizers = [module for module in model.modules() if isinstance(module, ActivationQuantizer)]
    scales = {id(q.scale): q.scale for q in quantizers if q.is_set}
    others = [parameter for parameter in model.parameters() if id(parameter) not in scales]
    by_unit: dict[float, list[nn.Parameter]] = {}
    for scale in scales.values():
        _, exponent = math.frexp(float(scale.detach()))
        by_unit.setdefault(min(1.0, 2.0 ** (exponent - 1)), []).append(scale)
    units = [{"params": by_unit[unit], "unit": unit} for unit in sorted(by_unit)]
    return [{"params": others}, *units]


class Fit(Session):
    """A training in progress: model, optimizer, history and the best state so far.

    Args:
        model: trained in place.
        recipe: how.
        identity: plain values that a checkpoint must agree in.

    Attributes:
        ended: why it ended, behind :func:`fit`.
        number: of the epoch under way, on the device.
        run: does the work of an epoch; None in front of the first.
    """

    columns = ("train_loss", "val_score", "divergence", "learning_rate", "seconds")

    def __init__(self, model: nn.Module, recipe: DistillRecipe, identity: dict[str, Any]) -> None:
        decay = recipe.weight_decay
        optimizer = Adam(_groups(model), lr=recipe.learning_rate, weight_decay=decay, fused=True)
        super().__init__(model, recipe, optimizer)
        self.recipe = recipe
        patience = None
        if recipe.patience is not None and recipe.schedule == "constant":
            patience = max(LEAST_EPOCHS, int(recipe.patience * recipe.epochs))
        self.best = BestState(model, patience)
        self.identity = identity
        self.ended = ""
        self.number = torch.zeros_like(self.best.epoch)
        self.run: RepeatedEpoch | None = None
        if self.device.type == "cuda":  # where a graph reads it
            for group in optimizer.param_groups:
                group["lr"] = torch.tensor(recipe.learning_rate, device=self.device)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of all parameters, of some in units of their own."""
        for group in self.optimizer.param_groups:
            own = rate * group.get("unit", 1.0)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(own)
            else:
                group["lr"] = own

    def settle(self, since: float) -> float:
        """Wait for a GPU to do what it was told."""
        if self.device.type == "cuda" and self.history:
            torch.cuda.synchronize(self.device)
            self.history[-1][-1] += time.perf_counter() - since
        return time.perf_counter()

    def _identity(self) -> dict[str, Any]:
        return self.identity

    def _further_tensors(self) -> dict[str, dict[str, Tensor]]:
        return {"best": self.best.tensors()}

    def _restore(self, found: Any) -> None:
        self.best.load(found.tensors["best"])


def fit(
    session: Fit,
    problem: Problem,
    ask: Callable[[Any], Tensor] | None,
    *,
    budget: float | None = None,
    folder: Path | None = None,
    title: str = "",
    is_last: bool = True,
) -> bool:
    """Train until the epochs or the seconds are over, and leave the model at its best epoch.

    Args:
        session: the training; continued from its checkpoint in ``folder`` where there is one.
        problem: data and losses.
        ask: gives what the teacher wants of a part's rows; None trains on labels alone.
        budget: seconds; the learning rate falls to 0 in that time.
        folder: for checkpoint and log; None for neither.
        title: of the progress bar and the files.
        is_last: whether the best epoch so far is a result; otherwise Ctrl-C is raised.

    Returns:
        Whether Ctrl-C ended it early.

    Raises:
        DistillError: no epoch had a finite score, or the budget is over before the first.
        KeyboardInterrupt: Ctrl-C before the first epoch ended, or in a stage before the last.
        OSError: a file cannot be written.
    """
    keeping = None
    if folder is not None:
        keeping = Keeping(folder / f"{title}.checkpoint", RunLog(folder / title))
        session.resume(keeping.checkpoint)
    keeper = Keeper(session, keeping)
    recipe, model = session.recipe, session.model
    spent = float(session.table()[:, -1].sum())
    interrupted, between = False, True
    bar = tqdm(total=recipe.epochs, initial=session.epoch, desc=title, disable=None, leave=False)
    begin = time.perf_counter()
    try:
        while not (ended := _why_over(session, spent, budget)):
            done = spent / budget if budget else 0.0
            between = False
            step_epoch(session, problem, ask, max(done, session.epoch / recipe.epochs))
            if budget is not None and session.device.type == "cuda":
                torch.cuda.synchronize(session.device)
            now = time.perf_counter()
            session.history[-1][-1] = now - begin
            spent, begin = spent + now - begin, now
            between = True
            keeper.epoch_done()
            bar.update()
    except KeyboardInterrupt:
        if not (session.history and is_last):
            raise
        interrupted, ended = True, "by Ctrl-C"
        warn(
            f"distill: stopped by Ctrl-C after {session.epoch} of {recipe.epochs} epochs; the "
            "result is the best epoch so far"
        )
    finally:
        bar.close()
        # Inside of an epoch the state is of neither this nor the next one.
        if keeping is not None and session.history and between:
            session.settle(time.perf_counter())
            session.save(keeping.checkpoint)
            keeper.finish()
    if int(session.best.epoch) < 0:
        if not session.history:
            raise DistillError(f"budget must leave time for an epoch, got {budget} seconds")
        raise DistillError(
            f"no epoch of {session.epoch} had a finite validation score; training of the "
            f"{title} diverged"
        )
    session.ended, session.run = ended, None
    model.load_state_dict(session.best.state)
    model.eval()
    return interrupted


def _why_over(session: Fit, spent: float, budget: float | None) -> str:
    """Why no other epoch follows; empty where one does."""
    if session.epoch >= session.recipe.epochs:
        return ALL_EPOCHS
    if budget is not None and spent >= budget:
        return BUDGET_SPENT
    # A GPU is asked now and then; whatever it trains beyond does not count.
    is_asked = session.device.type == "cpu" or session.epoch % ASKED == 0
    stop = session.best.stop_after() if is_asked else None
    if stop is None or session.epoch <= stop:
        return ""
    return f"after {session.best.patience} epochs without a better one"


def step_epoch(
    session: Fit, problem: Problem, ask: Callable[[Any], Tensor] | None, progress: float
) -> None:
    """Train and validate once.

    Args:
        session: the training; the epoch's seconds are left open.
        problem: data and losses.
        ask: gives what the teacher wants of a part's rows.
        progress: share of the training that is over.
    """
    rate = session.recipe.rate(progress * session.recipe.epochs)
    session.set_rate(rate)
    session.number.fill_(session.epoch)
    if session.run is None:
        session.run = RepeatedEpoch(
            partial(_epoch, session, problem, ask),
            session.model,
            session.optimizer,
            problem.repeats,
        )
    row = session.run()
    row[RATE] = rate
    session.history.append(row)


def _epoch(session: Fit, problem: Problem, ask: Callable[[Any], Tensor] | None) -> Tensor:
    """The work of an epoch; gives its row of the history, rate and seconds left open."""
    recipe, model, objective = session.recipe, session.model, problem.objective
    model.train()
    weight = recipe.teacher_weight if ask is not None else 0.0
    total = torch.zeros((), dtype=torch.float64, device=session.device)
    divergence = torch.zeros_like(total)
    for part in problem.parts():
        session.optimizer.zero_grad()
        with scaled_dropout(recipe.dropout, session.device.type == "cpu"):
            scores = problem.scores(model, part)
        loss = scores.new_zeros(())
        if weight < 1 and part.y.numel():
            known = scores if part.labelled is None else scores[part.labelled]
            loss = (1 - weight) * objective.labels(known, part.y)
        if ask is not None and weight > 0:
            rows = scores if part.rows is None else scores[part.rows]
            asked = objective.teacher(rows, ask(part))
            loss = loss + weight * asked
            divergence += asked.detach()
        if not loss.requires_grad:
            continue
        loss.backward()
        session.optimizer.step()
        total += loss.detach()
    model.eval()
    with torch.no_grad():
        scores, y = problem.results(model)["val"]
        value = objective.score(scores, y).double()
        loss_there = objective.labels(scores, y).double()
    steps = max(problem.steps, 1)
    values = [total / steps, value, divergence / steps]
    row = torch.zeros(len(Fit.columns), dtype=torch.float64, device=session.device)
    row[:RATE] = torch.stack(values)
    # Of states with equal scores the one with the lower loss; a bounded share of one row's worth.
    tie = TIE * (loss_there / (1 + loss_there) if ask is None else divergence / (1 + divergence))
    session.best.offer(session.number, tie - value)
    return row
