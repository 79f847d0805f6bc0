"""Pretraining on text without labels: which tokens are hidden, and whole sentences."""

import math

import pytest
import torch
from text_training import VOCABULARY, encoder, make_tokens

from bitgnn.data import TokenData
from bitgnn.data.tokens import FIRST_ID, MASK_ID, TokenSet
from experiments.text.hidden_tokens import (
    HiddenTokenTask,
    TokenTeller,
    hidden_places,
)
from experiments.text.recipe import Pretraining
from experiments.text.unlabelled import whole_sentences


def pretraining(**changes):
    return Pretraining.model_validate(
        {"datasets": ["made"], "epochs": 3, "batch_size": 16, "learning_rate": 3e-3, **changes}
    )


def test_places_lie_between_the_ends():
    generator = torch.Generator().manual_seed(1)
    lengths = torch.tensor([2, 3, 4, 12, 22])
    draws = torch.rand(5, 22, generator=generator)
    places, counts = hidden_places(draws, lengths, 0.15)
    assert places.shape == counts.shape == (5, 3)
    # 15 % of 0, 1, 2, 10 and 20 tokens, rounded up.
    assert counts.sum(1).tolist() == [0, 1, 1, 2, 3]
    for row, length in enumerate(lengths.tolist()):
        chosen = places[row][counts[row]]
        assert ((chosen > 0) & (chosen < length - 1)).all()
        highest = draws[row, 1 : length - 1].sort(descending=True).values[: len(chosen)]
        assert torch.equal(draws[row, chosen], highest)


class Noted(torch.nn.Module):
    """Stands for a model: notes what it is shown and knows nothing."""

    def __init__(self, teller):
        super().__init__()
        self.hiding, self.shown = teller.hiding, []

    def forward(self, ids, mask, places):
        self.shown.append(ids)
        return torch.zeros(*places.shape, VOCABULARY, requires_grad=True)


def test_most_tokens_are_hidden_some_replaced():
    data = make_tokens()
    data = TokenData(**{**vars(data), "train": TokenSet(
        torch.full((150, 40), 9, dtype=torch.int32), torch.full((150,), 40), data.train.labels
    )})  # fmt: skip
    model = Noted(TokenTeller(encoder()))
    task = HiddenTokenTask(model, data, pretraining(share=0.5))
    torch.manual_seed(0)
    loss = task.loss(40, torch.arange(150), torch.ones(150))
    assert float(loss.detach()) == pytest.approx(math.log(VOCABULARY), rel=1e-5)
    (shown,) = model.shown
    assert shown.dtype == torch.int32
    assert (shown[:, [0, -1]] == 9).all()
    told = 150 * 19
    hidden = (shown == MASK_ID).sum() / told
    other = ((shown != MASK_ID) & (shown != 9)).sum() / told
    assert hidden == pytest.approx(0.8, abs=0.03)
    # One of the random tokens in 25 is the one that was there.
    assert other == pytest.approx(0.1 * 24 / 25, abs=0.03)
    assert shown[shown != MASK_ID].min() >= FIRST_ID


def test_whole_sentences_hold_every_phrase():
    sentences = ["a b c", "b c", "c  d", "x a b c d", "b", "bc", "d c", "x a b c d"]
    assert whole_sentences(sentences) == ["x a b c d", "d c", "bc"]
    assert whole_sentences(["", " "]) == []
