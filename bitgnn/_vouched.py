"""Tensor files that a JSON beside them vouches for: name, length and SHA-256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from bitgnn._files import write_atomically

__all__ = ["check_entry", "read_json", "read_tensors", "remove_stale", "write_tensors"]


def write_tensors(folder: Path, prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write ``prefix-<digest>.safetensors``; the entry of the JSON that vouches for it.

    Raises:
        OSError: the folder cannot be written.
    """
    data = safetensors.torch.save({name: t.cpu().contiguous() for name, t in tensors.items()})
    digest = hashlib.sha256(data).hexdigest()
    file = f"{prefix}-{digest[:12]}.safetensors"
    write_atomically(folder / file, data, durable=True)
    return {"file": file, "bytes": len(data), "sha256": digest}


def remove_stale(folder: Path, prefix: str, entry: Mapping[str, Any]) -> None:
    """Remove the tensor files of that prefix that no JSON vouches for any more."""
    for stale in folder.glob(f"{prefix}-*.safetensors"):
        if stale.name != entry["file"]:
            stale.unlink()


def read_json(folder: Path, name: str, what: str) -> Any:
    """What a JSON file of a folder holds.

    Args:
        folder: with the file.
        name: of the file.
        what: name of what the folder holds, for messages.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not whole JSON.
    """
    try:
        text = (folder / name).read_text()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{folder}: no {what} here ({name} is missing)") from None
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"{folder}: damaged {what}, {name} is not whole JSON") from None


def check_entry(folder: Path, json_file: str, entry: Any, what: str) -> None:
    """Check the form of an entry that was read.

    Args:
        folder: for messages, and so are the next and the last.
        json_file: name of the JSON.
        entry: what it holds.
        what: name of what the files hold.

    Raises:
        ValueError: it names no tensor file, or one outside of the folder.
    """
    if not isinstance(entry, dict) or not {"file", "bytes", "sha256"} <= entry.keys():
        raise ValueError(f"{folder}: damaged {what}, {json_file} names no tensor file")
    # A plain name only: a file must not reach outside its folder.
    if not isinstance(entry["file"], str) or Path(entry["file"]).name != entry["file"]:
        raise ValueError(f"{folder}: damaged {what}, {entry['file']!r} is no file name")


def read_tensors(folder: Path, entry: Mapping[str, Any], what: str) -> dict[str, Tensor]:
    """The tensors of the file that an entry vouches for.

    Raises:
        ValueError: the file is missing, truncated, altered or no safetensors file.
    """
    try:
        data = (folder / entry["file"]).read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{folder}: damaged {what}, {entry['file']} is missing") from None
    if len(data) != entry["bytes"]:
        raise ValueError(
            f"{folder}: damaged {what}, {entry['file']} has {len(data)} bytes, "
            f"{entry['bytes']} were written"
        )
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise ValueError(f"{folder}: damaged {what}, {entry['file']} was altered")
    try:
        return safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{folder}: damaged {what}, {error}") from error
