"""What a training on text needs to know of its task, and batches of sentences of similar length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from bitgnn.data import TokenSet

__all__ = ["Batches", "EpochPlan", "EpochTable", "Evaluation", "Task", "gather"]


class Evaluation(Protocol):
    """Sums up what the model answers on one part of the data."""

    @property
    def plan(self) -> EpochPlan:
        """The batches, the same every time."""

    def start(self) -> None:
        """Set all sums to 0."""

    def add(self, length: int, index: Tensor, weight: Tensor) -> None:
        """Evaluate a batch; sums stay on the device."""


class Task(Protocol):
    """A model with the data it is trained on."""

    @property
    def model(self) -> nn.Module:
        """What is trained, in place."""

    @property
    def only(self) -> Sequence[str] | None:
        """Names of the layers that are quantised; None for all that can be."""

    @property
    def device(self) -> torch.device:
        """Where model and data are."""

    def plan(self, seed: int) -> EpochPlan:
        """The batches of an epoch, of the same shape for every seed."""

    def calibrate(self, model: nn.Module | None = None) -> None:
        """Send some training data, always the same, through the model or a copy of it.

        The model is in evaluation mode then.
        """

    def loss(self, length: int, index: Tensor, weight: Tensor) -> Tensor:
        """The loss of a training batch."""

    def evaluations(self) -> Sequence[Evaluation]:
        """What is evaluated behind each epoch."""

    def results(self) -> tuple[float, float, float]:
        """Validation loss, validation score and test score, from the evaluations' sums."""


SHORTEST = 16
LEAST_BATCHES = 4
"""A length with fewer sentences than so many batches hold is not worth its own recording."""


@dataclass(frozen=True)
class EpochPlan:
    """The batches of an epoch, in their order.

    Attributes:
        lengths: tokens that the sentences of each step are padded to.
        index: int64 ``[S, B]`` numbers of the sentences of each step.
        weight: float32 ``[S, B]``, 0 for those that only fill up their batch.
    """

    lengths: list[int]
    index: Tensor
    weight: Tensor


class Batches:
    """Divides sentences into batches anew in each epoch.

    Lengths are powers of two from 16 up, the last one the longest sentence; every sentence comes
    once an epoch, and batches are filled up by sentences of weight 0.

    Args:
        part: the sentences.
        size: sentences of a batch B.

    Attributes:
        steps: batches of an epoch S.

    Raises:
        ValueError: there are no sentences.
    """

    def __init__(self, part: TokenSet, size: int) -> None:
        if not len(part):
            raise ValueError("Batches: part must hold sentences, got none")
        self.size = size
        self._groups = _groups(part.lengths.cpu(), size * LEAST_BATCHES)
        self.steps = sum(-(-len(numbers) // size) for _, numbers in self._groups)

    def epoch(self, seed: int | None) -> EpochPlan:
        """The batches of an epoch, on the CPU.

        Args:
            seed: of the order; None keeps the sentences' order within a length.
        """
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        lengths: list[int] = []
        indices, weights = [], []
        for length, numbers in self._groups:
            order = numbers
            if generator is not None:
                order = numbers[torch.randperm(len(numbers), generator=generator)]
            filled = -(-len(order) // self.size) * self.size
            indices.append(order.repeat(-(-filled // len(order)))[:filled].view(-1, self.size))
            weights.append((torch.arange(filled) < len(order)).float().view(-1, self.size))
            lengths += [length] * len(indices[-1])
        index, weight = torch.cat(indices), torch.cat(weights)
        if generator is not None:
            shuffled = torch.randperm(len(lengths), generator=generator)
            index, weight = index[shuffled], weight[shuffled]
            lengths = [lengths[number] for number in shuffled.tolist()]
        return EpochPlan(lengths, index, weight)


class EpochTable:
    """An epoch's batches on the device, where recorded steps take them one after the other.

    Args:
        plan: of the shape that all of them have.
        device: where.
    """

    def __init__(self, plan: EpochPlan, device: torch.device) -> None:
        shape = plan.index.shape
        self._index = torch.zeros(shape, dtype=torch.int64, device=device)
        self._weight = torch.zeros(shape, device=device)
        self._factor = torch.zeros(shape[0], device=device)
        self._position = torch.zeros(1, dtype=torch.int64, device=device)

    def fill(self, plan: EpochPlan, factors: Tensor | None = None) -> None:
        """Start an epoch.

        Args:
            plan: its batches.
            factors: float32 ``[S]`` on the CPU, what learning rates are multiplied by in each step.
        """
        pinned = self._index.is_cuda
        pairs = [(self._index, plan.index), (self._weight, plan.weight)]
        if factors is not None:
            pairs.append((self._factor, factors))
        for target, source in pairs:
            target.copy_(source.pin_memory() if pinned else source, non_blocking=pinned)
        self._position.zero_()

    def take(self) -> tuple[Tensor, Tensor, Tensor]:
        """Index ``[B]``, weight ``[B]`` and factor (0-d) of the next step."""
        rows = (t.index_select(0, self._position)[0] for t in (self._index, self._weight))
        index, weight = rows
        factor = self._factor.index_select(0, self._position)[0]
        self._position += 1
        return index, weight, factor


def _groups(lengths: Tensor, least: int) -> list[tuple[int, Tensor]]:
    """Lengths with the numbers of their sentences; too small groups join the next longer one."""
    longest = int(lengths.max())
    edges = [SHORTEST]
    while edges[-1] < longest:
        edges.append(2 * edges[-1])
    edges[-1] = min(edges[-1], longest)
    groups: list[tuple[int, Tensor]] = []
    begin = 0
    for number, edge in enumerate(edges):
        numbers = ((lengths > begin) & (lengths <= edge)).nonzero()[:, 0]
        is_last = number + 1 == len(edges)
        if not is_last and len(numbers) < least:
            continue  # they join the next: ``begin`` stays
        if is_last and groups and len(numbers) < least:
            # The longest ones are few: their neighbours come along.
            numbers = torch.cat([groups.pop()[1], numbers]).sort().values
        if len(numbers):
            groups.append((edge, numbers))
        begin = edge
    return groups


def gather(part: TokenSet, length: int, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens ``[B, length]``, their mask, and labels ``[B]`` of the sentences of a batch.

    Args:
        part: the sentences.
        length: tokens of a row, at least as many as the sentences have.
        index: int64 ``[B]``.
    """
    ids = part.ids[:, :length][index]
    places = torch.arange(length, device=ids.device)
    return ids, places < part.lengths[index, None], part.labels[index]
