"""Checkpoints and logs of a training, as often as takes a small share of its time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from bitgnn.train.loop import CHECKPOINT_SHARE, Keeping

__all__ = ["Saver"]


class _Session(Protocol):
    """A training in progress."""

    @property
    def epoch(self) -> int: ...

    def rows(self, start: int = 0) -> list[dict[str, float]]: ...

    def save(self, path: Path) -> None: ...


class Saver:
    """Writes what is to be kept of a training behind its epochs.

    Args:
        session: the training; the log starts from the epochs it has already.
        keeping: checkpoints and logs; None for neither.

    Raises:
        OSError: the log cannot be written.
    """

    def __init__(self, session: _Session, keeping: Keeping | None) -> None:
        self._session, self._keeping = session, keeping
        self._last = time.perf_counter()
        self._pause = 0.0 if keeping is None or keeping.seconds is None else keeping.seconds
        if keeping is not None and keeping.log is not None:
            keeping.log.restart(session.rows())

    def epoch_done(self) -> None:
        """Log the epoch just finished, and write a checkpoint if it is time.

        Raises:
            OSError: one of them cannot be written.
        """
        keeping = self._keeping
        if keeping is None:
            return
        if keeping.log is not None:
            keeping.log.append(self._session.rows(self._session.epoch - 1))
        now = time.perf_counter()
        if now - self._last < self._pause:
            return
        self._session.save(keeping.checkpoint)
        self._last = time.perf_counter()
        if keeping.seconds is None:
            self._pause = (self._last - now) / CHECKPOINT_SHARE
