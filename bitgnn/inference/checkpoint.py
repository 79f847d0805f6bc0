"""Checkpoints of frozen models: a safetensors file and a JSON that vouches for it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from torch import nn

from bitgnn._files import write_atomically
from bitgnn._vouched import check_entry, read_json, read_tensors, remove_stale, write_tensors
from bitgnn.inference.bwta import FrozenBWTA
from bitgnn.inference.bwta.architecture import check_needs_no_model
from bitgnn.inference.frozen_images import FrozenImages
from bitgnn.inference.frozen_layers import FrozenLayers
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.shared_tensors import each_once
from bitgnn.inference.steps.calls import FloatCall
from bitgnn.inference.steps.known_calls import Unsavable, describe_call

__all__ = ["load", "save"]

FORMAT_VERSION = 2
DESCRIPTION_FILE = "model.json"
PREFIX = "weights"
KINDS: dict[str, Any] = {
    kind.kind: kind for kind in (FrozenModel, FrozenImages, FrozenBWTA, FrozenLayers)
}

Frozen = FrozenModel | FrozenBWTA | FrozenLayers


def save(model: Frozen, path: str | os.PathLike[str]) -> Path:
    """Write a frozen model into a folder, nothing pickled.

    ``weights-<digest>.safetensors`` holds the tensors; ``model.json`` holds format version, kind,
    steps, graph options, report, and name and SHA-256 of the tensor file. The JSON is renamed into
    place last, so the folder holds the old model or the new one, never a mixture.

    Args:
        model: result of :func:`bitgnn.freeze`.
        path: folder to create or to overwrite the model in.

    Returns:
        The folder.

    Raises:
        TypeError: ``model`` is not a frozen model.
        ValueError: it calls modules or functions that no file can hold; the message names them.
        OSError: the folder cannot be written.
    """
    if type(model) not in KINDS.values():
        raise TypeError(f"save: model must be a frozen model, got {type(model).__name__}")
    if isinstance(model, FrozenBWTA):
        tensors, _ = model.saved_tensors()
    elif isinstance(model, FrozenLayers):
        tensors, _ = model.saved_tensors()
        for layer in model.layers.values():
            _refuse_calls(layer.frozen)
    else:
        _refuse_calls(model)
        tensors = model.state_dict()
        # A module that stands in several calls is read back as one for each.
        tensors.update({name: tensors[name].clone() for name in each_once(tensors)[1]})
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    entry = write_tensors(folder, PREFIX, tensors)
    description = {
        "format": FORMAT_VERSION,
        "kind": model.kind,
        **model.description(),
        "tensors": entry,
    }
    text = json.dumps(description, indent=2) + "\n"
    write_atomically(folder / DESCRIPTION_FILE, text.encode(), durable=True)
    remove_stale(folder, PREFIX, entry)
    return folder


def _refuse_calls(model: FrozenModel) -> None:
    """Refuse what a checkpoint cannot name."""
    refused: dict[str, str] = {}
    for call in () if model.calls is None else model.calls:
        assert isinstance(call, FloatCall)
        try:
            describe_call(call)
        except Unsavable as reason:
            refused[call.name] = str(reason)
    if refused:
        why = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise ValueError(
            f"save: {sorted(refused)} run code that a checkpoint cannot hold ({why}); "
            "move them out of the model or keep the trained model and freeze it anew"
        )


def load(path: str | os.PathLike[str], model: nn.Module | None = None) -> Any:
    """Read a frozen model written by :func:`save`, on the CPU.

    Args:
        path: the folder.
        model: for what runs the user's own forward, which no file can hold (frozen BWTA models of
            own classes, and :class:`FrozenLayers`): a model of that architecture, trained or not;
            it stays as it is. Models of ``transformers`` and of ``bitgnn.models`` need none.

    Returns:
        The :class:`FrozenModel`, :class:`FrozenImages`, :class:`FrozenBWTA` or
        :class:`FrozenLayers`.

    Raises:
        FileNotFoundError: there is no checkpoint at ``path``.
        ImportError: the model needs ``transformers``, which is not installed.
        ValueError: the checkpoint is truncated, altered, of an unknown format, or needs ``model``
            or has no use for it.
    """
    folder = Path(path)
    description = _read_description(folder)
    tensors = read_tensors(folder, description["tensors"], "checkpoint")
    kind = KINDS[description["kind"]]
    if model is None and kind is FrozenLayers:
        raise ValueError(
            f"load: model must be a model of the architecture that {folder} was frozen from, whose "
            "forward no file holds, got None"
        )
    if model is not None and kind not in (FrozenBWTA, FrozenLayers):
        raise ValueError(f"load: model must be None, {folder} holds a whole {kind.__name__}")
    if model is None and kind is FrozenBWTA:
        check_needs_no_model(description, folder)
    more = () if model is None else (model,)
    try:
        return kind.from_description(description, tensors, *more)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        cause = "damaged checkpoint" + (" or another model" if model is not None else "")
        raise ValueError(f"{folder}: {cause}, {error}") from error


def _read_description(folder: Path) -> dict[str, Any]:
    """The JSON with every entry :func:`load` relies on checked."""
    description = read_json(folder, DESCRIPTION_FILE, "checkpoint")
    if not isinstance(description, dict) or "format" not in description:
        raise ValueError(f"{folder}: {DESCRIPTION_FILE} is not a bitgnn checkpoint")
    if description["format"] != FORMAT_VERSION:
        cure = "freeze the trained model again" if description["format"] == 1 else "is unknown"
        raise ValueError(
            f"{folder}: checkpoint format {description['format']!r}: {cure}; "
            f"this version reads {FORMAT_VERSION}"
        )
    if description.get("kind") not in KINDS:
        raise ValueError(
            f"{folder}: model kind {description.get('kind')!r} is unknown, "
            f"known are {sorted(KINDS)}"
        )
    check_entry(folder, DESCRIPTION_FILE, description.get("tensors"), "checkpoint")
    return description
