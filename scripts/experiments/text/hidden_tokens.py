"""Pretraining without labels: its text, and the task of telling hidden tokens from neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.data import TextData, TextSet, TokenData, TokenSet
from bitgnn.data.tokens import FIRST_ID, MASK_ID
from bitgnn.models.bert import BertClassifier
from bitgnn.nn.seeded_dropout import SeededDropout
from experiments.text.batches import Batches, TextTask, gather
from experiments.text.recipe import Pretraining
from experiments.training.task import EpochPlan, Evaluation

__all__ = [
    "HiddenTokenTask",
    "TokenTeller",
    "encoder_state",
    "hidden_places",
    "pretraining_text",
    "whole_sentences",
]


def whole_sentences(sentences: Iterable[str]) -> list[str]:
    """Sentences that are no part of another one, longest first.

    Most of SST-2's training sentences are phrases cut out of others: a tenth of them holds all of
    the text.

    Args:
        sentences: words between white space.
    """
    found = {" ".join(sentence.split()) for sentence in sentences} - {""}
    kept: list[str] = []
    holders: dict[str, list[int]] = {}  # numbers of the kept sentences with a word
    for sentence in sorted(found, key=lambda text: (-len(text), text)):
        words = set(sentence.split())
        rarest = min((holders.get(word, []) for word in words), key=len)
        if any(f" {sentence} " in f" {kept[number]} " for number in rarest):
            continue
        for word in words:
            holders.setdefault(word, []).append(len(kept))
        kept.append(sentence)
    return kept


def pretraining_text(tasks: Sequence[TextData]) -> TextData:
    """The sentences of tasks without their labels.

    Args:
        tasks: their training sentences are joined, those left out that are part of another; their
            validation and test sentences are joined as they are.

    Returns:
        A task of one class.

    Raises:
        ValueError: there are no tasks.
    """
    if not tasks:
        raise ValueError("pretraining_text: tasks must hold at least one task")
    train = whole_sentences(sentence for task in tasks for sentence in task.train.sentences)
    validation = [sentence for task in tasks for sentence in task.validation.sentences]
    test = [sentence for task in tasks for sentence in task.test.sentences]
    return TextData(
        "+".join(task.name for task in tasks),
        _unlabelled(train), _unlabelled(validation), _unlabelled(test), ("text",), "accuracy",
    )  # fmt: skip


def _unlabelled(sentences: Sequence[str]) -> TextSet:
    return TextSet(tuple(sentences), (0,) * len(sentences))


MASKED, REPLACED = 0.8, 0.1
"""Shares of the tokens to tell that are hidden, and that are another token; the rest stays."""
ENCODER = "encoder."
TEST_BATCH = 512
TEST_SEED = 0


class TokenTeller(nn.Module):
    """An encoder with BERT's head: a linear layer, ReLU, a norm, and the embeddings once more.

    Args:
        encoder: in full precision.

    Source: Devlin et al., BERT, 2019.
    """

    def __init__(self, encoder: BertClassifier) -> None:
        super().__init__()
        width = encoder.tokens.embedding_dim
        self.encoder = encoder
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(encoder.tokens.num_embeddings))
        self.hiding = Hiding()

    def forward(self, ids: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        """Scores ``[B, P, vocabulary]`` of the tokens at some places.

        Args:
            ids: ``[B, T]`` token numbers.
            mask: bool ``[B, T]``, true for tokens of the sentence.
            places: int64 ``[B, P]``.
        """
        states = self.encoder.with_states(ids, mask)[1].hidden[-1]
        index = places[:, :, None].expand(-1, -1, states.size(2))
        x = self.norm(functional.relu(self.dense(states.gather(1, index))))
        return functional.linear(x, self.encoder.tokens.weight, self.bias)


class Hiding(SeededDropout):
    """Drops tokens as dropout drops values, with random numbers from the same generator."""

    def draws(self, shape: torch.Size, device: torch.device) -> Tensor:
        """Uniform numbers in [0, 1)."""
        return torch.rand(shape, device=device, generator=self.generator)


def encoder_state(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a trained :class:`TokenTeller` leaves to the encoder of a form."""
    return {
        name.removeprefix(ENCODER): tensor
        for name, tensor in state.items()
        if name.startswith(ENCODER)
    }


def hidden_places(draws: Tensor, lengths: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Which tokens of sentences are to be told: those with the highest draws, never the ends.

    Args:
        draws: ``[B, T]`` in [0, 1).
        lengths: int64 ``[B]`` tokens, ends included.
        share: of the tokens between the ends, rounded up.

    Returns:
        int64 ``[B, P]`` places, and bool ``[B, P]`` which of them count: a short sentence has
        fewer than there is room for.
    """
    length = draws.size(1)
    place = torch.arange(length, device=draws.device)
    inside = (place > 0) & (place < lengths[:, None] - 1)
    room = max(1, math.ceil(share * (length - 2)))
    places = draws.masked_fill(~inside, -1.0).topk(room, dim=1).indices
    wanted = (share * (lengths - 2).clamp(min=0)).ceil()
    return places, torch.arange(room, device=draws.device) < wanted[:, None]


class HiddenTokenTask(TextTask):
    """A :class:`TokenTeller` with its text.

    Args:
        model: on its device.
        data: the sentences on the same device; labels are not looked at.
        recipe: share of the tokens, batch size.
    """

    def __init__(self, model: TokenTeller, data: TokenData, recipe: Pretraining) -> None:
        super().__init__(model, recipe, data.train.labels.device)
        self._data, self._share = data, recipe.share
        self._batches = Batches(data.train, min(recipe.batch_size, len(data.train)))
        self.evaluations = [
            _Told(model, part, recipe.share) for part in (data.validation, data.test)
        ]

    def plan(self, seed: int) -> EpochPlan:
        """The batches of an epoch."""
        return self._batches.epoch(seed)

    def loss(self, length: int, index: Tensor, weight: Tensor) -> Tensor:
        """Mean cross entropy of the tokens to tell.

        Of these 80 % are hidden, 10 % are another token and 10 % stay, as in BERT.

        Args:
            length: tokens of the longest sentence at most.
            index: int64 ``[B]`` numbers of the sentences.
            weight: ``[B]``, 0 for sentences that do not count.
        """
        train, draws = self._data.train, self.model.hiding.draws
        ids, mask, _ = gather(train, length, index)
        places, counts = hidden_places(
            draws(ids.shape, ids.device), train.lengths[index], self._share
        )
        wanted = ids.gather(1, places)
        fate = draws(places.shape, ids.device)
        known = self._data.vocabulary - FIRST_ID
        other = FIRST_ID + (draws(places.shape, ids.device) * known).to(ids.dtype)
        shown = torch.where(fate < MASKED, MASK_ID, wanted)
        shown = torch.where(fate >= 1 - REPLACED, other, shown)
        shown = torch.where(counts, shown, wanted)
        scores = self.model(ids.scatter(1, places, shown.to(ids.dtype)), mask, places)
        each = (counts * weight[:, None]).flatten()
        return (_losses(scores, wanted) * each).sum() / each.sum().clamp(min=1)

    def results(self) -> dict[str, float]:
        """Mean cross entropy of validation tokens, and shares told of validation and test."""
        validation, test = self.evaluations
        return {
            "validation_loss": validation.loss(),
            "validation_score": validation.share(),
            "test_score": test.share(),
        }


class _Told(Evaluation):
    """Tokens told and their cross entropies; always the same ones are hidden."""

    def __init__(self, model: TokenTeller, part: TokenSet, share: float) -> None:
        self._model, self._part = model, part
        generator = torch.Generator().manual_seed(TEST_SEED)
        draws = torch.rand(part.ids.shape, generator=generator)
        self._draws, self._share = draws.to(part.ids.device), share
        self.plan = Batches(part, min(TEST_BATCH, len(part))).epoch(None)
        self._sums = torch.zeros(3, device=part.ids.device, dtype=torch.float64)

    def start(self) -> None:
        self._sums.zero_()

    def add(self, length: int, index: Tensor, weight: Tensor) -> None:
        ids, mask, _ = gather(self._part, length, index)
        lengths = self._part.lengths[index]
        places, counts = hidden_places(self._draws[:, :length][index], lengths, self._share)
        wanted = ids.gather(1, places)
        shown = torch.where(counts, MASK_ID, wanted).to(ids.dtype)
        scores = self._model(ids.scatter(1, places, shown), mask, places)
        each = counts * weight[:, None]
        losses = _losses(scores, wanted)
        right = scores.argmax(-1) == wanted
        self._sums += torch.stack(
            [(losses * each.flatten()).sum(), (right * each).sum(), each.sum()]
        ).double()

    def loss(self) -> float:
        """Mean cross entropy of a hidden token."""
        return float(self._sums[0] / self._sums[2].clamp(min=1))

    def share(self) -> float:
        """Share of the hidden tokens that are told right."""
        return float(self._sums[1] / self._sums[2].clamp(min=1))


def _losses(scores: Tensor, wanted: Tensor) -> Tensor:
    """Cross entropies ``[B * P]`` of scores ``[B, P, vocabulary]`` and integers ``[B, P]``."""
    return functional.cross_entropy(scores.flatten(0, 1), wanted.flatten().long(), reduction="none")
