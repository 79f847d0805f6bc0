"""Raw files of data sets: found, downloaded with resumption, copied out of read-only folders."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from bitgnn._files import atomic_file

DATA_VARIABLE = "BITGNN_DATA"
DEFAULT_ROOT = Path("data")
WRITE_BITS = 0o222
PROCESSED = "processed"
"""Folder of what PyG and ogb make of the raw files."""
CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 60.0
PART = ".part"
# Content that the part belongs to, as the server named it.
VALIDATOR = ".part.etag"
PARTIAL_CONTENT = 206
RANGE_NOT_SATISFIABLE = 416


class DataError(RuntimeError):
    """A data set is missing or unreadable; the message says what belongs where."""


def data_root(root: str | os.PathLike[str] | None) -> Path:
    """``root``, else the environment variable ``BITGNN_DATA``, else ``./data``."""
    return Path(root or os.environ.get(DATA_VARIABLE) or DEFAULT_ROOT)


def _cache_folder() -> Path:
    """Where copies of read-only files and what is made from them are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bitgnn"


def _is_writable(folder: Path) -> bool:
    """Whether files may be added to ``folder``, or to its nearest parent that exists.

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
        """Where a download belongs: below ``root``, or in the cache if that is read-only."""
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
        """Which files to put where."""
        folder = self.download_base(root) / self.folder
        names = ", ".join(Path(file).name for file in self.files)
        inner = sorted({str(folder / Path(file).parent) for file in self.files})
        return (
            f"Put {names} into {' and '.join(inner)}, or name the folder above with --data-root "
            f"or {DATA_VARIABLE}"
        )


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


def download_file(url: str, folder: str, log: bool = True, filename: str | None = None) -> str:
    """Fetch ``url`` into ``folder``, made if needed, and return the file's path.

    It takes the place of PyG's ``download_url``, whose file is there, but not whole, after an
    interruption. Here bytes gather in ``<file>.part``; a later call goes on behind them if the
    server still holds the same content (by its ``ETag``). The file appears when its length is
    the one the server announced; one that is there is not fetched again.
    """
    if filename is None:
        filename = url.rpartition("/")[2].partition("?")[0] or "download"
    path = Path(folder) / filename
    if path.exists():
        return str(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + PART)
    validator = path.with_name(path.name + VALIDATOR)
    with part.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OSError(f"another process is downloading {path}") from error
        try:
            _fetch(url, file, validator, path.name if log else None)
        except BaseException:
            if file.tell() == 0:
                part.unlink()
            raise
        file.flush()
        part.replace(path)
    validator.unlink(missing_ok=True)
    return str(path)


def _fetch(url: str, file: Any, validator: Path, title: str | None) -> None:
    """Complete ``file``, which may hold the beginning of the content already."""
    known = validator.read_text() if validator.is_file() else ""
    start = file.tell() if known else 0
    headers = {"User-Agent": "bitgnn"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": known}
    request = urllib.request.Request(url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except HTTPError as error:
        if error.code == RANGE_NOT_SATISFIABLE and _total(error.headers) == start:
            return
        raise
    with response:
        if response.headers.get_content_type() == "text/html":
            raise OSError(f"{url} gives a web page instead of a file")
        if response.status != PARTIAL_CONTENT:
            start = 0
        file.truncate(start)  # what is written goes to the end
        tag = response.headers.get("ETag", "")
        # A weak tag promises the same meaning, not the same bytes.
        if tag and not tag.startswith("W/"):
            validator.write_text(tag)
        else:
            validator.unlink(missing_ok=True)
        total = _total(response.headers)
        _copy_body(response, file, start, total, title)
    if total is not None and file.tell() != total:
        raise OSError(
            f"{url} announced {total} bytes and ended after {file.tell()}; try again to go on"
        )


def _total(headers: Any) -> int | None:
    """Length of the whole content, if the server says."""
    found = re.search(r"/(\d+)$", headers.get("Content-Range", ""))
    length = found.group(1) if found else headers.get("Content-Length")
    return None if length is None else int(length)


def _copy_body(response: Any, file: Any, start: int, total: int | None, title: str | None) -> None:
    """Append a response to ``file``, with a progress bar on standard error if it has a title."""
    from rich import progress
    from rich.console import Console

    columns = ("{task.description}", progress.BarColumn(), progress.DownloadColumn())
    with progress.Progress(
        *columns,
        progress.TransferSpeedColumn(),
        console=Console(stderr=True),
        disable=title is None,
    ) as bar:
        task = bar.add_task(title or "", total=total, completed=start)
        while chunk := response.read(CHUNK_BYTES):
            file.write(chunk)
            bar.advance(task, len(chunk))
