"""Ctrl-C that no destructor can swallow."""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ctrl_c_always_stops"]

AGAIN_SECONDS = 0.05


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
