"""Logs of a run: one line an epoch as CSV and as JSONL."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitgnn._files import write_atomically

__all__ = ["RunLog"]


class RunLog:
    """Writes finished epochs to ``<name>.csv`` and ``<name>.jsonl``.

    Epochs are appended as checkpoints are written. A run that goes on starts both files anew from
    its history, so no epoch stands twice and no line is cut off.

    Args:
        base: path without ending.
    """

    def __init__(self, base: Path) -> None:
        self.csv = base.with_name(base.name + ".csv")
        self.jsonl = base.with_name(base.name + ".jsonl")

    def restart(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put ``rows``, the epochs finished so far, in place of what the files hold.

        Raises:
            OSError: they cannot be written.
        """
        write_atomically(self.csv, _csv(rows, header=True).encode())
        write_atomically(self.jsonl, _jsonl(rows).encode())

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add finished epochs.

        Raises:
            OSError: they cannot be written.
        """
        if not rows:
            return
        is_empty = not self.csv.exists() or self.csv.stat().st_size == 0
        with self.csv.open("a", encoding="utf-8") as file:
            file.write(_csv(rows, header=is_empty))
        with self.jsonl.open("a", encoding="utf-8") as file:
            file.write(_jsonl(rows))


def _csv(rows: Sequence[Mapping[str, Any]], *, header: bool) -> str:
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _jsonl(rows: Sequence[Mapping[str, Any]]) -> str:
    """One JSON object a line; JSON has no NaN, so it becomes null."""
    return "".join(
        json.dumps({name: value if math.isfinite(value) else None for name, value in row.items()})
        + "\n"
        for row in rows
    )
