"""Raw files of data sets: found, and copied out of read-only folders."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bitgnn._files import atomic_file

DATA_VARIABLE = "BITGNN_DATA"
DEFAULT_ROOT = Path("data")
WRITE_BITS = 0o222
PROCESSED = "processed"
"""Folder of what PyG and ogb make of the raw files."""
CHUNK_BYTES = 1 << 20


class DataError(RuntimeError):
    """A data set is missing or unreadable; the message says what belongs where."""


def data_root(root: str | os.PathLike[str] | None) -> Path:
    """``root``, else the environment variable ``BITGNN_DATA``, else ``./data``."""
    return Path(root or os.environ.get(DATA_VARIABLE) or DEFAULT_ROOT)


def _cache_folder() -> Path:
    """Folder for copies of read-only files and for what is made from them."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bitgnn"


def _is_writable(folder: Path) -> bool:
    """True if files may be added to ``folder``, or to its nearest parent that exists.

    A folder without any write permission counts as read-only: root passes ``os.access`` everywhere.
    """
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK) and bool(stat.S_IMODE(folder.stat().st_mode) & WRITE_BITS)


@dataclass(frozen=True)
class RawFiles:
    """Raw files of one data set, by their paths in its folder, and the places they may be in.

    ``collection`` is the folder that gathers data sets of one kind; empty for none.
    """

    title: str
    collection: str
    folder: str
    files: tuple[str, ...]

    def find(self, root: Path) -> Path | None:
        """The parent of the data set's folder, below ``root``, where all raw files are.

        Looked for in ``root``, then in ``root/<collection>``; where ``root`` cannot be written
        also in the cache, where downloads go then.
        """
        places = [root, root / self.collection]
        if not _is_writable(root):
            places.append(_cache_folder() / self.collection)
        return next((place for place in places if not self.missing(place)), None)

    def missing(self, base: Path) -> list[str]:
        """Raw files that are not in the data set's folder below ``base``."""
        return [file for file in self.files if not (base / self.folder / file).is_file()]

    def download_base(self, root: Path) -> Path:
        """Folder for a download: below ``root``, or in the cache if that is read-only."""
        return (root if _is_writable(root) else _cache_folder()) / self.collection

    def writable(self, base: Path) -> Path:
        """``base`` if the data set's folder there can be written, else a copy in the cache.

        Each file is copied whole or not at all; copies of the right size are kept.
        """
        source = base / self.folder
        made = source / PROCESSED
        if _is_writable(source) and (not made.exists() or _is_writable(made)):
            return base
        cache = _cache_folder() / self.collection
        target = cache / self.folder
        pairs = [(source / file, target / file) for file in self.files]
        if all(b.is_file() and b.stat().st_size == a.stat().st_size for a, b in pairs):
            return cache
        # It was made from files that are now replaced.
        shutil.rmtree(target / PROCESSED, ignore_errors=True)
        try:
            for here, there in pairs:
                there.parent.mkdir(parents=True, exist_ok=True)
                with here.open("rb") as original, atomic_file(there) as copy:
                    shutil.copyfileobj(original, copy, CHUNK_BYTES)
        except OSError as error:
            raise DataError(
                f"{self.title}: {source} is read-only and cannot be copied to {target}: {error}"
            ) from error
        return cache

    def advice(self, root: Path) -> str:
        """A sentence that says which files belong where."""
        folder = self.download_base(root) / self.folder
        names = ", ".join(Path(file).name for file in self.files)
        inner = sorted({str(folder / Path(file).parent) for file in self.files})
        return (
            f"Put {names} into {' and '.join(inner)}, or name the folder above with --data-root "
            f"or {DATA_VARIABLE}"
        )


@contextlib.contextmanager
def without_leftovers(folder: Path) -> Iterator[None]:
    """Remove new empty folders if the block inside fails."""
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
