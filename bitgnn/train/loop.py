"""Training of one model: losses, epochs, validation, checkpoints, and the best epoch's state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import APPNP

from bitgnn.train.batches import Batch, make_batches
from bitgnn.train.checkpoint import load_weights
from bitgnn.train.keeping import Keeper, Keeping
from bitgnn.train.recipe import FullGraph, Neighbors, RandomWalks, Recipe, TeacherPropagation
from bitgnn.train.session import COLUMNS, NodeSession
from bitgnn.train.task import NodeTask

LEAST_PROBABILITY = 1e-9


def teacher_log_probabilities(teachers: Sequence[Tensor], temperature: float) -> Tensor:
    """Logarithm of the teachers' mean class probabilities ``softmax(logits / T)``.

    Args:
        teachers: ``[N, C]`` logits of each, at least one.
        temperature: T.

    Returns:
        ``[N, C]`` float tensor.
    """
    logs = [functional.log_softmax(logits / temperature, dim=-1) for logits in teachers]
    if len(logs) == 1:
        return logs[0]
    count = torch.tensor(float(len(logs)), device=logs[0].device)
    return torch.stack(logs).logsumexp(dim=0) - count.log()


@torch.no_grad()
def propagated(
    log_probabilities: Tensor, edge_index: Tensor, propagation: TeacherPropagation
) -> Tensor:
    """Class probabilities smoothed over the graph, rows adding up to 1 again.

    Args:
        log_probabilities: ``[N, C]``.
        edge_index: ``[2, E]`` edge index or sparse adjacency.
        propagation: how far.

    Returns:
        ``[N, C]`` logarithms.
    """
    smooth = APPNP(propagation.steps, propagation.alpha)
    found = smooth(log_probabilities.exp(), edge_index)
    shares = found / found.sum(dim=1, keepdim=True).clamp(min=LEAST_PROBABILITY)
    return shares.clamp(min=LEAST_PROBABILITY).log()


def divergence(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """``T^2 KL(teacher || softmax(logits / T))``, mean over nodes (Hinton et al. 2015).

    Args:
        logits: ``[N, C]`` of the student.
        teacher: ``[N, C]`` logarithms of probabilities at temperature T.
        temperature: T.

    Returns:
        scalar.
    """
    found = functional.kl_div(
        functional.log_softmax(logits / temperature, dim=-1),
        teacher,
        reduction="batchmean",
        log_target=True,
    )
    return temperature**2 * found


# Asking a GPU for a value waits for all that was queued, so it is asked every so many epochs.
DEVICE_EPOCHS_PER_CHECK = 25


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
    session = NodeSession(model, recipe)
    teacher = teacher_log_probabilities(teachers, recipe.temperature) if teachers else None
    if teacher is not None and recipe.teacher_propagation is not None:
        teacher = propagated(teacher, task.evaluation_graph, recipe.teacher_propagation)
    if keeping is not None and session.resume(keeping.checkpoint):
        on_epochs(session.epoch)
    keeper = Keeper(session, keeping)
    reported = session.epoch
    check = 1 if session.device.type == "cpu" else DEVICE_EPOCHS_PER_CHECK
    begin = time.perf_counter()
    while session.epoch < recipe.epochs and not _is_stopped(session, check):
        if session.epoch > 0 and should_stop():
            break
        train_epoch(session, task, batches, teacher)
        session.history[-1][-1] = time.perf_counter() - begin
        keeper.epoch_done()
        begin = time.perf_counter()
        if session.epoch % check == 0:
            on_epochs(session.epoch - reported)
            reported = session.epoch
    session.settle(begin)
    keeper.finish()
    on_epochs(recipe.epochs - reported)
    return _result(session)


def _is_stopped(session: NodeSession, check: int) -> bool:
    if session.recipe.patience is None or session.epoch % check:
        return False
    stop = session.best.stop_after()
    return stop is not None and session.epoch > stop


def train_epoch(
    session: NodeSession,
    task: NodeTask,
    batches: Callable[[], Iterator[Batch]],
    teacher: Tensor | None,
) -> None:
    """Train and validate once; the results go to the history, still on the device.

    Args:
        session: the training; the epoch's seconds are left open.
        task: the graph.
        batches: starts an epoch's batches.
        teacher: ``[N, C]`` logarithms of the teachers' probabilities, or None.
    """
    model, recipe, optimizer = session.model, session.recipe, session.optimizer
    rate = recipe.rate(session.epoch)
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
        total += batch.train.numel() * loss.detach()
        nodes += batch.train.numel()
    val_loss, scores = _validate(model, task)
    row = torch.full((len(COLUMNS),), math.nan, dtype=torch.float64, device=session.device)
    results = torch.stack([(total / max(nodes, 1)).double(), val_loss.double(), *scores])
    row[: results.numel()] = results
    row[COLUMNS.index("learning_rate")] = rate
    session.history.append(row)
    value = val_loss.double() if recipe.choose_by == "loss" else -scores[1]
    session.best.offer(session.epoch - 1, value)


@torch.no_grad()
def _validate(model: nn.Module, task: NodeTask) -> tuple[Tensor, Tensor]:
    """Validation loss and the scores of all parts."""
    model.eval()
    logits = model(task.x, task.evaluation_graph)
    loss = functional.cross_entropy(
        logits.index_select(0, task.val), task.y.index_select(0, task.val)
    )
    return loss, task.score(logits)


def _result(session: NodeSession) -> TrainedModel:
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
    history = session.table()[:epochs].cpu()
    chosen = dict(zip(COLUMNS, history[best].tolist(), strict=True))
    return TrainedModel(
        {name: tensor.cpu().clone() for name, tensor in session.best.state.items()},
        chosen["test_score"],
        chosen["val_score"],
        chosen["val_loss"],
        best,
        epochs,
        math.fsum(history[:, -1].tolist()),
    )
