"""The files of exported parameters: a safetensors file and a JSON that describes and vouches."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from torch import Tensor

from bitgnn._files import write_atomically
from bitgnn._vouched import check_entry, read_json, read_tensors, remove_stale, write_tensors

__all__ = ["DESCRIPTION_FILE", "read_files", "write_files"]

FORMAT = "bitgnn.parameters"
VERSION = 1
DESCRIPTION_FILE = "parameters.json"
PREFIX = "parameters"


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
    entry = write_tensors(folder, PREFIX, tensors)
    description = {
        "format": FORMAT,
        "version": VERSION,
        "network": network,
        "layers": layers,
        "layers_sha256": _digest(layers),
        "tensors": entry,
    }
    text = json.dumps(description, indent=2, allow_nan=False) + "\n"
    write_atomically(folder / DESCRIPTION_FILE, text.encode(), durable=True)
    remove_stale(folder, PREFIX, entry)


def read_files(folder: Path) -> tuple[str, list[dict[str, Any]], dict[str, Tensor]]:
    """The network's name, its layers and their tensors, as they were written.

    Raises:
        FileNotFoundError: there are no parameters in ``folder``.
        ValueError: the files are truncated, altered or of an unknown version.
    """
    description = _description(folder)
    tensors = read_tensors(folder, description["tensors"], "parameters")
    return description["network"], description["layers"], tensors


def _description(folder: Path) -> dict[str, Any]:
    """The JSON, every entry that is relied on checked."""
    description = read_json(folder, DESCRIPTION_FILE, "parameters")
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{folder}: {DESCRIPTION_FILE} does not describe bitgnn's parameters")
    if description.get("version") != VERSION:
        raise ValueError(
            f"{folder}: version {description.get('version')!r} of the parameters is unknown, "
            f"this one reads {VERSION}"
        )
    layers, entry = description.get("layers"), description.get("tensors")
    if not isinstance(layers, list) or not all(
        isinstance(layer, dict) and isinstance(layer.get("name"), str) for layer in layers
    ):
        raise ValueError(f"{folder}: damaged parameters, {DESCRIPTION_FILE} names no layers")
    if description.get("layers_sha256") != _digest(layers):
        raise ValueError(
            f"{folder}: damaged parameters, the layers in {DESCRIPTION_FILE} were altered"
        )
    check_entry(folder, DESCRIPTION_FILE, entry, "parameters")
    return description


def _digest(layers: list[dict[str, Any]]) -> str:
    """SHA-256 of what the JSON says of the layers, whatever its spaces."""
    text = json.dumps(layers, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
