"""Files read within bounds, files written whole or not at all, and locks on folders."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

TEMPORARY = ".tmp"
TEXT_BYTES = 1 << 26
"""Largest text file that is read."""


class FileError(ValueError):
    """A file of bitgnn is damaged, altered or of another kind; the message names the file."""


class FolderInUseError(RuntimeError):
    """Another process writes to the output folder; the message names it."""


def write_atomically(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file at once; see :func:`atomic_file`.

    Args:
        path: the file; its folder exists.
        data: its contents.
        durable: wait until the data are on the disk.

    Raises:
        OSError: it cannot be written; it names a file, and what was there before stays.
    """
    with atomic_file(path, durable=durable) as file:
        file.write(data)


@contextlib.contextmanager
def atomic_file(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Write a file so that it appears whole or not at all, also when the process is killed.

    Its permissions are what the umask leaves.

    Args:
        path: the file; its folder exists.
        durable: wait until the data are on the disk, so that a loss of power does no harm either.

    Yields:
        The file to write to.

    Raises:
        OSError: it cannot be written; it names a file, and what was there before stays.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(path)  # a full disk is told by the handle, which has no name
        raise
    if durable:
        _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where its file system can."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def temporaries(folder: Path, name: str) -> list[Path]:
    """Half-written files that killed calls of :func:`atomic_file` left behind.

    Args:
        folder: to look in.
        name: pattern of the files' final names.
    """
    return sorted(folder.glob(f".{name}.{'[0-9a-f]' * 8}{TEMPORARY}"))


def read_regular(path: Path, *, size: int | None = None, limit: int = TEXT_BYTES) -> bytes:
    """Contents of a regular file: no device, pipe or symbolic link is opened.

    Args:
        path: the file.
        size: bytes that it must have; None for any number up to ``limit``.
        limit: most bytes of a file of unknown size.

    Raises:
        FileError: it is no regular file, or of another size.
        OSError: there is no such file, or it cannot be read.
    """
    if path.is_symlink():
        raise FileError(f"{path}: must be a regular file, is a symbolic link")
    # A pipe without a writer would be waited for.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{path}: must be a regular file")
        if size is not None and status.st_size != size:
            raise FileError(f"{path}: has {status.st_size} bytes, {size} were written")
        if size is None and status.st_size > limit:
            raise FileError(f"{path}: has {status.st_size} bytes, at most {limit} are read")
        with open(handle, "rb", closefd=False) as file:
            return file.read(status.st_size)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Keep other processes that lock a folder out of it; a killed process lets go.

    Args:
        folder: exists. Nothing is written into it.
        wait: for a process that holds it, instead of raising.

    Yields:
        Whether the file system knows locks.

    Raises:
        FolderInUseError: another process holds it.
        OSError: the folder cannot be read.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            is_locked = True
        except BlockingIOError:
            raise FolderInUseError(
                f"{folder}: another process writes to this folder; choose another one or wait"
            ) from None
        except OSError:
            is_locked = False
        yield is_locked
    finally:
        os.close(handle)
