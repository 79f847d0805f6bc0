"""Tasks on text: how they are trained, and batches of sentences of similar length."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bitgnn.data import TokenSet
from bitgnn.nn.multistage import scale_parameters
from experiments.text.recipe import TextRecipe
from experiments.training.task import EpochPlan, Task

__all__ = ["Batches", "TextTask", "gather"]

SHORTEST = 16
LEAST_BATCHES = 4
"""A length with fewer sentences than so many batches hold is not worth its own recording."""


class TextTask(Task):
    """What all tasks on text share: schedule, groups of parameters, stages.

    Args:
        model: the network on its device.
        recipe: learning rates and stages.
        device: where model and data are.
    """

    columns = (
        "level", "train_loss", "validation_loss", "validation_score", "test_score",
        "learning_rate", "seconds",
    )  # fmt: skip
    most_gradient = 1.0

    def __init__(self, model: nn.Module, recipe: TextRecipe, device: torch.device) -> None:
        self.model, self.device, self._recipe = model, device, recipe
        self.levels = None if recipe.precision == "fp32" else recipe.levels
        self.alignment, self.patience = recipe.alignment, recipe.patience

    def groups(self) -> list[tuple[list[nn.Parameter], float, float]]:
        """Weights, which decay; biases and norms; scales of activations."""
        recipe = self._recipe
        scales = {id(p) for p in scale_parameters(self.model)}
        parts: tuple[list[nn.Parameter], ...] = ([], [], [])
        for p in self.model.parameters():
            parts[2 if id(p) in scales else int(p.dim() <= 1)].append(p)
        rates = (recipe.learning_rate, recipe.learning_rate, recipe.scale_learning_rate)
        return list(zip(parts, rates, (recipe.weight_decay, 0.0, 0.0), strict=True))

    def rates(self, epoch: int, epochs: int, steps: int) -> Tensor:
        """Up along a line, down along half a cosine."""
        number = torch.arange(epoch * steps, (epoch + 1) * steps, dtype=torch.float64)
        total = epochs * steps
        warm = self._recipe.warmup * total
        up = (number + 1) / max(warm, 1)
        down = (1 + torch.cos(math.pi * (number - warm) / max(total - warm, 1))) / 2
        return torch.where(number < warm, up.clamp(max=1), down).float()


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
