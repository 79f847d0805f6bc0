"""Services of the Python interpreter: interrupts, imports by name, signatures, users' own lines."""

from __future__ import annotations

import _thread
import importlib
import inspect
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

AGAIN_SECONDS = 0.05
INTERRUPTED = 130
"""Exit status of a command that Ctrl-C has ended."""
IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*")

F = TypeVar("F", bound=Callable[..., Any])


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)  # nothing was begun; an exception might be caught by whatever is imported


@contextmanager
def ctrl_c_ends_silently() -> Iterator[None]:
    """End the process silently at Ctrl-C: for imports, which may catch any exception."""
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


def is_import_path(name: str) -> bool:
    """True if ``name`` reads like ``package.module:Name``."""
    return IMPORT_PATH.fullmatch(name) is not None


def imported(name: str) -> Any:
    """Import an object by its path; the working directory is searched last.

    Raises ``ValueError`` where the module cannot be imported or has no such object.
    """
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found = importlib.import_module(module)
    except Exception as error:  # a module may do anything
        raise ValueError(
            f"{name}: {module} cannot be imported ({type(error).__name__}: {error})"
        ) from error
    if not hasattr(found, attribute):
        raise ValueError(f"{name}: {module} has no {attribute}")
    return getattr(found, attribute)


def with_signature(forward: F) -> F:
    """Attach a signature to a function.

    ``torch.autograd.Function.apply`` binds arguments to it; working it out takes as long as to
    launch several operators.
    """
    forward.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    return forward


def warn(message: str) -> None:
    """Give a ``UserWarning`` at the innermost line that neither this package nor torch holds."""
    files = filter(None, (__file__, sys.modules["torch"].__file__))
    inside = tuple(f"{Path(file).parent}/" for file in files)
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)
