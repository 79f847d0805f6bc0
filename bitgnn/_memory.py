"""One error where memory is lacking: the bytes asked for, the bytes free, and a way out."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import TypeVar

import torch

_ASKED = re.compile(
    r"(?:tried to allocate|no memory for a result of|out of memory: no) ([\d.]+ \w+)", re.IGNORECASE
)
_LACKS = ("out of memory", "bad_alloc", "can't allocate memory", "no memory for")
Function = TypeVar("Function", bound=Callable[..., object])


def memory_error(who: str, error: BaseException, advice: str) -> torch.OutOfMemoryError | None:
    """The error to raise in place of one that tells of a lack of memory; None for any other.

    Raise it outside of the ``except`` block: the frames of the first error hold tensors.
    """
    text = str(error)
    lacks = any(words in text.lower() for words in _LACKS)
    if not (isinstance(error, MemoryError | torch.OutOfMemoryError) or lacks):
        return None
    if "; bytes free: " in text:
        return torch.OutOfMemoryError(text)  # told already by a part of the work
    if "CUDA" in text:
        free = torch.cuda.mem_get_info()[0]
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    asked = _ASKED.search(text)
    wanted = f"tried to allocate {asked[1]}" if asked else text.partition("\n")[0]
    return torch.OutOfMemoryError(f"{who}: out of memory, {wanted}; bytes free: {free}; {advice}")


def tells_of_memory(who: str, advice: str) -> Callable[[Function], Function]:
    """A decorator: a lack of memory within the function becomes :func:`memory_error`."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def told(*args: object, **kwargs: object) -> object:
            try:
                return function(*args, **kwargs)
            except (RuntimeError, MemoryError) as error:
                lack = memory_error(who, error, advice)
                if lack is None:
                    raise
            raise lack

        return told  # type: ignore[return-value]

    return decorate
