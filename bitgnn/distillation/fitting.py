"""Training of teacher and student: epochs with scaled dropout, validation, the best state."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import _VF, Tensor, nn
from tqdm import tqdm

from bitgnn._interpreter import warn
from bitgnn.distillation import ranks
from bitgnn.distillation.calling import DistillError
from bitgnn.distillation.captured import RepeatedEpoch
from bitgnn.distillation.problems import Part, Problem
from bitgnn.distillation.session import Fit, Keeper
from bitgnn.nn.roles.settling import current_flow, dropout_times
from bitgnn.quantize import fast_dropout

ASKED = 25
"""Epochs between looks at whether training on a GPU is over."""
ALL_EPOCHS, BUDGET_SPENT = "after all epochs", "by the budget"
RATE = Fit.columns.index("learning_rate")
TIE = 1e-4
"""Weight of the divergence against the score when the best state is chosen."""
PLAIN = "dropout"
MOST = 0.999
"""Probability up to which few random bits decide."""
KINDS = (PLAIN, "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
OPERATIONS = tuple(name + end for name in KINDS for end in ("", "_"))
"""Of torch, which modules and functions of dropout call; their arguments begin ``input, p``."""
Ask = Callable[[Part], Tensor] | None
"""Function that gives the teacher's targets for a part's rows; None trains only on labels."""


def fit(
    session: Fit,
    problem: Problem,
    ask: Ask,
    *,
    budget: float | None = None,
    folder: Path | None = None,
    title: str = "",
    is_last: bool = True,
) -> bool:
    """Train until the epochs or the seconds are over, and leave the model at its best epoch.

    Goes on from the checkpoint in ``folder`` where there is one. In the seconds of ``budget`` the
    learning rate falls to 0. ``title`` is that of the progress bar and the files. Gives whether
    Ctrl-C ended it early; it is raised where no epoch has ended, or unless ``is_last``: the best
    epoch of an earlier stage is no result. Ranks cannot go on after it and raise it, too.
    """
    keeper = Keeper(session, None if folder is None else folder / title)
    recipe, model = session.recipe, session.model
    spent = session.seconds
    interrupted, between, ended = False, True, ""
    bar = tqdm(
        total=recipe.epochs, initial=session.epoch, desc=title, leave=False,
        disable=ranks.rank() > 0 or None,
    )  # fmt: skip
    begin = time.perf_counter()
    if ranks.count() > 1 and not session.epoch:
        _settle_together(session, problem)
    try:
        while not (ended := _why_over(session, spent, budget)):
            done = spent / budget if budget else 0.0
            between = False
            step_epoch(session, problem, ask, max(done, session.epoch / recipe.epochs))
            if budget is not None and session.device.type == "cuda":
                torch.cuda.synchronize(session.device)
            now = time.perf_counter()
            elapsed = ranks.largest(now - begin, session.device)
            session.history[-1][-1] = elapsed
            spent, begin = spent + elapsed, now
            between = True
            keeper.epoch_done()
            bar.update()
    except KeyboardInterrupt:
        if not (session.history and is_last) or ranks.count() > 1:
            raise
        interrupted, ended = True, "by Ctrl-C"
        warn(
            f"distill: stopped by Ctrl-C after {session.epoch} of {recipe.epochs} epochs; the "
            "result is the best epoch so far"
        )
    finally:
        bar.close()
        # Inside of an epoch the state is of neither this nor the next one.
        # Ranks write together, so not where one of them has failed.
        if session.history and between and (ended or ranks.count() == 1):
            keeper.keep()
    if int(session.best.epoch) < 0:
        if not session.history:
            raise DistillError(f"budget must leave time for an epoch, got {budget} seconds")
        raise DistillError(
            f"no epoch of {session.epoch} had a finite validation score; training of the "
            f"{title} diverged"
        )
    session.ended, session.run, session.replica = ended, None, model
    model.load_state_dict(session.best.state)
    ranks.take_first([*model.parameters(), *model.buffers()])
    model.eval()
    return interrupted


def _settle_together(session: Fit, problem: Problem) -> None:
    """Settle roles, forms and statistics of inputs on all ranks by a batch of the first one.

    In its first batch a layer goes by that batch alone, which is another one on each rank.
    """
    ranks.begin_epoch(problem.sampler, 0)
    with scaled_dropout(session.recipe.dropout, session.device.type == "cpu"):
        problem.scores(session.model.train(), next(problem.parts()))
    ranks.take_first(session.model.buffers())


def _why_over(session: Fit, spent: float, budget: float | None) -> str:
    """Reason why training ends here; empty if it goes on."""
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


def step_epoch(session: Fit, problem: Problem, ask: Ask, progress: float) -> None:
    """Train and validate once; ``progress`` is the share of the training that is over.

    The epoch's seconds are left open.
    """
    ranks.begin_epoch(problem.sampler, session.epoch)
    rate = session.recipe.rate(progress * session.recipe.epochs)
    session.set_rate(rate)
    session.number.fill_(session.epoch)
    if session.run is None:
        epoch = partial(_epoch, session, problem, ask)
        session.run = RepeatedEpoch(epoch, session.model, session.optimizer, problem.repeats)
    row = session.run()
    row[RATE] = rate
    session.history.append(row)


def _epoch(session: Fit, problem: Problem, ask: Ask) -> Tensor:
    """Run one epoch; return its row of the history, without rate and seconds."""
    recipe, model, objective = session.recipe, session.model, problem.objective
    session.replica.train()
    weight = recipe.teacher_weight if ask is not None else 0.0
    total = torch.zeros((), dtype=torch.float64, device=session.device)
    divergence = torch.zeros_like(total)
    for part in problem.parts():
        session.optimizer.zero_grad()
        watched = nullcontext() if session.inside is None else session.inside.watching(model)
        with watched, scaled_dropout(recipe.dropout, session.device.type == "cpu"):
            scores = problem.scores(session.replica, part)
        loss = scores.new_zeros(())
        if weight < 1 and part.y.numel():
            known = scores if part.labelled is None else scores[part.labelled]
            loss = (1 - weight) * objective.labels(known, part.y)
        if ask is not None and (weight > 0 or session.inside is not None):
            rows = scores if part.rows is None else scores[part.rows]
            asked = objective.teacher(rows, ask(part))
            loss = loss + weight * asked
            if session.inside is not None:
                loss = loss + session.inside.loss()
            divergence += asked.detach()
        if ranks.count() > 1:  # they step together, also with a batch that teaches nothing
            loss = loss + ranks.zero(model)
        if not loss.requires_grad:
            continue
        loss.backward()
        session.optimizer.step()
        total += loss.detach()
    ranks.take_first(model.buffers())
    model.eval()
    with torch.no_grad():
        scores, y = problem.results(model)["val"]
        value = objective.score(scores, y).double()
        loss_there = objective.labels(scores, y).double()
    if ranks.count() > 1:
        found = torch.stack([total, divergence, value, loss_there])
        total, divergence, value, loss_there = ranks.mean(found)
    steps = max(problem.steps, 1)
    values = [total / steps, value, divergence / steps]
    row = torch.zeros(len(Fit.columns), dtype=torch.float64, device=session.device)
    row[:RATE] = torch.stack(values)
    # Of states with equal scores the one with the lower loss; a bounded share of one row's worth.
    tie = TIE * (loss_there / (1 + loss_there) if ask is None else divergence / (1 + divergence))
    session.best.offer(session.number, tie - value)
    return row


@contextmanager
def scaled_dropout(factor: float, on_cpu: bool = False) -> Iterator[None]:
    """Scale the ``p`` of all dropouts by ``factor``, to 1 at most.

    The operations behind them are exchanged, in the whole process: a mode that looks at every
    function of torch takes as long as a small graph's forward. ``on_cpu`` draws for plain tensors
    there as :func:`bitgnn.quantize.fast_dropout` does: PyTorch takes longer over the dropout of
    wide features than over all else in a step.
    """
    is_needed = factor != 1 or on_cpu
    found = {name: getattr(torch, name) for name in (OPERATIONS if is_needed else ())}
    try:
        _exchange({name: _scaled(operation, factor) for name, operation in found.items()})
        with dropout_times(factor):  # layers make up for what dropout in front takes
            yield
    finally:
        _exchange(found)


def _exchange(operations: dict[str, Callable[..., Any]]) -> None:
    for name, operation in operations.items():
        setattr(torch, name, operation)
        setattr(_VF, name, operation)


def _scaled(operation: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """An operation with ``factor`` times its probability; invalid ones stay invalid."""
    is_plain = operation.__name__ == PLAIN

    @functools.wraps(operation)
    def called(input: Any, p: float, *rest: Any, **named: Any) -> Any:
        p = min(factor * p, 1.0) if 0 <= p <= 1 else p
        # A pass that follows tensors knows torch's own.
        is_quick = is_plain and current_flow() is None and _is_quick(input, p)
        if is_quick and len(rest) + len(named) == 1:
            return fast_dropout(input, p, *rest, *named.values())
        return operation(input, p, *rest, **named)

    return called


def _is_quick(x: Any, p: float) -> bool:
    is_plain = type(x) in (Tensor, nn.Parameter) and x.device.type == "cpu"
    return is_plain and x.is_floating_point() and 0 <= p <= MOST
