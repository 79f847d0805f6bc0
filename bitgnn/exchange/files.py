"""The files of exported parameters: a manifest under a checksum, and the tensor file it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from bitgnn._checksummed import Migrations, migrated, read_folder, write_folder
from bitgnn._files import FileError

__all__ = ["DESCRIPTION_FILE", "read_files", "write_files"]

FORMAT = "bitgnn.parameters"
VERSION = 2
MIGRATIONS: Migrations = {}
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
    description = {"format": FORMAT, "version": VERSION, "network": network, "layers": layers}
    write_folder(folder, DESCRIPTION_FILE, PREFIX, description, tensors)


def read_files(folder: Path) -> tuple[str, list[dict[str, Any]], dict[str, Tensor]]:
    """The network's name, its layers and their tensors, as they were written.

    Raises:
        FileNotFoundError: there are no parameters in ``folder``.
        FileError: the files are truncated, altered or of an unknown version.
    """
    description, tensors = read_folder(folder, DESCRIPTION_FILE, "parameters", _checked)
    return description["network"], description["layers"], tensors


def _checked(description: dict[str, Any], file: Path) -> dict[str, Any]:
    """A description of the present version, every entry that is relied on checked."""
    if description.get("format") != FORMAT:
        raise FileError(f"{file}: does not describe bitgnn's parameters")
    description = migrated(description, "version", VERSION, MIGRATIONS, file)
    layers = description.get("layers")
    if (
        not isinstance(description.get("network"), str)
        or not isinstance(layers, list)
        or not all(
            isinstance(layer, dict) and isinstance(layer.get("name"), str) for layer in layers
        )
    ):
        raise FileError(f"{file}: damaged parameters, names no network or no layers")
    return description
