"""Downloads that show progress, go on where they stopped, and appear whole or not at all."""

from __future__ import annotations

import fcntl
import re
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 60.0
PART = ".part"
# Content that the part belongs to, as the server named it.
VALIDATOR = ".part.etag"
PARTIAL_CONTENT = 206
RANGE_NOT_SATISFIABLE = 416


def download_file(url: str, folder: str, log: bool = True, filename: str | None = None) -> str:
    """Fetch ``url`` into ``folder`` and return the file's path.

    It takes the place of PyG's ``download_url``, whose file is there, but not whole, after an
    interruption. Here bytes gather in ``<file>.part``; a later call goes on behind them if the
    server still holds the same content (by its ``ETag``). The file appears when its length is
    the one the server announced.

    Args:
        url: what to fetch.
        folder: where to; made if needed.
        log: draw a progress bar on standard error.
        filename: name of the file; None takes the last part of ``url``.

    Returns:
        The path; a file that is there is not fetched again.

    Raises:
        OSError: no connection, a server's refusal, a web page instead of a file, fewer or more
            bytes than announced, or another process fetching the same file.
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
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=title is None) as progress:
        task = progress.add_task(title or "", total=total, completed=start)
        while chunk := response.read(CHUNK_BYTES):
            file.write(chunk)
            progress.advance(task, len(chunk))
