"""Training of one network, stage by stage, as a generator that others can join."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn.nn.multistage import (
    EarlyStop,
    Stage,
    enter_level,
    initialize_scales,
    plan_stages,
    set_level,
)
from bitgnn.nn.seeded_dropout import SeededDropout
from bitgnn.train.checkpoint import Checkpoint
from bitgnn.train.keeping import Keeper, Keeping
from bitgnn.train.loop import TrainingError
from bitgnn.train.recipe import Strict
from bitgnn.train.session import Session
from experiments.training.recorded import GraphMemory, Pace, Recorded
from experiments.training.task import EpochTable, Evaluation, Task, make_optimizer

__all__ = ["TaskSession", "TrainStep", "Trained", "train"]

SEEDS_APART = 1000


@dataclass(frozen=True)
class Trained:
    """Result of one training.

    Attributes:
        state: parameters and buffers behind the last epoch, on the CPU.
        history: one row an epoch, with the task's columns.
        factors: by the level entered, what each scale was multiplied by at that transition.
    """

    state: dict[str, Tensor]
    history: list[dict[str, float]]
    factors: dict[str, dict[str, float]]


def train(
    task: Task,
    recipe: Strict,
    epochs: int,
    seed: int,
    *,
    keeping: Keeping | None = None,
    on_epochs: Callable[[int], None] = lambda count: None,
) -> Generator[None, None, Trained]:
    """Train a task's model; the last epoch's network is the result.

    The validation loss ends stages where the task has a patience; the test data choose nothing.
    A training that goes on from a checkpoint gives bit for bit what it would have given without
    the stop, on the CPU and wherever the device's operators are deterministic.

    Args:
        task: the model on its device, trained in place and left in evaluation mode, and its data.
        recipe: what a checkpoint must be of.
        epochs: of all stages together.
        seed: of dropout and of the order of the data.
        keeping: checkpoints and logs; None for neither.
        on_epochs: called with the number of epochs done since the last call.

    Yields:
        None, often, so that other trainings get their turn; see
        :func:`~experiments.training.recorded.side_by_side`.

    Raises:
        CheckpointError: the checkpoint does not fit.
        TrainingError: the loss is no longer finite.
        OSError: a checkpoint or log cannot be written.
    """
    session = TaskSession(task, recipe, epochs, seed)
    if keeping is not None and session.resume(keeping.checkpoint):
        on_epochs(epochs - session.epochs_left)
    keeper = Keeper(session, keeping)
    run = _Run(session)
    while session.current is not None:
        begin = time.perf_counter()
        rate = run.begin()
        level = 0 if task.levels is None else session.current.level
        yield from run.epoch()
        loss, results = run.step.mean(), task.results()
        if not loss < math.inf:
            raise TrainingError(f"the loss of epoch {session.epoch} is {loss}; lower learning_rate")
        seconds = time.perf_counter() - begin
        values = {"level": level, "train_loss": loss, "learning_rate": rate, "seconds": seconds}
        undone = session.epoch_done({**values, **results})
        keeper.epoch_done()
        on_epochs(1 + undone)
    keeper.finish()
    session.close()
    state = {name: t.detach().cpu().clone() for name, t in task.model.state_dict().items()}
    return Trained(state, session.rows(), session.factors)


class TaskSession(Session):
    """Everything of a training that changes from epoch to epoch.

    Args:
        task: what is trained.
        recipe: how.
        epochs: of all stages together.
        seed: of dropout and of the order of the data.

    Attributes:
        stages: of the schedule.
        stage: number of the one under way; as many as there are once all are done.
        stage_epoch: epochs finished in it.
        factors: by the level entered, what each scale was multiplied by at that transition.
    """

    def __init__(self, task: Task, recipe: Strict, epochs: int, seed: int) -> None:
        super().__init__(task.model, recipe, make_optimizer(task))
        self.task, self.seed = task, seed
        self.columns = task.columns  # type: ignore[misc]
        self.generator = torch.Generator(self.device).manual_seed(seed)
        for module in task.model.modules():
            if isinstance(module, SeededDropout):
                module.generator = self.generator
        self.stages = plan_stages(task.levels or (1,), epochs)
        self.factors: dict[str, dict[str, float]] = {}
        self._enter(0)

    def _enter(self, stage: int) -> None:
        self.stage, self.stage_epoch = stage, 0
        # The last stage takes all of its epochs.
        last = stage + 1 >= len(self.stages)
        self._stop = EarlyStop(None if last else self.task.patience)

    @property
    def epochs_left(self) -> int:
        """Epochs to come if no further stage ends early."""
        later = sum(stage.epochs for stage in self.stages[self.stage :])
        return later - self.stage_epoch

    @property
    def current(self) -> Stage | None:
        """The stage under way, None behind the last."""
        return self.stages[self.stage] if self.stage < len(self.stages) else None

    def epoch_done(self, values: dict[str, float]) -> int:
        """Take note of a finished epoch, and of the stage's end.

        Args:
            values: by column.

        Returns:
            Epochs that the stage leaves undone because its loss did not fall.
        """
        stage = self.stages[self.stage]
        self.finished([values[name] for name in self.columns])
        self.stage_epoch += 1
        stopped = self._stop.observe(values.get("validation_loss", 0.0))
        left = stage.epochs - self.stage_epoch
        if stopped or left == 0:
            self._enter(self.stage + 1)
        return left if stopped else 0

    def close(self) -> None:
        """Leave the model in evaluation mode, without random numbers of its own."""
        for module in self.model.eval().modules():
            if isinstance(module, SeededDropout):
                module.generator = None

    def _random(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, values = super()._random()
        return {**tensors, "dropout": self.generator.get_state()}, values

    def _set_random(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        super()._set_random(tensors, values)
        self.generator.set_state(tensors["dropout"])

    def _identity(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def _further_values(self) -> dict[str, Any]:
        return {"factors": self.factors}

    def _restore(self, found: Checkpoint) -> None:
        self.factors = found.values["factors"]
        rows = self.table().tolist()
        self.history = []
        self._enter(0)
        for row in rows:
            self.epoch_done(dict(zip(self.columns, row, strict=True)))


class TrainStep:
    """Forward, backward and update on the next batch of an epoch's table.

    Args:
        task: whose model is in training mode.
        optimizer: of :func:`~experiments.training.task.make_optimizer`.
        table: the batches.
    """

    def __init__(self, task: Task, optimizer: torch.optim.Optimizer, table: EpochTable) -> None:
        self._task, self._optimizer, self._table = task, optimizer, table
        self._parameters = list(task.model.parameters())
        self.sums = torch.zeros(2, device=task.device)

    def mean(self) -> float:
        """Mean loss of an example since the sums were zeroed."""
        loss, seen = self.sums.tolist()
        return float(loss) / max(float(seen), 1.0)

    def __call__(self, length: int) -> None:
        """Train on the next batch."""
        task = self._task
        index, weight, rates = self._table.take()
        for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
            group["lr"].copy_(rate)
        self._optimizer.zero_grad(set_to_none=True)
        loss = task.loss(length, index, weight)
        loss.backward()
        if task.most_gradient is not None:
            nn.utils.clip_grad_norm_(self._parameters, task.most_gradient)
        self._optimizer.step()
        with torch.no_grad():
            task.behind_step()
            seen = weight.sum()
            self.sums += torch.stack([seen * loss, seen])


class _Run:
    """Steps and tables of one training."""

    def __init__(self, session: TaskSession) -> None:
        task = session.task
        self._session, self._task = session, task
        self._entered: int | None = None
        self._table = EpochTable(task.device)
        self.step = TrainStep(task, session.optimizer, self._table)
        memory = GraphMemory()
        self._train = Recorded(self.step, task.device, session.generator, memory)
        self._tests = [_Test(part, task.device, memory) for part in task.evaluations]
        self._pace = Pace(task.device)
        self._lengths: list[int] = []

    def begin(self) -> float:
        """Put the next epoch's batches and learning rates on the device; its highest rate."""
        session, task = self._session, self._task
        stage = session.current
        assert stage is not None
        self._enter_stage()
        plan = task.plan(session.seed + SEEDS_APART * (session.epoch + 1))
        factors = task.rates(session.stage_epoch, stage.epochs, len(plan.lengths))
        highest = [group["highest"] for group in session.optimizer.param_groups]
        self._table.fill(plan, torch.stack([factors * rate for rate in highest], 1).float())
        self._lengths = plan.lengths
        self.step.sums.zero_()
        return float(factors.max()) * highest[0]

    def _enter_stage(self) -> None:
        """Give the model the level of the stage under way, if it has not got it yet."""
        session, task = self._session, self._task
        number, model = session.stage, task.model
        if task.levels is None or self._entered == number:
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
                model, level, task.calibrate, task.alignment, task.only
            )
            with torch.no_grad():  # momenta start anew, in place: recorded steps go on with them
                for state in session.optimizer.state.values():
                    for value in state.values():
                        value.zero_()
            for recorded in (self._train, *(test.run for test in self._tests)):
                recorded.forget()
        self._entered = number

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


class _Test:
    """Evaluation on one part of the data, its steps recorded."""

    def __init__(self, part: Evaluation, device: torch.device, memory: GraphMemory) -> None:
        self._part = part
        self._table = EpochTable(device)
        self.run = Recorded(self._add, device, memory=memory)

    def start(self) -> list[int]:
        """Set the sums to 0; the lengths of the steps to come."""
        self._table.fill(self._part.plan)
        self._part.start()
        return self._part.plan.lengths

    @torch.no_grad()
    def _add(self, length: int) -> None:
        index, weight, _ = self._table.take()
        self._part.add(length, index, weight)
