"""Tensors under checksums: folders with a manifest, and single files that carry their own.

A folder holds a manifest, one JSON file, and the tensor file that it names. Saving writes a tensor
file of a new name and then replaces the manifest, so that readers find the old generation or the
new one. Tensor files that no manifest names are left by killed processes; the next save removes
them, and no other file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import mmap
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from bitgnn._files import (
    FileError,
    locked,
    map_regular,
    read_regular,
    temporaries,
    write_atomically,
)
from bitgnn._plain import parse_json

Migrations = Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]
"""For each older format the function that turns a description into one of the next format."""

SEAL = "sha256"
HEADER = "bitgnn"
NO_SEAL = b"0" * 64
"""Stands in the place of a file's checksum while that is computed."""
HEADER_BYTES = 1 << 24
"""Longest header of a tensor file, which describes each of its tensors."""
FILE_BYTES = 1 << 38
"""Largest single file of tensors."""
_MAPPED: dict[str, np.dtype[Any]] = {
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
}
OWN_FILE = re.compile(r"[a-z]+-[0-9a-f]{16}\.safetensors")
"""Names of tensor files that :func:`write_folder` gives."""
SAVES = 1000
"""Generations that may replace one another while a folder is being read."""


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Add a checksum to JSON values, replacing an older one; their order stays."""
    plain = json.loads(json.dumps({key: v for key, v in values.items() if key != SEAL}))
    return {**plain, SEAL: _digest(plain)}


def check_seal(values: Any, source: object) -> dict[str, Any]:
    """Return the values that :func:`sealed` was given, or raise if the checksum does not fit."""
    if not isinstance(values, dict) or SEAL not in values:
        raise FileError(f"{source}: has no checksum: damaged, or of an older version")
    plain = {key: value for key, value in values.items() if key != SEAL}
    if values[SEAL] != _digest(plain):
        raise FileError(f"{source}: was altered, its checksum does not fit")
    return plain


def migrated(
    description: dict[str, Any], key: str, version: int, migrations: Migrations, source: object
) -> dict[str, Any]:
    """A description in the present format; its own is the number under ``key``."""
    found = description.get(key)
    if (
        type(found) is not int
        or found > version
        or any(old not in migrations for old in range(found, version))
    ):
        raise FileError(
            f"{source}: {key} {found!r} is unknown, this version of bitgnn reads {version}"
        )
    for old in range(found, version):
        description = {**migrations[old](description), key: old + 1}
    return description


def write_folder(
    folder: Path,
    name: str,
    prefix: str,
    description: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
) -> None:
    """Write a new generation: the folder holds the old one or the new one at every moment.

    The manifest has the given name, tensor files begin with the prefix. Processes that write into
    one folder wait for one another. Where it cannot be written, the old generation stays.
    """
    data = safetensors.torch.save({key: t.cpu().contiguous() for key, t in tensors.items()})
    file = f"{prefix}-{secrets.token_hex(8)}.safetensors"
    entry = {"file": file, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    text = json.dumps(sealed({**description, "tensors": entry}), indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, wait=True) as is_locked:
        if is_locked:  # so that what is half-written was left by a killed process
            for leftover in temporaries(folder, f"{prefix}-*.safetensors"):
                leftover.unlink(missing_ok=True)
            for leftover in temporaries(folder, name):
                _remove_named(folder, leftover, prefix)
                leftover.unlink(missing_ok=True)
        old = _named(folder / name, prefix)
        write_atomically(folder / file, data, durable=True)
        try:
            write_atomically(folder / name, text.encode(), durable=True)
        except BaseException:
            if _named(folder / name, prefix) != file:
                (folder / file).unlink(missing_ok=True)
            raise
        # Those of processes killed between the two files, or between these lines, too.
        found = folder.glob(f"{prefix}-*.safetensors") if is_locked else []
        gone = {path.name for path in found if OWN_FILE.fullmatch(path.name)} | {old}
        for other in gone - {file, None}:
            (folder / str(other)).unlink(missing_ok=True)


def read_folder(
    folder: Path, name: str, what: str, checked: Callable[[dict[str, Any], Path], dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Description and tensors of one generation, also while another process writes the next.

    Descriptions are checked before tensors are made. Raises ``FileNotFoundError`` where there is no
    manifest, ``FileError`` for manifests and tensors that are damaged, altered, or no regular files
    of the folder.
    """
    manifest, seen = folder / name, b""
    for _ in range(SAVES):
        try:
            text = read_regular(manifest)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(f"{folder}: no {what} here ({name} is missing)") from None
        except OSError as error:
            raise FileError(f"{manifest}: cannot be read ({error.strerror})") from None
        found = check_seal(parse_json(text, manifest), manifest)
        entry = _entry(found.get("tensors"), manifest)
        file = folder / entry["file"]
        try:
            data = read_regular(file, size=entry["bytes"])
        except FileNotFoundError:
            if text == seen:
                break
            seen = text  # a newer generation may have taken its place
            continue
        except OSError as error:
            raise FileError(f"{file}: cannot be read ({error.strerror})") from None
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise FileError(f"{file}: was altered, its checksum does not fit")
        found = checked(found, manifest)
        return found, _tensors(data, file)
    raise FileError(f"{manifest}: names {entry['file']}, which is missing")


def sealed_tensors(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> bytes:
    """A safetensors file that holds values of JSON, and a checksum over itself."""
    flat = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {HEADER: _canonical(values), SEAL: NO_SEAL.decode()}
    data = bytearray(safetensors.torch.save(flat, metadata=metadata))
    place = _seal_place(data)
    assert place is not None, "it has just been written"
    data[place] = hashlib.sha256(data).hexdigest().encode()
    return bytes(data)


def seal_of(data: bytes) -> str:
    """The checksum in a file of :func:`sealed_tensors`."""
    place = _seal_place(data)
    assert place is not None, "sealed_tensors made it"
    return data[place].decode()


def read_sealed(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and values of a file of :func:`sealed_tensors`; any other one is a ``FileError``."""
    data = bytearray(read_regular(path, limit=FILE_BYTES))
    place = _seal_place(data)
    digest = b""
    if place is not None:
        digest, data[place] = bytes(data[place]), NO_SEAL
    if hashlib.sha256(data).hexdigest().encode() != digest:
        raise FileError(f"{path}: is damaged, or of an older version: its checksum does not fit")
    header = parse_json(bytes(data[8 : 8 + _header_length(data)]), path)
    values = parse_json(header["__metadata__"][HEADER].encode(), path)
    return _tensors(bytes(data), path), values


def map_sealed(path: Path) -> tuple[dict[str, Tensor], dict[str, Any], str]:
    """Tensors, values and checksum of a file of :func:`sealed_tensors`, mapped and not read.

    Everything is read once for the checksum. Tensors are int64, int32 or float32; writes to them
    do not reach the file. Any other file is a ``FileError``.
    """
    data = map_regular(path)
    place = _seal_place(data)
    if place is None:
        raise FileError(f"{path}: is damaged, or of another kind: it has no checksum")
    digest = hashlib.sha256()
    with memoryview(data) as held:
        for part in (held[: place.start], NO_SEAL, held[place.stop :]):
            digest.update(part)
    if digest.hexdigest().encode() != data[place]:
        raise FileError(f"{path}: is damaged or was altered, its checksum does not fit")
    begin = 8 + _header_length(data)
    header = parse_json(data[8:begin], path)
    try:
        values = parse_json(header.pop("__metadata__")[HEADER].encode(), path)
        tensors = {name: _mapped(data, begin, **entry) for name, entry in header.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path}: its header does not fit ({error})") from None
    return tensors, values, digest.hexdigest()


def _mapped(data: Any, begin: int, dtype: str, shape: list[int], data_offsets: list[int]) -> Tensor:
    """A tensor in a mapped file whose tensors start at ``begin``."""
    kind = _MAPPED[dtype]
    first, end = data_offsets
    count = math.prod(shape)
    if min(first, *shape, 0) < 0 or end - first != count * kind.itemsize:
        raise ValueError(f"shape {shape} in bytes {data_offsets}")
    array = np.frombuffer(data, kind, count, begin + first)
    if not array.flags.aligned:
        raise ValueError(f"byte {first} is no place for {dtype}")
    return torch.from_numpy(array).view(shape)


def _canonical(values: Mapping[str, Any]) -> str:
    """Canonical JSON for checksums: without spaces, keys in their order."""
    return json.dumps(values, separators=(",", ":"), allow_nan=False)


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(values).encode()).hexdigest()


def _header_length(data: bytes | bytearray | mmap.mmap) -> int:
    return int.from_bytes(data[:8], "little")


def _seal_place(data: bytes | bytearray | mmap.mmap) -> slice | None:
    """Position of the checksum in a tensor file, or None without one."""
    # Quotes inside of names are escaped, so that no name looks like this.
    key = f'"{SEAL}":"'.encode()
    found = data.find(key, 8, 8 + min(_header_length(data), HEADER_BYTES))
    if found < 0:
        return None
    begin = found + len(key)
    return slice(begin, begin + len(NO_SEAL))


def _entry(entry: Any, manifest: Path) -> dict[str, Any]:
    """The manifest's entry for its tensor file, which lies in the same folder."""
    known = {"file": str, "bytes": int, "sha256": str}
    if not isinstance(entry, dict) or any(
        not isinstance(entry.get(key), kind) for key, kind in known.items()
    ):
        raise FileError(f"{manifest}: names no tensor file")
    if re.fullmatch(r"[\w-]{1,200}\.safetensors", entry["file"]) is None:
        raise FileError(f"{manifest}: {entry['file'][:80]!r} is not the name of a tensor file")
    return entry


def _tensors(data: bytes, path: Path) -> dict[str, Tensor]:
    if _header_length(data) > HEADER_BYTES:
        raise FileError(f"{path}: its header has {_header_length(data)} bytes")
    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:  # safetensors, torch and a table of types take part
        raise FileError(f"{path}: is not a file of safetensors ({error})") from None
    for name, tensor in tensors.items():
        # Compilers assume that a bool is 0 or 1.
        if tensor.dtype == torch.bool and bool((tensor.view(torch.uint8) > 1).any()):
            raise FileError(f"{path}: {name!r} holds bools that are neither 0 nor 1")
    return tensors


def _named(manifest: Path, prefix: str) -> str | None:
    """The tensor file that a manifest names, if one of ours."""
    try:
        file = parse_json(read_regular(manifest), manifest)["tensors"]["file"]
        return file if re.fullmatch(rf"{prefix}-[0-9a-f]+\.safetensors", file) else None
    except (OSError, FileError, KeyError, TypeError):
        return None


def _remove_named(folder: Path, manifest: Path, prefix: str) -> None:
    """Remove the tensor file of a manifest that a killed process left behind."""
    file = _named(manifest, prefix)
    if file is not None:
        with contextlib.suppress(OSError):
            (folder / file).unlink()
