"""What stands in the way of a trace, in plain words, with file and line of the user's forward."""

from __future__ import annotations

import importlib
import linecache
from pathlib import Path

__all__ = ["NotTraced", "obstacle"]

_LIBRARIES = tuple(
    str(Path(str(importlib.import_module(name).__file__)).parent)
    for name in ("torch", "torch_geometric", "bitgnn.convert", "bitgnn.nn")
)

_PLAIN = (
    ("iterated", "it goes through a tensor part by part"),
    ("control flow", "it decides by values that are known in a call alone"),
    ("'len' is not supported", "it asks for the len() of a tensor"),
    ("__bool__", "it decides by values that are known in a call alone"),
    ("int() argument", "it needs a plain number from a tensor"),
    ("__index__", "it needs a plain number from a tensor"),
    ("cannot be interpreted as an integer", "it needs a plain number from a tensor"),
    ("float() argument", "it needs a plain number from a tensor"),
    ("__float__", "it needs a plain number from a tensor"),
    ("__int__", "it needs a plain number from a tensor"),
    ("keys()", "it unpacks a mapping of tensors"),
)
"""Words of torch.fx or Python, and what they mean."""


class NotTraced(ValueError):
    """A forward, or a part of it, has no trace that can be frozen as a whole.

    Args:
        message: the whole sentence.
        reason: the part of it that says where and why.
    """

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = message.removeprefix("freeze: ") if reason is None else reason


def obstacle(error: BaseException) -> str:
    """Where and why a trace failed: the deepest line of the user's own code, and the cause.

    Args:
        error: what tracing raised, caught around the trace.
    """
    why = _why(error)
    place = None
    found = error.__traceback__
    while found is not None:
        file = found.tb_frame.f_code.co_filename
        if not file.startswith((*_LIBRARIES, "<")):
            place = file, found.tb_lineno
        found = found.tb_next
    if place is None:
        return why
    code = linecache.getline(*place).strip()
    text = f"{place[0]}, line {place[1]}"
    return f"{text}, `{code}`: {why}" if code else f"{text}: {why}"


def _why(error: BaseException) -> str:
    text = str(error).strip()
    for words, meaning in _PLAIN:
        if words in text:
            return meaning
    first = text.splitlines()[0] if text else "no reason given"
    return first if isinstance(error, ValueError) else f"{type(error).__name__}, {first}"
