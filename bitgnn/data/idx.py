"""Reads idx files, the format of MNIST: arrays of bytes behind a short header."""

from __future__ import annotations

import gzip
import struct
import zlib
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bitgnn.data.files import DataError

__all__ = ["read_idx"]

GZIP_MAGIC = b"\x1f\x8b"
UNSIGNED_BYTE = 0x08


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
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
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
    array = np.frombuffer(content, np.uint8, offset=start).reshape(sizes)
    return torch.from_numpy(array.copy())
