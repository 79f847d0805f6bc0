"""The task of classifying sentences: losses of a batch, counts of what comes out."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.data import TokenData, TokenSet
from bitgnn.models.bert import BertClassifier, BertStates
from experiments.text.batches import Batches, TextTask, gather
from experiments.text.losses import attention_loss, logit_loss, state_loss
from experiments.text.recipe import Distillation, TextRecipe
from experiments.training.task import EpochPlan, Evaluation

__all__ = ["SentenceTask", "distillation_loss", "score"]

CALIBRATION_BATCHES = 4
TEST_BATCH = 512


class SentenceTask(TextTask):
    """A classifier with the sentences it is trained on.

    Args:
        model: the network on its device.
        data: the sentences on the same device.
        recipe: losses and batch size.
        teacher: network to distill from where the recipe has a distillation.
    """

    def __init__(
        self,
        model: BertClassifier,
        data: TokenData,
        recipe: TextRecipe,
        teacher: BertClassifier | None = None,
    ) -> None:
        super().__init__(model, recipe, data.train.labels.device)
        self._data = data
        self._teacher = None if teacher is None else teacher.eval()
        self._batches = Batches(data.train, min(recipe.batch_size, len(data.train)))
        self.evaluations = [
            _Counts(model, part, len(data.classes)) for part in (data.validation, data.test)
        ]

    def plan(self, seed: int) -> EpochPlan:
        """The batches of an epoch."""
        return self._batches.epoch(seed)

    @torch.no_grad()
    def calibrate(self, model: nn.Module | None = None) -> None:
        """Send the first batches of one order through the model, or another."""
        model = (self.model if model is None else model).eval()
        plan = self.plan(0)
        for length, index in list(zip(plan.lengths, plan.index, strict=True))[:CALIBRATION_BATCHES]:
            ids, mask, _ = gather(self._data.train, length, index.to(self.device))
            model(ids, mask)

    def loss(self, length: int, index: Tensor, weight: Tensor) -> Tensor:
        """Cross entropy with the labels and losses against the teacher, as the recipe weighs them.

        Args:
            length: tokens of the longest sentence at most.
            index: int64 ``[B]`` numbers of the sentences.
            weight: ``[B]``, 0 for sentences that do not count.
        """
        ids, mask, labels = gather(self._data.train, length, index)
        logits, states = self.model.with_states(ids, mask)
        loss = logits.new_zeros(())
        if self._recipe.labels:
            rows = functional.cross_entropy(logits, labels, reduction="none")
            loss = self._recipe.labels * (rows * weight).sum() / weight.sum()
        if self._teacher is not None and self._recipe.distill is not None:
            with torch.no_grad():
                taught = self._teacher.with_states(ids, mask)
            loss = loss + distillation_loss(
                (logits, states), taught, mask, weight, self._recipe.distill
            )
        return loss

    def results(self) -> dict[str, float]:
        """Mean cross entropy of validation sentences, their score, and that of test sentences."""
        validation, test = self.evaluations
        metric = self._data.metric
        return {
            "validation_loss": float(validation.loss) / len(self._data.validation),
            "validation_score": score(validation.counts, metric),
            "test_score": score(test.counts, metric),
        }


class _Counts(Evaluation):
    """Sentences by label and answer, and the sum of their cross entropies."""

    def __init__(self, model: BertClassifier, part: TokenSet, classes: int) -> None:
        self._model, self._part = model, part
        device = part.labels.device
        self.plan = Batches(part, min(TEST_BATCH, len(part))).epoch(None)
        self.counts = torch.zeros(classes, classes, device=device)
        self.loss = torch.zeros((), device=device)

    def start(self) -> None:
        self.counts.zero_()
        self.loss.zero_()

    def add(self, length: int, index: Tensor, weight: Tensor) -> None:
        ids, mask, labels = gather(self._part, length, index)
        logits = self._model(ids, mask)
        self.loss += (functional.cross_entropy(logits, labels, reduction="none") * weight).sum()
        cells = labels * self.counts.size(1) + logits.argmax(1)
        self.counts.view(-1).index_add_(0, cells, weight)


def distillation_loss(
    student: tuple[Tensor, BertStates],
    teacher: tuple[Tensor, BertStates],
    mask: Tensor,
    weight: Tensor,
    wanted: Distillation,
) -> Tensor:
    """Sum of the losses of a configuration.

    Args:
        student: logits and states.
        teacher: the same of the teacher.
        mask: bool ``[B, T]`` tokens of the sentences.
        weight: ``[B]``, 0 for sentences that do not count.
        wanted: weights of the losses.

    Returns:
        scalar.
    """
    (logits, states), (taught, lessons) = student, teacher
    tokens = mask * weight[:, None]
    loss = wanted.logits * logit_loss(logits, taught, weight, wanted.temperature)
    if wanted.hidden:
        loss = loss + wanted.hidden * state_loss(states.hidden, lessons.hidden, tokens)
    if wanted.feed_forward:
        found = state_loss(states.feed_forward, lessons.feed_forward, tokens)
        loss = loss + wanted.feed_forward * found
    if wanted.attention:
        found = attention_loss(states.attention, lessons.attention, tokens)
        loss = loss + wanted.attention * found
    return loss


def score(counts: Tensor, metric: str) -> float:
    """The score of a table of counts.

    Args:
        counts: ``[C, C]`` sentences by label (row) and answer (column).
        metric: ``"accuracy"``, the share of right answers; or ``"matthews"``, Gorodkin's
            correlation of labels and answers, 0 where one of them is always the same.

    Raises:
        ValueError: ``metric`` is neither of the two.
    """
    table = counts.double().cpu()
    total, right = float(table.sum()), float(table.diagonal().sum())
    if metric == "accuracy":
        return right / total if total else 0.0
    if metric != "matthews":
        raise ValueError(f"score: metric must be 'accuracy' or 'matthews', got {metric!r}")
    labels, answers = table.sum(1), table.sum(0)
    covariance = right * total - float(labels @ answers)
    spread = (total**2 - float(labels @ labels)) * (total**2 - float(answers @ answers))
    return covariance / spread**0.5 if spread > 0 else 0.0
