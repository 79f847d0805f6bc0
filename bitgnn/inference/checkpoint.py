"""Checkpoints of frozen models: a manifest under a checksum, and the tensor file that it names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import nn

from bitgnn._checksummed import Migrations, migrated, read_folder, write_folder
from bitgnn._files import FileError
from bitgnn.inference.bounds import check_program
from bitgnn.inference.bwta.architecture import check_needs_no_model
from bitgnn.inference.frozen import each_once
from bitgnn.inference.frozen_hetero import FrozenHetero
from bitgnn.inference.frozen_images import FrozenImages
from bitgnn.inference.frozen_layers import FrozenBWTA, FrozenLayers, OwnForward
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.steps.calls import FloatCall, describe_call, needs_model
from bitgnn.inference.steps.known import Unsavable
from bitgnn.nn.recommender import Recommender

FORMAT_VERSION = 5
MIGRATIONS: Migrations = {3: dict, 4: dict}
"""Format 5 holds calls of operators. Before, files held parts of networks (``"steps"``), which
become calls when they are read, see :func:`~bitgnn.inference.emit.of_steps`; format 4 has those on
8-bit rows in place of thermometers. Models of other formats have to be frozen again."""
GONE = "pack_levels"
"""Kind of steps of format 3 that made thermometer bits of dense features."""
DESCRIPTION_FILE = "model.json"
PREFIX = "weights"
KINDS: dict[str, Any] = {
    kind.kind: kind
    for kind in (
        FrozenModel,
        FrozenHetero,
        FrozenImages,
        FrozenBWTA,
        FrozenLayers,
        Recommender,
    )
}


def save(
    model: FrozenModel | FrozenBWTA | FrozenLayers | Recommender, path: str | os.PathLike[str]
) -> Path:
    """Write a frozen model into a folder, nothing pickled.

    ``weights-<number>.safetensors`` holds the tensors; ``model.json`` holds format version, kind,
    calls, graph options, report, name and SHA-256 of the tensor file, and a SHA-256 of all that.
    The JSON is renamed into place last, so the folder holds the old model or the new one, never a
    mixture, whether the process is killed, others save into the folder, or others load from it.
    Of the files in the folder only ``model.json`` and the tensor file it names are replaced.
    Parts in floats are held by name and plain values where their classes are those of torch or PyG;
    :func:`load` takes modules of the user's own from a model.

    Args:
        model: result of :func:`bitgnn.freeze`, or of :meth:`bitgnn.models.LightGCN.freeze`.
        path: folder to create or to overwrite the model in.

    Returns:
        The folder.

    Raises:
        TypeError: ``model`` is not a frozen model.
        ValueError: it calls functions that no file can hold, or its program is beyond the bounds of
            files; the message names them.
        OSError: the folder cannot be written.
    """
    if type(model) not in KINDS.values():
        raise TypeError(f"save: model must be a frozen model, got {type(model).__name__}")
    if isinstance(model, OwnForward):
        tensors = model.saved_tensors()
        for layer in model.layers.values() if isinstance(model, FrozenLayers) else ():
            _refuse_unsavable(layer.frozen)
    elif isinstance(model, Recommender):
        tensors = model.state_dict()
    else:
        _refuse_unsavable(model)
        tensors = model.state_dict()
        # A module that stands in several calls is read back as one for each.
        tensors.update({name: tensors[name].clone() for name in each_once(tensors)[1]})
    folder = Path(path)
    description = {"format": FORMAT_VERSION, "kind": model.kind, **model.description()}
    write_folder(folder, DESCRIPTION_FILE, PREFIX, description, tensors)
    return folder


def _refuse_unsavable(model: FrozenModel) -> None:
    """Refuse what a checkpoint cannot name, or what :func:`load` would refuse."""
    own = dict(model.named_buffers(recurse=False, remove_duplicate=False))
    try:
        check_program(model.program, own)
    except ValueError as error:
        raise ValueError(f"save: {error}") from None
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
            own classes, :class:`FrozenLayers`, and programs that call modules of own classes): a
            model of that architecture, trained or not; it stays as it is. Models of
            ``transformers`` and of ``bitgnn.models`` need none.

    Returns:
        The :class:`FrozenModel`, :class:`FrozenImages`, :class:`FrozenBWTA`,
        :class:`FrozenLayers` or :class:`~bitgnn.nn.Recommender`.

    Raises:
        FileNotFoundError: there is no checkpoint at ``path``.
        ImportError: the model needs ``transformers``, which is not installed.
        FileError: a file of the checkpoint is truncated, altered, too large, not a regular file of
            the folder, or of an unknown format; a ``ValueError`` that names the file.
        ValueError: the checkpoint needs ``model`` or has no use for it.
    """
    folder = Path(path)
    description, tensors = read_folder(folder, DESCRIPTION_FILE, "checkpoint", _checked)
    kind = KINDS[description["kind"]]
    needs = kind is FrozenLayers or needs_model(description.get("calls"))
    if model is None and needs:
        raise ValueError(
            f"load: model must be a model of the architecture that {folder} was frozen from, whose "
            "own code no file holds, got None"
        )
    if model is not None and not needs and not issubclass(kind, OwnForward):
        raise ValueError(f"load: model must be None, {folder} holds a whole {kind.__name__}")
    if model is None and kind is FrozenBWTA:
        check_needs_no_model(description, folder)
    try:
        return kind.from_description(description, tensors, *(() if model is None else (model,)))
    except ImportError:
        raise
    except Exception as error:  # a description may ask for anything
        cause = "damaged checkpoint" + (" or another model" if model is not None else "")
        raise FileError(f"{folder / DESCRIPTION_FILE}: {cause}, {error}") from error


def _has_kind(value: Any, kind: str) -> bool:
    """Whether a step of this kind is among plain values."""
    if isinstance(value, list):
        return any(_has_kind(part, kind) for part in value)
    if not isinstance(value, dict):
        return False
    return value.get("kind") == kind or any(_has_kind(part, kind) for part in value.values())


def _checked(description: dict[str, Any], file: Path) -> dict[str, Any]:
    """A description in the present format; others and unknown kinds are refused."""
    description = migrated(description, "format", FORMAT_VERSION, MIGRATIONS, file)
    if _has_kind(description, GONE):
        raise FileError(
            f"{file}: step {GONE!r} makes thermometer bits of dense features, which this version "
            "of bitgnn does not know: it packs them as 8-bit rows; train the model with it and "
            "freeze it again"
        )
    kind = description.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise FileError(f"{file}: model kind {kind!r} is unknown, known are {sorted(KINDS)}")
    return description
