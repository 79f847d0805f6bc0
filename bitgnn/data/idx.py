"""Reads idx files, the format of MNIST: arrays of bytes behind a short header."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bitgnn.data.errors import DataError

__all__ = ["decompressed", "read_idx"]

GZIP_MAGIC = b"\x1f\x8b"
UNSIGNED_BYTE = 0x08
IDX_BYTES = 1 << 32
"""Most bytes of an idx file once it is decompressed."""


def decompressed(content: bytes, limit: int) -> bytes:
    """Contents of a gzip file, checked against its checksum.

    Raises:
        ValueError: it is larger than ``limit`` bytes.
        OSError, EOFError, zlib.error: it is cut off or altered.
    """
    with gzip.open(io.BytesIO(content)) as file:
        found = file.read(limit + 1)
        if len(found) > limit:
            raise ValueError(f"it decompresses to more than {limit} bytes")
        return found


def read_idx(path: Path, dimensions: int) -> Tensor:
    """The array of an idx file of unsigned bytes, compressed by gzip or plain.

    The header is two zero bytes, the type of the elements, the number of dimensions, and each size
    as a big-endian 32-bit number (LeCun's page of MNIST).

    Args:
        path: the file.
        dimensions: how many it must have.

    Returns:
        uint8 tensor of the sizes in the header.

    Raises:
        DataError: the file cannot be read, is cut off or altered, or holds something else.
    """
    try:
        content = path.read_bytes()
        if content[:2] == GZIP_MAGIC:
            content = decompressed(content, IDX_BYTES)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"{path}: cannot be read, the file is cut off or altered ({error})"
        ) from error
    start = 4 + 4 * dimensions
    expected = bytes((0, 0, UNSIGNED_BYTE, dimensions))
    if len(content) < start or content[:4] != expected:
        raise DataError(
            f"{path}: must be an idx file of unsigned bytes with {dimensions} dimensions, which "
            f"begins with {expected.hex(' ')}, got {content[:4].hex(' ') or 'nothing'}"
        )
    sizes = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != prod(sizes):
        raise DataError(
            f"{path}: cut off or altered: the header says {list(sizes)}, which is {prod(sizes)} "
            f"bytes, got {len(content) - start}"
        )
    try:
        array = np.frombuffer(content, np.uint8, offset=start).reshape(sizes)
    except ValueError as error:  # nothing in it, and sizes beyond all bounds
        raise DataError(f"{path}: sizes {list(sizes)} cannot be used ({error})") from None
    return torch.from_numpy(array.copy())
