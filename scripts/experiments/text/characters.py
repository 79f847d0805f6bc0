"""The task of predicting the next character: windows of running text, perplexity."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.data import CharacterData
from bitgnn.models.decoder import Decoder
from experiments.text.batches import TextTask
from experiments.text.losses import logit_loss
from experiments.text.recipe import DecoderRecipe
from experiments.training.task import EpochPlan, Evaluation

__all__ = ["CharacterTask"]

CALIBRATION_WINDOWS = 16
TEST_BATCH = 64
MOST_PERPLEXITY = 1e9


class CharacterTask(TextTask):
    """A decoder with the text it is trained on.

    Args:
        model: the network on its device.
        data: the text on the same device.
        recipe: losses, batch size, steps of an epoch.
        teacher: network to distill from where the recipe has a distillation.
        only: names of the layers that are quantised; None for all.

    Raises:
        ValueError: a part of the text is shorter than a window.
    """

    def __init__(
        self,
        model: Decoder,
        data: CharacterData,
        recipe: DecoderRecipe,
        teacher: Decoder | None = None,
        only: Sequence[str] | None = None,
    ) -> None:
        super().__init__(model, recipe, data.train.device)
        self.only = only
        self._text, self._steps = data.train, recipe.steps
        self._teacher = None if teacher is None else teacher.eval()
        self._length = model.length
        for name in ("train", "validation", "test"):
            size = getattr(data, name).numel()
            if size <= model.length:
                raise ValueError(
                    f"CharacterTask: {name} must be longer than a window of {model.length} "
                    f"characters, got {size}"
                )
        self.evaluations = [_Sums(model, part) for part in (data.validation, data.test)]

    def plan(self, seed: int) -> EpochPlan:
        """Windows that begin anywhere."""
        generator = torch.Generator().manual_seed(seed)
        shape = self._steps, self._recipe.batch_size
        begins = torch.randint(self._text.numel() - self._length, shape, generator=generator)
        return EpochPlan([self._length] * shape[0], begins, torch.ones(shape))

    @torch.no_grad()
    def calibrate(self, model: nn.Module | None = None) -> None:
        """Send some windows through the model, or another."""
        model = (self.model if model is None else model).eval()
        begins = self.plan(0).index.flatten()[:CALIBRATION_WINDOWS].to(self.device)
        model(_windows(self._text, begins, self._length)[:, :-1])

    def loss(self, length: int, index: Tensor, weight: Tensor) -> Tensor:
        """Cross entropy with the next character, and the divergence from the teacher's answers.

        Args:
            length: characters of a window.
            index: int64 ``[B]`` where windows begin.
            weight: ``[B]``, not used: every window counts.
        """
        del weight
        window = _windows(self._text, index, length)
        ids, wanted = window[:, :-1], window[:, 1:]
        logits = self.model(ids).flatten(0, 1)
        loss = logits.new_zeros(())
        if self._recipe.labels:
            loss = self._recipe.labels * functional.cross_entropy(logits, wanted.flatten())
        distill = self._recipe.distill
        if self._teacher is not None and distill is not None and distill.logits:
            with torch.no_grad():
                taught = self._teacher(ids).flatten(0, 1)
            every = logits.new_ones(len(logits))
            loss = loss + distill.logits * logit_loss(logits, taught, every, distill.temperature)
        return loss

    def results(self) -> dict[str, float]:
        """Validation loss, and perplexities of validation and test text."""
        losses = [sums.mean() for sums in self.evaluations]
        validation, test = (min(math.exp(min(loss, 700.0)), MOST_PERPLEXITY) for loss in losses)
        return {
            "validation_loss": losses[0], "validation_score": validation, "test_score": test,
        }  # fmt: skip


class _Sums(Evaluation):
    """Cross entropies over a text, cut into windows one behind the other."""

    def __init__(self, model: Decoder, text: Tensor) -> None:
        self._model, self._text, self._length = model, text, model.length
        begins = torch.arange(0, text.numel() - model.length, model.length)
        size = min(TEST_BATCH, len(begins))
        filled = -(-len(begins) // size) * size
        weight = (torch.arange(filled) < len(begins)).float().view(-1, size)
        index = torch.zeros(filled, dtype=torch.int64)
        index[: len(begins)] = begins
        self._windows = len(begins)
        self.plan = EpochPlan([model.length] * len(weight), index.view(-1, size), weight)
        self.loss = torch.zeros((), device=text.device, dtype=torch.float64)

    def start(self) -> None:
        self.loss.zero_()

    def add(self, length: int, index: Tensor, weight: Tensor) -> None:
        window = _windows(self._text, index, length)
        logits = self._model(window[:, :-1])
        rows = functional.cross_entropy(logits.transpose(1, 2), window[:, 1:], reduction="none")
        self.loss += (rows.mean(1) * weight).sum()

    def mean(self) -> float:
        """Mean cross entropy of a character."""
        return float(self.loss) / self._windows


def _windows(text: Tensor, begins: Tensor, length: int) -> Tensor:
    """int64 ``[B, length + 1]``: windows and the character behind each."""
    places = begins[:, None] + torch.arange(length + 1, device=text.device)
    return text[places].long()
