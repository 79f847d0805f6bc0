"""Logs and checkpoints of a running training, at a small share of its time."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitgnn._files import write_atomically
from bitgnn.distillation.session import Fit


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


CHECKPOINT_SHARE = 0.05
"""Share of a training's time that checkpoints may take."""


class Keeper:
    """Checkpoint and log of a training, which goes on from the checkpoint where there is one.

    They are written as often as takes at most 5 % of the time: after every epoch, unless epochs are
    shorter than 20 times what writing takes (a few milliseconds for small graphs).

    Args:
        session: the training.
        base: path of the files without their endings; None writes nothing.

    Raises:
        CheckpointError: the checkpoint is damaged, or of something else.
        OSError: the log cannot be written.
    """

    def __init__(self, session: Fit, base: Path | None) -> None:
        self._session, self._pause = session, 0.0
        self._checkpoint, self._log = None, None
        if base is not None:
            self._checkpoint, self._log = base.with_name(f"{base.name}.checkpoint"), RunLog(base)
            session.resume(self._checkpoint)
            self._log.restart(session.rows())
        self._logged = session.epoch
        self._last = time.perf_counter()

    def epoch_done(self) -> None:
        """Keep the epoch just finished if it is time.

        Raises:
            OSError: the checkpoint or the log cannot be written.
        """
        if time.perf_counter() - self._last >= self._pause:
            self.keep()
            self._pause = (time.perf_counter() - self._last) / CHECKPOINT_SHARE

    def keep(self) -> None:
        """Write the checkpoint, and the epochs that the log lacks.

        Raises:
            OSError: one of them cannot be written.
        """
        if self._checkpoint is None or self._log is None:
            return
        self._last = self._session.settle(time.perf_counter())
        self._session.save(self._checkpoint)
        self._log.append(self._session.rows(self._logged))
        self._logged = self._session.epoch
