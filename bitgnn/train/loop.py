"""Training of one model: epochs, validation, checkpoints, and the state at the best epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.train.batches import Batch, make_batches
from bitgnn.train.checkpoint import load_weights
from bitgnn.train.log import RunLog
from bitgnn.train.losses import divergence, propagated, teacher_log_probabilities
from bitgnn.train.rate import learning_rate
from bitgnn.train.recipe import FullGraph, Neighbors, RandomWalks, Recipe
from bitgnn.train.session import COLUMNS, Session
from bitgnn.train.task import NodeTask

__all__ = ["Keeping", "TrainedModel", "TrainingError", "train_epoch", "train_model"]

# Asking a GPU for a value waits for all that was queued, so it is asked every so many epochs.
DEVICE_EPOCHS_PER_CHECK = 25
# Share of a training's time that checkpoints may take where no interval is set.
CHECKPOINT_SHARE = 0.05


class TrainingError(RuntimeError):
    """A training came to nothing; the message says why."""


@dataclass(frozen=True)
class TrainedModel:
    """Result of one training.

    Attributes:
        state: parameters and buffers at the epoch chosen, on the CPU.
        test_score: of the test nodes at that epoch, accuracy as a share or area under the curve.
        val_score: the same of the validation nodes.
        val_loss: validation loss at that epoch.
        epoch: the epoch chosen, from 0.
        epochs: epochs trained.
        seconds: time of all epochs, interrupted or not.
    """

    state: dict[str, Tensor]
    test_score: float
    val_score: float
    val_loss: float
    epoch: int
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Keeping:
    """What a training leaves on disk while it runs.

    Attributes:
        checkpoint: file to go on from after a stop of any kind.
        log: of every epoch; None for none.
        seconds: a checkpoint is written after the first epoch that ends so long after the last
            one was written; 0 writes one after every epoch. None writes as often as takes at
            most 5 % of the time: after every epoch, unless epochs are shorter than 20 times what
            writing takes (a few milliseconds for small graphs); then a kill loses no more than
            that.
    """

    checkpoint: Path
    log: RunLog | None = None
    seconds: float | None = None


def train_model(
    model: nn.Module,
    task: NodeTask,
    recipe: Recipe,
    *,
    loader: FullGraph | Neighbors | RandomWalks | None = None,
    initial: Mapping[str, Tensor] | None = None,
    teachers: Sequence[Tensor] = (),
    keeping: Keeping | None = None,
    on_epochs: Callable[[int], None] = lambda count: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainedModel:
    """Train on the training nodes of one graph, choose by the validation nodes.

    A training that goes on from a checkpoint gives bit for bit what it would have given without
    the stop, on the CPU and wherever the device's operators are deterministic.

    Args:
        model: the model on the task's device; trained in place, left at the epoch chosen.
        task: the graph.
        recipe: epochs, learning rate and the like.
        loader: what a step sees; None is the whole graph.
        initial: state of another form to start from.
        teachers: ``[N, C]`` logits to distill from where ``recipe.distill`` is not 0.
        keeping: checkpoints and logs; None for neither.
        on_epochs: called with the number of epochs done since the last call.
        should_stop: asked in front of every epoch but the first; true ends the training as if its
            epochs were over.

    Returns:
        The model's state at the best epoch and its scores there.

    Raises:
        CheckpointError: the checkpoint or ``initial`` does not fit.
        LoaderError: a loader's library is missing.
        TrainingError: no epoch had a finite validation loss.
        OSError: a checkpoint or log cannot be written.
    """
    batches = make_batches(loader or FullGraph(), task)
    if initial is not None:
        load_weights(model, initial, "start_from")
    session = Session(model, recipe)
    teacher = teacher_log_probabilities(teachers, recipe.temperature) if teachers else None
    if teacher is not None and recipe.teacher_propagation is not None:
        teacher = propagated(teacher, task.evaluation_graph, recipe.teacher_propagation)
    if keeping is not None and session.resume(keeping.checkpoint):
        on_epochs(session.epoch)
    _run(session, task, batches, teacher, keeping, on_epochs, should_stop)
    return _result(session)


def _run(
    session: Session,
    task: NodeTask,
    batches: Callable[[], Iterator[Batch]],
    teacher: Tensor | None,
    keeping: Keeping | None,
    on_epochs: Callable[[int], None],
    should_stop: Callable[[], bool],
) -> None:
    log = None if keeping is None else keeping.log
    if log is not None:
        log.restart(session.rows(0))
    logged = reported = session.epoch
    check = 1 if session.device.type == "cpu" else DEVICE_EPOCHS_PER_CHECK
    last = begin = time.perf_counter()
    pause = 0.0 if keeping is None or keeping.seconds is None else keeping.seconds
    while session.epoch < session.recipe.epochs and not _is_stopped(session, check):
        if session.epoch > 0 and should_stop():
            break
        train_epoch(session, task, batches, teacher)
        now = time.perf_counter()
        session.history[session.epoch, COLUMNS.index("seconds")] = now - begin
        begin = now
        session.epoch += 1
        if keeping is not None and now - last >= pause:
            last = _waited(session, now)
            session.save(keeping.checkpoint)
            if log is not None:
                log.append(session.rows(logged))
                logged = session.epoch
            begin = time.perf_counter()
            if keeping.seconds is None:
                pause = (begin - last) / CHECKPOINT_SHARE
        if session.epoch % check == 0:
            on_epochs(session.epoch - reported)
            reported = session.epoch
    if session.epoch > logged:
        _waited(session, begin)
    if log is not None:
        log.append(session.rows(logged))
    on_epochs(session.recipe.epochs - reported)


def _waited(session: Session, since: float) -> float:
    """Wait for a GPU to do what it was told, count that to the last epoch, and tell the time."""
    if session.device.type == "cuda":
        torch.cuda.synchronize(session.device)
        left = time.perf_counter() - since
        session.history[session.epoch - 1, COLUMNS.index("seconds")] += left
    return time.perf_counter()


def _is_stopped(session: Session, check: int) -> bool:
    if session.recipe.patience is None or session.epoch % check:
        return False
    stop = session.best.stop_after()
    return stop is not None and session.epoch > stop


def train_epoch(
    session: Session,
    task: NodeTask,
    batches: Callable[[], Iterator[Batch]],
    teacher: Tensor | None,
) -> None:
    """Train and validate once; the results go to the history, still on the device.

    Args:
        session: the training; its ``epoch`` is not advanced.
        task: the graph.
        batches: starts an epoch's batches.
        teacher: ``[N, C]`` logarithms of the teachers' probabilities, or None.
    """
    model, recipe, optimizer = session.model, session.recipe, session.optimizer
    rate = learning_rate(recipe, session.epoch)
    for group in optimizer.param_groups:
        group["lr"] = rate
    model.train()
    total = torch.zeros((), device=session.device)
    nodes = 0
    for batch in batches():
        optimizer.zero_grad()
        logits = model(batch.x, batch.edge_index)
        loss = functional.cross_entropy(
            logits.index_select(0, batch.train),
            batch.y.index_select(0, batch.train),
            label_smoothing=recipe.label_smoothing,
        )
        if teacher is not None:
            wanted = teacher if batch.nodes is None else teacher[batch.nodes]
            loss = loss + recipe.distill * divergence(logits, wanted, recipe.temperature)
        loss.backward()
        optimizer.step()
        session.stepped()
        total += batch.train.numel() * loss.detach()
        nodes += batch.train.numel()
    val_loss, scores = _validate(session.validated, task)
    row = torch.stack([(total / max(nodes, 1)).double(), val_loss.double(), *scores])
    session.history[session.epoch, : row.numel()] = row
    session.history[session.epoch, COLUMNS.index("learning_rate")] = rate
    value = val_loss.double() if recipe.choose_by == "loss" else -scores[1]
    session.best.offer(session.epoch, value)


@torch.no_grad()
def _validate(model: nn.Module, task: NodeTask) -> tuple[Tensor, Tensor]:
    """Validation loss and the scores of all parts."""
    model.eval()
    logits = model(task.x, task.evaluation_graph)
    loss = functional.cross_entropy(
        logits.index_select(0, task.val), task.y.index_select(0, task.val)
    )
    return loss, task.score(logits)


def _result(session: Session) -> TrainedModel:
    """The best epoch's state and scores; an early stop leaves out what came behind it."""
    best = int(session.best.epoch)
    if best < 0:
        raise TrainingError(
            f"no epoch of {session.epoch} had a finite validation {session.recipe.choose_by}; "
            "the training diverged: lower learning_rate"
        )
    stop = session.best.stop_after()
    epochs = session.epoch if stop is None else min(session.epoch, stop + 1)
    session.model.load_state_dict(session.best.state)
    session.model.eval()
    history = session.history[:epochs].cpu()
    chosen = dict(zip(COLUMNS, history[best].tolist(), strict=True))
    return TrainedModel(
        {name: tensor.cpu().clone() for name, tensor in session.best.state.items()},
        chosen["test_score"],
        chosen["val_score"],
        chosen["val_loss"],
        best,
        epochs,
        math.fsum(history[:, COLUMNS.index("seconds")].tolist()),
    )
