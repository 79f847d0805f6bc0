"""Ctrl-C that no destructor and no import can swallow."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_SECONDS = 0.05
INTERRUPTED = 130
"""Exit status of a command that Ctrl-C has ended."""


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)  # nothing was begun; an exception might be caught by whatever is imported


@contextmanager
def ctrl_c_ends_silently() -> Iterator[None]:
    """End the process without a word at Ctrl-C: for imports, which may catch any exception."""
    before = signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ctrl_c_always_stops() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` a moment later where Python could only print it.

    An exception in ``__del__``, in a callback of a weak reference or in the garbage collector goes
    to ``sys.unraisablehook``, and the program runs on as if nobody had pressed a key.
    """
    print_it = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            again = threading.Timer(AGAIN_SECONDS, _thread.interrupt_main)
            again.daemon = True
            again.start()
        else:
            print_it(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = print_it
