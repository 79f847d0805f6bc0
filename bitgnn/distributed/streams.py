"""Arrays of files read from front to back: .npy, members of .npz, gzipped tables of numbers."""

from __future__ import annotations

import gzip
import math
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bitgnn._files import FileError
from bitgnn.data.npz_graphs import DAMAGED, HEADERS, MEMBER

TABLE_BYTES = 1 << 22
"""Text of a table that is parsed at once."""


@dataclass(frozen=True)
class ArrayStream:
    """An array of real numbers in an ``.npy`` file or an ``.npz`` file's member, read in pieces."""

    path: Path
    member: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_fortran: bool
    offset: int

    @classmethod
    def of(cls, path: Path, member: str | None = None) -> ArrayStream:
        """Read the header of a file, or of a member of an archive.

        Raises ``FileError`` where it is no array of real numbers.
        """
        where = str(path) if member is None else f"{path}: {member}"
        with _named_errors(where), _opened(path, member) as file:
            version = np.lib.format.read_magic(file)
            if version not in HEADERS:
                raise ValueError(f"version {version} of the format is unknown")
            shape, is_fortran, dtype = HEADERS[version](file)
            if dtype.kind not in "iuf":
                raise ValueError(f"must hold real numbers, got {dtype}")
            return cls(path, member, shape, dtype, is_fortran, file.tell())

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}: {self.member}"

    def pieces(self, first: int, count: int, at_once: int) -> Iterator[NDArray[Any]]:
        """``count`` values from the ``first`` one on, in the file's order."""
        with _named_errors(str(self)), _opened(self.path, self.member) as file:
            file.seek(self.offset + first * self.dtype.itemsize)
            for begin in range(0, count, at_once):
                wanted = min(at_once, count - begin) * self.dtype.itemsize
                data = file.read(wanted)
                if len(data) != wanted:
                    raise ValueError(
                        f"is cut short, its header tells of {math.prod(self.shape)} values"
                    )
                yield np.frombuffer(data, self.dtype)

    def blocks(self, at_once: int) -> Iterator[NDArray[Any]]:
        """Rows ``[n, F]`` of a matrix."""
        rows, width = self.shape
        if self.is_fortran and min(self.shape) > 1:
            raise FileError(f"{self}: must be in C order, is in Fortran order")
        if width == 0:
            yield np.empty((rows, 0), self.dtype)
            return
        for piece in self.pieces(0, rows * width, at_once * width):
            yield piece.reshape(-1, width)


def table_blocks(path: Path, columns: int | None, dtype: Any) -> Iterator[NDArray[Any]]:
    """Rows ``[n, columns]`` of a gzipped table without a header; None takes the first row's."""
    rest, number = b"", 0
    with _named_errors(str(path)), gzip.open(path, "rb") as file:
        while chunk := file.read(TABLE_BYTES):
            text, newline, rest = (rest + chunk).rpartition(b"\n")
            if newline:
                block = _parsed(text, columns, dtype, number)
                columns, number = block.shape[1], number + len(block)
                yield block
        if rest:
            yield _parsed(rest, columns, dtype, number)


def _parsed(text: bytes, columns: int | None, dtype: Any, number: int) -> NDArray[Any]:
    rows = text.count(b"\n") + 1
    width = text.partition(b"\n")[0].count(b",") + 1 if columns is None else columns
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            values = np.fromstring(text.replace(b",", b" "), dtype, sep=" ")
        return values.reshape(rows, width)
    except (ValueError, DeprecationWarning):
        kind = np.dtype(dtype).name
        raise ValueError(
            f"must have {width} values of {kind} a row, rows {number} to {number + rows - 1} have "
            "others"
        ) from None


@contextmanager
def _opened(path: Path, member: str | None) -> Iterator[IO[bytes]]:
    if member is None:
        with open(path, "rb") as file:
            yield file
    else:
        with zipfile.ZipFile(path) as archive, archive.open(f"{member}{MEMBER}") as inner:
            yield inner


@contextmanager
def _named_errors(where: str) -> Iterator[None]:
    """Name the file in every error of reading it."""
    try:
        yield
    except FileNotFoundError:
        raise FileError(f"{where}: no such file") from None
    except (KeyError, *DAMAGED) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{where}: cannot be read ({error or type(error).__name__})") from error
