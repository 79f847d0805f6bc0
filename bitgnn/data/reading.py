"""Reads one PyG data set from its raw files, downloading them where there are none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bitgnn.data.catalog import Source
from bitgnn.data.files import DataError, data_root

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["read_source", "without_leftovers"]


def read_source(source: Source, root: str | os.PathLike[str] | None) -> Data:
    """The graph of a data set, as PyG gives it.

    Args:
        source: which.
        root: data folder; None takes the environment variable ``BITGNN_DATA``, else ``./data``.

    Raises:
        DataError: the files are missing and cannot be downloaded, or cannot be read.
    """
    folder, files = data_root(root), source.files
    found = files.find(folder)
    if found is not None:
        base = files.writable(found)
        try:
            return source.open(str(base))[0]
        except Exception as error:
            place = base / source.folder
            made = " and ".join(str(place / name) for name in files.made if (place / name).exists())
            hint = f"; {made} may be left over from an interruption: delete it" if made else ""
            raise DataError(
                f"{source.name}: files in {place} cannot be read: {error}{hint}"
            ) from error
    base = files.download_base(folder)
    with without_leftovers(base / source.folder):
        try:
            return source.open(str(base))[0]
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise DataError(
                f"{source.name}: raw files not found under {folder} and not downloaded "
                f"({reason}). {files.advice(folder)}"
            ) from error


@contextlib.contextmanager
def without_leftovers(folder: Path) -> Iterator[None]:
    """When the block inside fails, remove folders that are empty and were not there before."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    try:
        yield
    except BaseException:
        inner = sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True)
        for path in [*inner, folder, *folder.parents]:
            if path == existing:
                break
            with contextlib.suppress(OSError):  # not empty, or never made
                path.rmdir()
        raise
