"""Output folders of commands: one process at a time, and never the results of two jobs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bitgnn._files import FileError, FolderInUseError, locked, write_atomically
from bitgnn._plain import read_json

__all__ = ["OutputError", "alone_in", "record_job"]


class OutputError(RuntimeError):
    """The output folder cannot be used; the message says why."""


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other trainings and tunings out of an output folder, which is made where it is missing.

    Raises:
        OutputError: another process is at work in the folder, or it cannot be made.
    """
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(folder))
        except FolderInUseError as error:
            raise OutputError(str(error)) from None
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written ({error.strerror})") from error
        yield


def record_job(file: Path, wanted: Mapping[str, Any], is_begun: bool) -> None:
    """Write down what a folder is for, or compare it with what is written there.

    Args:
        file: in the folder.
        wanted: plain values of JSON.
        is_begun: whether the folder holds work; otherwise it takes any job.

    Raises:
        OutputError: the folder holds work of another job, cannot be written, or the file cannot be
            read.
    """
    folder = file.parent
    if not (is_begun and file.exists()):
        try:
            write_atomically(file, json.dumps(wanted, indent=2).encode() + b"\n")
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written ({error.strerror})") from error
        return
    try:
        recorded = read_json(file)
    except (OSError, FileError) as error:
        raise OutputError(f"{file}: cannot be read ({error})") from error
    different = "; ".join(_differences(recorded, wanted))
    if different:
        raise OutputError(
            f"{folder}: holds another job's work ({different}); choose another --output or delete "
            "the folder"
        )


def _differences(recorded: Any, wanted: Any, key: str = "") -> Iterator[str]:
    """Keys in which two nested mappings differ, with both values."""
    if isinstance(recorded, Mapping) and isinstance(wanted, Mapping):
        for name in sorted({*recorded, *wanted}):
            inner = f"{key}.{name}" if key else name
            yield from _differences(recorded.get(name), wanted.get(name), inner)
    elif recorded != wanted:
        yield f"{key}: {recorded!r} there, {wanted!r} here"
