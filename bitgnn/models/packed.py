"""Ready-made frozen models: those of the package by name, others from a folder or a hub."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from bitgnn._files import FileError
from bitgnn._plain import read_json
from bitgnn.inference import load

CARD = "card.json"
ZOO = Path(__file__).with_name("zoo")
HUB_FILES = ("*.json", "*.safetensors")


def pretrained_names() -> list[str]:
    """Names that :func:`pretrained` takes, in alphabetical order."""
    return sorted(card.parent.name for card in ZOO.glob(f"*/{CARD}"))


def pretrained_folder(name: str) -> Path:
    """Folder of a model of the package: ``card.json``, the model, for texts ``tokenizer.json``.

    Raises:
        ValueError: there is no model of this name.
    """
    if name not in pretrained_names():
        raise ValueError(f"pretrained: name must be one of {pretrained_names()}, got {name!r}")
    return ZOO / name


def pretrained(name: str) -> Any:
    """A trained and frozen model of the package, on the CPU, ready to be called.

    Args:
        name: one of :func:`pretrained_names`; ``docs/guide/zoo.md`` has all of them with data,
            accuracy beside full precision, bytes and time.

    Returns:
        As :func:`bitgnn.load`. Models of texts need ``transformers``.

    Raises:
        ValueError: there is no model of this name.
        ImportError: the model needs ``transformers``, which is not installed.
    """
    return load(pretrained_folder(name))


def pretrained_card(name: str) -> dict[str, Any]:
    """Card of a model: data, licence, call, seeds, scores beside full precision, bytes, times.

    Args:
        name: one of :func:`pretrained_names`, or a folder with a ``card.json``.

    Returns:
        The values of the card; ``scores`` has a list by form (``fp32``, ``bits``), an entry a seed,
        and ``score`` is that of the model here.

    Raises:
        ValueError: there is no model of this name, and no folder.
        FileError: the card cannot be read.
    """
    folder = ZOO / name if name in pretrained_names() else Path(name)
    if not folder.is_dir():
        folder = pretrained_folder(name)
    file = folder / CARD
    try:
        card = read_json(file)
    except OSError as error:
        raise FileError(f"{file}: cannot be read ({error.strerror})") from None
    if not isinstance(card, dict):
        raise FileError(f"{file}: must be an object, got {json.dumps(card)[:40]}")
    return card


def from_pretrained(
    source: str | os.PathLike[str], model: nn.Module | None = None, revision: str | None = None
) -> Any:
    """A frozen model from a folder, from the package, or from the Hugging Face Hub.

    Args:
        source: folder as :func:`bitgnn.save` writes it; else one of :func:`pretrained_names`; else
            a repository ``owner/name`` of the Hub, whose JSON and safetensors files are fetched.
            Nothing in it is run or unpickled.
        model: as of :func:`bitgnn.load`.
        revision: branch, tag or commit of a repository of the Hub.

    Returns:
        As :func:`bitgnn.load`.

    Raises:
        FileNotFoundError: there is no such folder or name, and ``source`` is no ``owner/name``.
        ImportError: a repository of the Hub needs ``huggingface_hub``, which is not installed.
        FileError: see :func:`bitgnn.load`.
    """
    folder, name = Path(source), str(source)
    if folder.is_dir():
        return load(folder, model)
    if name in pretrained_names():
        return load(ZOO / name, model)
    if name.count("/") != 1 or not all(name.split("/")):
        raise FileNotFoundError(
            f"from_pretrained: source must be a folder, owner/name on the Hub or one of "
            f"{pretrained_names()}, got {name!r}"
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ImportError(
            f"from_pretrained: {name!r} is no folder; to fetch it from the Hub, "
            "pip install huggingface_hub"
        ) from None
    fetched = snapshot_download(name, revision=revision, allow_patterns=list(HUB_FILES))
    with TemporaryDirectory() as copied:  # the Hub's cache holds links, which load() refuses
        shutil.copytree(fetched, copied, dirs_exist_ok=True)
        return load(copied, model)
