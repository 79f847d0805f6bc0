"""Logs and checkpoints of a running training, at a small share of its time."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


# Share of a training's time that checkpoints may take where no interval is set.
CHECKPOINT_SHARE = 0.05


@dataclass(frozen=True)
class Keeping:
    """What a training leaves on disk while it runs.

    Attributes:
        checkpoint: file to go on from after a stop of any kind.
        log: of every epoch; None for none.
        seconds: a checkpoint is written after the first epoch that ends so long after the last
            one was written; 0 writes one after every epoch. None writes as often as takes at
            most 5 % of the time: after every epoch, unless epochs are shorter than 20 times what
            writing takes (a few milliseconds for small graphs); then a kill loses no more than
            that.
    """

    checkpoint: Path
    log: RunLog | None = None
    seconds: float | None = None


class Keeper:
    """Writes checkpoints when it is time, and logs together with them and at the end.

    Args:
        session: the training; the log starts from the epochs it has already.
        keeping: where and how often; None writes nothing.

    Raises:
        OSError: the log cannot be written.
    """

    def __init__(self, session: Fit, keeping: Keeping | None) -> None:
        self._session, self._keeping = session, keeping
        self._logged = session.epoch
        self._last = time.perf_counter()
        self._pause = 0.0 if keeping is None or keeping.seconds is None else keeping.seconds
        if keeping is not None and keeping.log is not None:
            keeping.log.restart(session.rows())

    def epoch_done(self) -> None:
        """Keep the epoch just finished if it is time.

        Raises:
            OSError: the checkpoint or the log cannot be written.
        """
        now = time.perf_counter()
        if self._keeping is None or now - self._last < self._pause:
            return
        self._last = self._session.settle(now)
        self._session.save(self._keeping.checkpoint)
        self.finish()
        if self._keeping.seconds is None:
            self._pause = (time.perf_counter() - self._last) / CHECKPOINT_SHARE

    def finish(self) -> None:
        """Log the epochs that the log lacks.

        Raises:
            OSError: the log cannot be written.
        """
        if self._keeping is not None and self._keeping.log is not None:
            self._keeping.log.append(self._session.rows(self._logged))
            self._logged = self._session.epoch
