"""Files read within bounds, files written whole or not at all, and folders of one process each."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import mmap
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


class OutputError(RuntimeError):
    """The output folder cannot be used; the message says why."""


class FolderInUseError(OutputError):
    """Another process writes to the output folder; the message names it."""


@contextlib.contextmanager
def atomic_file(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Write a file so that it appears whole or not at all, also when the process is killed.

    Its permissions are what the umask leaves. With ``durable`` the data are on the disk in the end,
    so that a loss of power does no harm either. An ``OSError`` names a file, and leaves there what
    was there before. What killed writers of the same file left behind is removed.
    """
    _remove_leftovers(path)
    is_ours = False
    while not is_ours:  # another writer may take it for a leftover before it is locked
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with contextlib.suppress(OSError):  # not every file system can
            fcntl.flock(handle, fcntl.LOCK_EX)
        is_ours = os.fstat(handle).st_nlink > 0
        if not is_ours:
            os.close(handle)
    try:
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
        handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(OSError):  # not every file system can
                os.fsync(handle)
        finally:
            os.close(handle)


def write_atomically(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file at once, as :func:`atomic_file` does."""
    with atomic_file(path, durable=durable) as file:
        file.write(data)


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of a file whose writers are gone: nobody holds their locks."""
    for leftover in temporaries(path.parent, glob.escape(path.name)):
        with contextlib.suppress(OSError):
            handle = os.open(leftover, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(leftover)
            finally:
                os.close(handle)


def temporaries(folder: Path, name: str) -> list[Path]:
    """Leftovers of killed :func:`atomic_file` calls whose final names match a pattern."""
    return sorted(folder.glob(f".{name}.{'[0-9a-f]' * 8}{TEMPORARY}"))


def read_regular(path: Path, *, size: int | None = None, limit: int = TEXT_BYTES) -> bytes:
    """Contents of a regular file: no device, pipe or symbolic link is opened.

    It must have ``size`` bytes, or ``limit`` at most where that is None. Raises ``FileError`` for
    what it is not, ``OSError`` where it cannot be read.
    """
    with _opened_regular(path) as (handle, held):
        if size is not None and held != size:
            raise FileError(f"{path}: has {held} bytes, {size} were written")
        if size is None and held > limit:
            raise FileError(f"{path}: has {held} bytes, at most {limit} are read")
        with open(handle, "rb", closefd=False) as file:
            return file.read(held)


def map_regular(path: Path) -> mmap.mmap:
    """Map a regular file, not empty, into memory; writes to the memory do not reach the file.

    Raises as :func:`read_regular` does.
    """
    with _opened_regular(path) as (handle, held):
        if held == 0:
            raise FileError(f"{path}: is empty")
        return mmap.mmap(handle, held, access=mmap.ACCESS_COPY)


@contextlib.contextmanager
def _opened_regular(path: Path) -> Iterator[tuple[int, int]]:
    """Handle and bytes of a regular file."""
    if path.is_symlink():
        raise FileError(f"{path}: must be a regular file, is a symbolic link")
    # A pipe without a writer would be waited for.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{path}: must be a regular file")
        yield handle, status.st_size
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Keep other processes that lock a folder out of it; a killed process lets go.

    Yields whether the file system knows locks. A process that holds the folder is waited for, or
    :class:`FolderInUseError` is raised. Nothing is written into it.
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


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make an output folder and keep other jobs out of it.

    Raises :class:`OutputError` where another one is at work, or the folder cannot be made.
    """
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(folder))
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written ({error.strerror})") from error
        yield
