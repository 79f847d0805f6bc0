"""Pretraining on text without labels: places of hidden tokens, and whole sentences."""

import torch

from experiments.text.hidden_tokens import hidden_places, whole_sentences


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


def test_whole_sentences_hold_every_phrase():
    sentences = ["a b c", "b c", "c  d", "x a b c d", "b", "bc", "d c", "x a b c d"]
    assert whole_sentences(sentences) == ["x a b c d", "d c", "bc"]
    assert whole_sentences(["", " "]) == []
