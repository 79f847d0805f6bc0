"""Labelled sentences of GLUE's SST-2 and CoLA, read from their tab-separated files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bitgnn.data.files import DATA_VARIABLE, DataError, data_root

Metric = Literal["accuracy", "matthews"]
PLACES = ("glue", "")
LABELS = {"0": 0, "1": 1}
SST2_HEADERS = (("label", "sentence"), ("label", "content"))
COLA_COLUMNS = 4
# SST-2 has no validation sentences apart from the ones that results are reported on.
HELD_OUT_EVERY = 34


@dataclass(frozen=True)
class TextSet:
    """Labelled sentences.

    Attributes:
        sentences: the texts.
        labels: class of each, from 0.
    """

    sentences: tuple[str, ...]
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.sentences)


@dataclass(frozen=True)
class TextData:
    """A task of classifying sentences.

    Attributes:
        name: its name.
        train: sentences to train on.
        validation: sentences to stop by.
        test: sentences that results are reported on (GLUE's development set: the labels of its
            test set are not public).
        classes: names of the classes.
        metric: what GLUE reports: ``"accuracy"`` or Matthews correlation, ``"matthews"``.
    """

    name: str
    train: TextSet
    validation: TextSet
    test: TextSet
    classes: tuple[str, ...]
    metric: Metric


def load_text(name: str, root: str | os.PathLike[str] | None = None) -> TextData:
    """Load a task by name; nothing is downloaded.

    ``"sst2"`` reads ``SST-2/train.tsv`` and ``dev.tsv``; every 34th training sentence is held out
    for validation. ``"cola"`` reads ``CoLA/train.tsv``, ``val.tsv`` and ``dev.tsv``; without
    ``val.tsv`` every 34th training sentence is held out too.

    Args:
        name: ``"sst2"`` or ``"cola"``.
        root: data folder; None takes the environment variable ``BITGNN_DATA``, else ``./data``.

    Raises:
        ValueError: the name is unknown.
        DataError: files are missing, or a line is not what it should be; the message names both.
    """
    if name not in _LOADERS:
        raise ValueError(f"load_text: name must be one of {list(_LOADERS)}, got {name!r}")
    return _LOADERS[name](data_root(root))


def _load_sst2(root: Path) -> TextData:
    folder = _folder(root, "SST-2", ("train.tsv", "dev.tsv"))
    train, validation = _hold_out(_read_sst2(folder / "train.tsv"))
    test = _read_sst2(folder / "dev.tsv")
    return TextData("sst2", train, validation, test, ("negative", "positive"), "accuracy")


def _load_cola(root: Path) -> TextData:
    folder = _folder(root, "CoLA", ("train.tsv", "dev.tsv"))
    train, test = _read_cola(folder / "train.tsv"), _read_cola(folder / "dev.tsv")
    held = folder / "val.tsv"
    if held.is_file():
        validation = _read_cola(held)
    else:
        train, validation = _hold_out(train)
    return TextData("cola", train, validation, test, ("unacceptable", "acceptable"), "matthews")


def _folder(root: Path, name: str, files: Sequence[str]) -> Path:
    for place in PLACES:
        folder = root / place / name
        if all((folder / file).is_file() for file in files):
            return folder
    wanted = root / PLACES[0] / name
    raise DataError(
        f"{name}: raw files not found under {root}. Put {' and '.join(files)} into {wanted}, or "
        f"name the folder above with --data-root or {DATA_VARIABLE}"
    )


def _hold_out(part: TextSet) -> tuple[TextSet, TextSet]:
    """What is left to train on, and every so manieth sentence."""

    def chosen(held: bool) -> TextSet:
        numbers = [i for i in range(len(part)) if (i % HELD_OUT_EVERY == 0) == held]
        return TextSet(
            tuple(part.sentences[i] for i in numbers), tuple(part.labels[i] for i in numbers)
        )

    return chosen(False), chosen(True)


def _lines(path: Path) -> list[str]:
    """Lines of a file; quotation marks mean nothing in it, and only newlines end a line."""
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    lines = [line.removesuffix("\r") for line in lines]
    return lines[:-1] if lines[-1] == "" else lines


def _read_sst2(path: Path) -> TextSet:
    """Lines ``label<tab>sentence`` below a line of headings."""
    lines = _lines(path)
    heading = tuple(lines[0].split("\t")) if lines else ()
    if heading not in SST2_HEADERS:
        raise DataError(f"{path}: line 1 must be 'label<tab>sentence', got {' '.join(heading)!r}")
    return _labelled(path, 2, [line.split("\t") for line in lines[1:]], 2, 0)


def _read_cola(path: Path) -> TextSet:
    """Lines ``source<tab>label<tab>author's mark<tab>sentence`` without headings."""
    return _labelled(path, 1, [line.split("\t") for line in _lines(path)], COLA_COLUMNS, 1)


def _labelled(
    path: Path, first: int, rows: Sequence[Sequence[str]], columns: int, label: int
) -> TextSet:
    """The sentences, in the last of the columns, with the labels of column ``label``."""
    for number, row in enumerate(rows, first):
        if len(row) != columns:
            raise DataError(f"{path}: line {number} must have {columns} columns, got {len(row)}")
        if row[label] not in LABELS:
            raise DataError(f"{path}: line {number}: label must be 0 or 1, got {row[label]!r}")
        if not row[-1].strip():
            raise DataError(f"{path}: line {number} has no sentence")
    if not rows:
        raise DataError(f"{path}: no sentences")
    return TextSet(
        tuple(row[-1].strip() for row in rows), tuple(LABELS[row[label]] for row in rows)
    )


_LOADERS: dict[str, Callable[[Path], TextData]] = {"sst2": _load_sst2, "cola": _load_cola}
