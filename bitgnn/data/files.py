"""Finds a data set's raw files, and copies them where PyG may write beside them."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

DATA_VARIABLE = "BITGNN_DATA"
DEFAULT_ROOT = Path("data")
WRITE_BITS = 0o222


class DataError(RuntimeError):
    """A data set is missing or unreadable; the message says what belongs where."""


def data_root(root: str | os.PathLike[str] | None) -> Path:
    """``root``, else the environment variable ``BITGNN_DATA``, else ``./data``."""
    return Path(root or os.environ.get(DATA_VARIABLE) or DEFAULT_ROOT)


def cache_folder() -> Path:
    """Where copies of read-only files and what is made from them are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bitgnn"


def is_writable(folder: Path) -> bool:
    """Whether files may be added to ``folder``, or to its nearest parent that exists.

    A folder without any write permission counts as read-only: root passes ``os.access`` everywhere.
    """
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK) and bool(stat.S_IMODE(folder.stat().st_mode) & WRITE_BITS)


class RawFiles:
    """Raw files of one data set and the places they may be in.

    Args:
        title: the data set's name in messages.
        collection: folder that gathers data sets of one kind; empty for none.
        folder: the data set's own folder.
        files: paths of the raw files inside that folder.
        made: folders inside it that are made from the raw files.
    """

    def __init__(
        self,
        title: str,
        collection: str,
        folder: str,
        files: Sequence[str],
        made: Sequence[str] = ("processed",),
    ) -> None:
        self.title = title
        self.collection = collection
        self.folder = folder
        self.files = tuple(files)
        self.made = tuple(made)

    def find(self, root: Path) -> Path | None:
        """The parent of the data set's folder, below ``root``, where all raw files are.

        Looked for in ``root``, then in ``root/<collection>``; where ``root`` cannot be written
        also in the cache, where downloads go then.
        """
        places = [root, root / self.collection]
        if not is_writable(root):
            places.append(cache_folder() / self.collection)
        return next((place for place in places if not self.missing(place)), None)

    def missing(self, base: Path) -> list[str]:
        """Raw files that are not in the data set's folder below ``base``."""
        return [file for file in self.files if not (base / self.folder / file).is_file()]

    def download_base(self, root: Path) -> Path:
        """Where a download belongs: below ``root``, or in the cache if that is read-only."""
        return (root if is_writable(root) else cache_folder()) / self.collection

    def writable(self, base: Path) -> Path:
        """``base`` if the data set's folder there can be written, else a copy in the cache.

        Raises:
            DataError: the copy cannot be made.
        """
        folder = base / self.folder
        inner = [folder, *(folder / name for name in self.made if (folder / name).exists())]
        return base if all(is_writable(path) for path in inner) else self._copy(base)

    def _copy(self, base: Path) -> Path:
        """Copy the raw files beside earlier copies, each whole or not at all."""
        cache = cache_folder() / self.collection
        source, target = base / self.folder, cache / self.folder
        if all(_same_size(source / file, target / file) for file in self.files):
            return cache
        # What was made from files that are now replaced.
        for name in self.made:
            shutil.rmtree(target / name, ignore_errors=True)
        try:
            for file in self.files:
                _copy_whole(source / file, target / file)
        except OSError as error:
            raise DataError(
                f"{self.title}: {source} is read-only and cannot be copied to {target}: {error}"
            ) from error
        return cache

    def advice(self, root: Path) -> str:
        """Which files to put where."""
        folder = self.download_base(root) / self.folder
        names = ", ".join(Path(file).name for file in self.files)
        inner = sorted({str(folder / Path(file).parent) for file in self.files})
        return (
            f"Put {names} into {' and '.join(inner)}, or name the folder above with --data-root "
            f"or {DATA_VARIABLE}"
        )


def _same_size(source: Path, target: Path) -> bool:
    return target.is_file() and target.stat().st_size == source.stat().st_size


def _copy_whole(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent)
    os.close(handle)
    try:
        shutil.copyfile(source, temporary)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
