"""Files that appear whole or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["write_atomically"]


def write_atomically(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file so that it appears whole or not at all, also when the process is killed.

    Args:
        path: the file; its folder exists.
        data: its contents.
        durable: wait until the data are on the disk, so that a loss of power does no harm either.

    Raises:
        OSError: it cannot be written; what was there before stays.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink(missing_ok=True)
        raise
