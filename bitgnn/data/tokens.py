"""Sentences as numbers: an own word-piece tokenizer, and padded token sets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bitgnn._checksummed import read_sealed, sealed_tensors
from bitgnn._files import FileError, write_atomically
from bitgnn.data.files import DataError
from bitgnn.data.glue import TextData, TextSet
from bitgnn.data.movable import Movable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PADDING, UNKNOWN, CLASS, SEPARATOR, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PADDING_ID = 0
FORMAT = 3
PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class TokenSet(Movable):
    """Labelled sentences as token numbers.

    Attributes:
        ids: int32 ``[N, T]``, 0 behind the end of a sentence.
        lengths: int64 ``[N]`` tokens of each.
        labels: int64 ``[N]``.
    """

    ids: Tensor
    lengths: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return self.labels.numel()


@dataclass(frozen=True)
class TokenData(Movable):
    """A task as token numbers.

    Attributes:
        name: of the task.
        train: to train on, and so on as in :class:`~bitgnn.data.TextData`.
        validation: to stop by.
        test: what results are reported on.
        vocabulary: number of tokens there are.
        classes: names of the classes.
        metric: ``"accuracy"`` or ``"matthews"``.
    """

    name: str
    train: TokenSet
    validation: TokenSet
    test: TokenSet
    vocabulary: int
    classes: tuple[str, ...]
    metric: str


def train_tokenizer(sentences: Iterable[str], vocabulary: int) -> Tokenizer:
    """Train a lower-case word-piece tokenizer as BERT has it, ``[CLS] … [SEP]`` around a sentence.

    Args:
        sentences: to train on.
        vocabulary: tokens at most; fewer where the sentences do not have so many pieces.

    Raises:
        DataError: the package ``tokenizers`` is not installed.
        ValueError: ``vocabulary`` has no room beside the special tokens.
    """
    if vocabulary <= len(SPECIAL):
        raise ValueError(
            f"train_tokenizer: vocabulary must be above {len(SPECIAL)}, got {vocabulary}"
        )
    try:
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    except ImportError as error:
        raise DataError(f"tokenizers is not installed ({error}): pip install 'bitgnn[text]'") from (
            error
        )
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIAL), show_progress=False
    )
    tokenizer.train_from_iterator(sentences, trainer)
    ends = [(token, tokenizer.token_to_id(token)) for token in (CLASS, SEPARATOR)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLASS} $A {SEPARATOR}", special_tokens=ends
    )
    return tokenizer


def encode_sentences(tokenizer: Tokenizer, part: TextSet, length: int) -> TokenSet:
    """Sentences as padded rows of token numbers; what is longer than ``length`` is cut.

    Args:
        tokenizer: of :func:`train_tokenizer`.
        part: the sentences.
        length: tokens of a row T, ends included.

    Raises:
        ValueError: ``length`` leaves no room for a token.
    """
    if length < 3:
        raise ValueError(f"encode_sentences: length must be at least 3, got {length}")
    tokenizer.enable_truncation(length)
    rows = [encoding.ids for encoding in tokenizer.encode_batch(list(part.sentences))]
    ids = torch.full((len(rows), length), PADDING_ID, dtype=torch.int32)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row)
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    return TokenSet(ids, lengths, torch.tensor(part.labels, dtype=torch.int64))


def tokenize(
    data: TextData,
    vocabulary: int,
    length: int,
    cache: Path | None = None,
    sentences: Sequence[str] | None = None,
) -> TokenData:
    """A task as token numbers, by a tokenizer trained on its training sentences or on others.

    Args:
        data: the task.
        vocabulary: tokens at most.
        length: tokens of a sentence at most, ends included.
        cache: safetensors file to keep the numbers in; it is used again only for the same
            sentences and sizes, and needs no ``tokenizers`` then.
        sentences: what the tokenizer is trained on; None for the training sentences.

    Raises:
        DataError: the package ``tokenizers`` is not installed.
        OSError: the cache cannot be written.
    """
    learnt = data.train.sentences if sentences is None else sentences
    digest = _digest(data, vocabulary, length, learnt)
    found = None if cache is None else _read_cache(cache, digest)
    if found is None:
        tokenizer = train_tokenizer(learnt, vocabulary)
        parts = {part: encode_sentences(tokenizer, getattr(data, part), length) for part in PARTS}
        size = tokenizer.get_vocab_size()
        if cache is not None:
            _write_cache(cache, digest, parts, size)
    else:
        parts, size = found
    return TokenData(
        data.name, parts["train"], parts["validation"], parts["test"], size, data.classes,
        data.metric,
    )  # fmt: skip


def _digest(data: TextData, vocabulary: int, length: int, sentences: Sequence[str]) -> str:
    parts = [[getattr(data, part).sentences, getattr(data, part).labels] for part in PARTS]
    text = json.dumps([FORMAT, vocabulary, length, parts, list(sentences)])
    return hashlib.sha256(text.encode()).hexdigest()


def _write_cache(path: Path, digest: str, parts: dict[str, TokenSet], size: int) -> None:
    tensors = {f"{part}.{key}": t for part in PARTS for key, t in vars(parts[part]).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, sealed_tensors(tensors, {"digest": digest, "vocabulary": size}))


def _read_cache(path: Path, digest: str) -> tuple[dict[str, TokenSet], int] | None:
    """What was kept; None where it is missing, damaged, or of other sentences."""
    try:
        tensors, values = read_sealed(path)
        if values["digest"] != digest:
            return None
        keys = ("ids", "lengths", "labels")
        parts = {part: TokenSet(*(tensors[f"{part}.{key}"] for key in keys)) for part in PARTS}
        return parts, int(values["vocabulary"])
    except (OSError, FileError, KeyError, TypeError):
        return None
