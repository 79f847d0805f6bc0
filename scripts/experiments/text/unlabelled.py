"""Unlabelled text of labelled tasks: every sentence once, no phrase that is part of another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bitgnn.data import TextData, TextSet

__all__ = ["pretraining_text", "whole_sentences"]


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
