"""The files of exported parameters: a safetensors file and a JSON that describes and vouches."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from bitgnn._files import write_atomically

__all__ = ["DESCRIPTION_FILE", "read_files", "write_files"]

FORMAT = "bitgnn.parameters"
VERSION = 1
DESCRIPTION_FILE = "parameters.json"


def write_files(
    folder: Path, network: str, layers: list[dict[str, Any]], tensors: dict[str, Tensor]
) -> None:
    """Write both files, the JSON last, so that the folder holds the old network or the new one.

    Args:
        folder: made where it is missing.
        network: name of the network's class.
        layers: what the JSON says of each layer.
        tensors: by name ``layer.entry``.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = safetensors.torch.save({name: t.cpu().contiguous() for name, t in tensors.items()})
    digest = hashlib.sha256(data).hexdigest()
    file = f"parameters-{digest[:12]}.safetensors"
    description = {
        "format": FORMAT,
        "version": VERSION,
        "network": network,
        "layers": layers,
        "layers_sha256": _digest(layers),
        "tensors": {"file": file, "bytes": len(data), "sha256": digest},
    }
    write_atomically(folder / file, data, durable=True)
    text = json.dumps(description, indent=2, allow_nan=False) + "\n"
    write_atomically(folder / DESCRIPTION_FILE, text.encode(), durable=True)
    for stale in folder.glob("parameters-*.safetensors"):
        if stale.name != file:
            stale.unlink()


def read_files(folder: Path) -> tuple[str, list[dict[str, Any]], dict[str, Tensor]]:
    """The network's name, its layers and their tensors, as they were written.

    Raises:
        FileNotFoundError: there are no parameters in ``folder``.
        ValueError: the files are truncated, altered or of an unknown version.
    """
    description = _description(folder)
    entry = description["tensors"]
    try:
        data = (folder / entry["file"]).read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{folder}: damaged parameters, {entry['file']} is missing") from None
    if len(data) != entry["bytes"]:
        raise ValueError(
            f"{folder}: damaged parameters, {entry['file']} has {len(data)} bytes, "
            f"{entry['bytes']} were written"
        )
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise ValueError(f"{folder}: damaged parameters, {entry['file']} was altered")
    try:
        tensors = safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{folder}: damaged parameters, {error}") from error
    return description["network"], description["layers"], tensors


def _description(folder: Path) -> dict[str, Any]:
    """The JSON, every entry that is relied on checked."""
    file = folder / DESCRIPTION_FILE
    try:
        text = file.read_text()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{folder}: no parameters here ({file.name} is missing)") from None
    try:
        description = json.loads(text)
    except ValueError:
        raise ValueError(f"{folder}: damaged parameters, {file.name} is not whole JSON") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{folder}: {file.name} does not describe bitgnn's parameters")
    if description.get("version") != VERSION:
        raise ValueError(
            f"{folder}: version {description.get('version')!r} of the parameters is unknown, "
            f"this one reads {VERSION}"
        )
    layers, entry = description.get("layers"), description.get("tensors")
    if not isinstance(layers, list) or not all(
        isinstance(layer, dict) and isinstance(layer.get("name"), str) for layer in layers
    ):
        raise ValueError(f"{folder}: damaged parameters, {file.name} names no layers")
    if description.get("layers_sha256") != _digest(layers):
        raise ValueError(f"{folder}: damaged parameters, the layers in {file.name} were altered")
    if not isinstance(entry, dict) or not {"file", "bytes", "sha256"} <= entry.keys():
        raise ValueError(f"{folder}: damaged parameters, {file.name} names no tensor file")
    # A plain name only: parameters must not reach outside their folder.
    if not isinstance(entry["file"], str) or Path(entry["file"]).name != entry["file"]:
        raise ValueError(f"{folder}: damaged parameters, {entry['file']!r} is no file name")
    return description


def _digest(layers: list[dict[str, Any]]) -> str:
    """SHA-256 of what the JSON says of the layers, whatever its spaces."""
    text = json.dumps(layers, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
