"""Training of one network on text, stage by stage, as a generator that others can join."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bitgnn.nn.multistage import enter_level, initialize_scales, set_level
from bitgnn.train.keeping import Keeper, Keeping
from bitgnn.train.loop import TrainingError
from experiments.text.batches import EpochTable, Evaluation, Task
from experiments.text.recipe import TextRecipe
from experiments.text.recorded import GraphMemory, Pace, Recorded
from experiments.text.session import TextSession
from experiments.text.step import TrainStep, restart

__all__ = ["TrainedText", "train_text"]

SEEDS_APART = 1000


@dataclass(frozen=True)
class TrainedText:
    """Result of one training.

    Attributes:
        state: parameters behind the last epoch, on the CPU.
        history: one row an epoch, see :data:`~experiments.text.session.COLUMNS`.
        factors: by the level entered, what each scale was multiplied by at that transition.
    """

    state: dict[str, Tensor]
    history: list[dict[str, float]]
    factors: dict[str, dict[str, float]]


def train_text(
    task: Task,
    recipe: TextRecipe,
    seed: int,
    *,
    keeping: Keeping | None = None,
    on_epochs: Callable[[int], None] = lambda count: None,
) -> Generator[None, None, TrainedText]:
    """Train a task's model; the last epoch's network is the result.

    The validation loss ends stages where the recipe has a patience; the test data choose nothing.
    On the CPU a training that goes on from a checkpoint gives bit for bit what it would have given
    without the stop.

    Args:
        task: the model on its device, trained in place and left in evaluation mode, and its data.
        recipe: epochs, stages, learning rates and the like.
        seed: of dropout and of the order of the data.
        keeping: checkpoints and logs; None for neither.
        on_epochs: called with the number of epochs done since the last call.

    Yields:
        None, often, so that other trainings get their turn; see
        :func:`~experiments.text.recorded.side_by_side`.

    Raises:
        CheckpointError: the checkpoint does not fit.
        TrainingError: the loss is no longer finite.
        OSError: a checkpoint or log cannot be written.
    """
    session = TextSession(task.model, recipe, seed)
    if keeping is not None and session.resume(keeping.checkpoint):
        on_epochs(recipe.epochs - session.epochs_left)
    keeper = Keeper(session, keeping)
    run = _Run(session, task)
    while (stage := session.current) is not None:
        begin = time.perf_counter()
        run.enter()
        rate = run.fill(stage.epochs)
        yield from run.epoch()
        loss, *scores = run.results()
        if not loss < math.inf:
            raise TrainingError(f"the loss of epoch {session.epoch} is {loss}; lower learning_rate")
        level = 0 if recipe.precision == "fp32" else stage.level
        undone = session.epoch_done([level, loss, *scores, rate, time.perf_counter() - begin])
        keeper.epoch_done()
        on_epochs(1 + undone)
    keeper.finish()
    session.close()
    state = {
        name: tensor.detach().cpu().clone() for name, tensor in task.model.state_dict().items()
    }
    return TrainedText(state, session.rows(), session.factors)


class _Run:
    """Steps and tables of one training."""

    def __init__(self, session: TextSession, task: Task) -> None:
        self._session, self._task = session, task
        self._entered: int | None = None
        plan = task.plan(session.seed)
        self._steps = len(plan.lengths)
        self._table = EpochTable(plan, task.device)
        self._step = TrainStep(task, session.optimizer, self._table)
        memory = GraphMemory()
        self._train = Recorded(self._step, task.device, session.generator, memory)
        self._tests = [_Test(part, task.device, memory) for part in task.evaluations()]
        self._pace = Pace(task.device)
        self._lengths: list[int] = []

    def enter(self) -> None:
        """Give the model the level of the stage under way, if it has not got it yet."""
        session, task = self._session, self._task
        number, model = session.stage, task.model
        if session.recipe.precision == "fp32" or self._entered == number:
            return
        level = session.stages[number].level
        if session.stage_epoch:  # taken up in the middle
            set_level(model, level, task.only)
        elif number == 0:
            set_level(model, level, task.only)
            initialize_scales(model, task.calibrate, task.only)
        else:
            set_level(model, session.stages[number - 1].level, task.only)
            session.factors[str(level)] = enter_level(
                model, level, task.calibrate, session.recipe.alignment, task.only
            )
            restart(session.optimizer)
            for recorded in (self._train, *(test.run for test in self._tests)):
                recorded.forget()
        self._entered = number

    def fill(self, epochs: int) -> float:
        """Put the next epoch's batches and learning rates on the device; its highest rate."""
        session, steps = self._session, self._steps
        plan = self._task.plan(session.seed + SEEDS_APART * (session.epoch + 1))
        factors = _factors(session.stage_epoch * steps, steps, epochs * steps, session.recipe)
        self._table.fill(plan, factors)
        self._lengths = plan.lengths
        self._step.start()
        return float(factors.max()) * session.recipe.learning_rate

    def epoch(self) -> Iterator[None]:
        """Train and evaluate; yields until all of it is done."""
        model = self._task.model
        model.train()
        for length in self._lengths:
            self._train(length)
            yield
            yield from self._pace.step()
        model.eval()
        for test in self._tests:
            for length in test.start():
                test.run(length)
                yield
        yield from self._pace.finish()

    def results(self) -> list[float]:
        """Training loss, validation loss, validation and test score."""
        return [self._step.mean(), *self._task.results()]


class _Test:
    """Evaluation on one part of the data, its steps recorded."""

    def __init__(self, part: Evaluation, device: torch.device, memory: GraphMemory) -> None:
        self._part = part
        self._table = EpochTable(part.plan, device)
        self.run = Recorded(self._add, device, memory=memory)

    def start(self) -> list[int]:
        """Set the sums to 0; the lengths of the steps to come."""
        self._table.fill(self._part.plan)
        self._part.start()
        return self._part.plan.lengths

    def _add(self, length: int) -> None:
        index, weight, _ = self._table.take()
        self._part.add(length, index, weight)


def _factors(first: int, steps: int, total: int, recipe: TextRecipe) -> Tensor:
    """What learning rates are multiplied by: up along a line, down along half a cosine."""
    number = torch.arange(first, first + steps, dtype=torch.float64)
    warm = recipe.warmup * total
    up = (number + 1) / max(warm, 1)
    down = (1 + torch.cos(math.pi * (number - warm) / max(total - warm, 1))) / 2
    return torch.where(number < warm, up.clamp(max=1), down).float()
