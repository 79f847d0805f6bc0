"""Checkpoints of frozen models: a manifest under a checksum, and the tensor file that it names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

from torch import nn

from bitgnn._checksummed import Migrations, migrated, read_folder, write_folder
from bitgnn._files import FileError
from bitgnn.inference.bounds import check_program
from bitgnn.inference.bwta.architecture import check_needs_no_model
from bitgnn.inference.descriptions import describe, read
from bitgnn.inference.frozen import each_once
from bitgnn.inference.frozen_hetero import FrozenHetero
from bitgnn.inference.frozen_model import FrozenModel, Kind
from bitgnn.inference.own_code.calls import FloatCall, describe_call, needs_model
from bitgnn.inference.own_code.known import Unsavable
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
KINDS = (*get_args(Kind), Recommender.kind)


def save(model: FrozenModel | Recommender, path: str | os.PathLike[str]) -> Path:
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
    if type(model) not in (FrozenModel, FrozenHetero, Recommender):
        raise TypeError(f"save: model must be a frozen model, got {type(model).__name__}")
    if isinstance(model, Recommender):
        tensors, description = model.state_dict(), model.description()
    elif model.is_program:
        _refuse_unsavable(model)
        tensors = model.state_dict()
        # A module that stands in several calls is read back as one for each.
        tensors.update({name: tensors[name].clone() for name in each_once(tensors)[1]})
        description = describe(model)
    else:
        for layer in model.layers.values() if model.kind == "layers" else ():
            _refuse_unsavable(layer.frozen)
        tensors, description = each_once(model.model.state_dict())[0], describe(model)
    folder = Path(path)
    description = {"format": FORMAT_VERSION, "kind": model.kind, **description}
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
        model: for code of the user's, which no file can hold (models of own classes that run their
            own forward, and programs that call modules of own classes): a model of that
            architecture, trained or not; it stays as it is. Models of ``transformers`` and of
            ``bitgnn.models`` need none.

    Returns:
        The :class:`FrozenModel` or :class:`~bitgnn.nn.Recommender`.

    Raises:
        FileNotFoundError: there is no checkpoint at ``path``.
        ImportError: the model needs ``transformers``, which is not installed.
        FileError: a file of the checkpoint is truncated, altered, too large, not a regular file of
            the folder, or of an unknown format; a ``ValueError`` that names the file.
        ValueError: the checkpoint needs ``model`` or has no use for it.
    """
    folder = Path(path)
    description, tensors = read_folder(folder, DESCRIPTION_FILE, "checkpoint", _checked)
    kind = description["kind"]
    needs = kind == "layers" or needs_model(description.get("calls"))
    if model is None and needs:
        raise ValueError(
            f"load: model must be a model of the architecture that {folder} was frozen from, whose "
            "own code no file holds, got None"
        )
    if model is not None and not needs and kind != "bwta":
        raise ValueError(f"load: model must be None, {folder} holds a whole model")
    if model is None and kind == "bwta":
        check_needs_no_model(description, folder)
    try:
        if kind == Recommender.kind:
            return Recommender.from_description(description, tensors)
        return read(description, tensors, model)
    except ImportError:
        raise
    except Exception as error:  # a description may ask for anything
        cause = "damaged checkpoint" + (" or another model" if model is not None else "")
        raise FileError(f"{folder / DESCRIPTION_FILE}: {cause}, {error}") from error


def _has_kind(value: Any, kind: str) -> bool:
    """True if a step of this kind is among plain values."""
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
