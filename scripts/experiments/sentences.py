"""Sentences of GLUE's tasks as token numbers, by a word-piece tokenizer trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

from bitgnn.data.files import DataError, data_root

__all__ = ["TokenSet", "load_sentences", "tokenize", "trained_tokenizer"]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
# SST-2 has no validation sentences apart from the ones that results are reported on.
HELD_OUT_EVERY = 34
Labelled = list[tuple[str, int]]
"""Sentences with their classes."""


class TokenSet(NamedTuple):
    """Labelled sentences as token numbers.

    Attributes:
        ids: int32 ``[N, T]``, 0 after the end of a sentence.
        lengths: int64 ``[N]`` tokens of each.
        labels: int64 ``[N]``.
    """

    ids: Tensor
    lengths: Tensor
    labels: Tensor

    def to(self, device: str) -> TokenSet:
        """All of it on a device."""
        return TokenSet(*(tensor.to(device) for tensor in self))


def load_sentences(
    root: str | None = None, task: str = "sst2"
) -> tuple[Labelled, Labelled, Labelled]:
    """Sentences to train on, to validate on, and the development set.

    SST-2's are validated on every 34th of its training sentences, CoLA's on a file of their own.
    """
    if task == "cola":
        folder = data_root(root) / "glue" / "CoLA"
        train, held, test = (_read_cola(folder / f"{n}.tsv") for n in ("train", "val", "dev"))
        return train, held, test
    folder = data_root(root) / "glue" / "SST-2"
    train, test = (_read(folder / f"{name}.tsv") for name in ("train", "dev"))
    rest = [row for number, row in enumerate(train) if number % HELD_OUT_EVERY]
    return rest, train[::HELD_OUT_EVERY], test


def _read(path: Path) -> Labelled:
    """Lines ``label<tab>sentence`` below a line of headings; quotation marks mean nothing."""
    try:
        _, *lines = path.read_bytes().decode().removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    found = []
    for number, line in enumerate(lines, 2):
        label, _, sentence = line.rstrip("\r").partition("\t")
        if label not in ("0", "1") or not sentence.strip():
            raise DataError(f"{path}: line {number} must be 0 or 1, a tab and a sentence")
        found.append((sentence.strip(), int(label)))
    return found


def _read_cola(path: Path) -> Labelled:
    """Lines ``source<tab>label<tab>mark<tab>sentence`` without headings."""
    try:
        lines = path.read_bytes().decode().removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    found = []
    for number, line in enumerate(lines, 1):
        _, label, _, sentence = [*line.rstrip("\r").split("\t", 3), "", "", ""][:4]
        if label not in ("0", "1") or not sentence.strip():
            raise DataError(f"{path}: line {number} must have a label 0 or 1 and a sentence")
        found.append((sentence.strip(), int(label)))
    return found


def trained_tokenizer(sentences: Labelled, vocabulary: int, length: int) -> Tokenizer:
    """A word-piece tokenizer of sentences, ``[CLS] … [SEP]`` around each, cut to a length."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=SPECIAL[1]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIAL), show_progress=False
    )
    tokenizer.train_from_iterator((sentence for sentence, _ in sentences), trainer)
    ends = [(token, tokenizer.token_to_id(token)) for token in SPECIAL[2:]]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length)
    return tokenizer


def tokenize(parts: Sequence[Labelled], tokenizer: Tokenizer) -> tuple[int, tuple[TokenSet, ...]]:
    """Number of tokens that there are, and parts of a task as token numbers."""
    return tokenizer.get_vocab_size(), tuple(_encoded(tokenizer, part) for part in parts)


def _encoded(tokenizer: Tokenizer, part: Labelled) -> TokenSet:
    found = tokenizer.encode_batch([sentence for sentence, _ in part])
    return TokenSet(
        torch.tensor([one.ids for one in found], dtype=torch.int32),
        torch.tensor([sum(one.attention_mask) for one in found]),
        torch.tensor([label for _, label in part]),
    )
