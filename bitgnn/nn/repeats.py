"""Forwards that activation checkpointing runs again in a backward pass, and their statistics."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointFunction

MOST = 256
"""Calls of a layer in checkpointed regions that are remembered; the oldest goes."""

_REENTRANT = CheckpointFunction.forward.__code__


@dataclass(eq=False)
class Call:
    """A forward in a region that may run again.

    ``rows`` and ``key``, a vector made of the input, tell it from others; ``state`` is what it
    was computed with, ``is_recorded`` whether it is part of a training step.
    """

    rows: int
    key: Tensor
    state: Any
    is_recorded: bool
    is_repeated: bool = False


Calls = deque[Call]


def no_calls() -> Calls:
    """Room for the calls of a layer."""
    return deque(maxlen=MOST)


def is_in_backward() -> bool:
    """True while autograd runs a backward pass in this thread."""
    if torch.compiler.is_compiling():
        return False
    return bool(torch._C._current_graph_task_id() != -1)


def is_recorded() -> bool:
    """True where a forward is part of a training step, if only when it runs again."""
    return torch.is_grad_enabled() or is_reentrant()


def is_reentrant() -> bool:
    """True inside of the first run of a reentrant checkpoint, which records no gradients."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _REENTRANT:
            return True
        frame = frame.f_back
    return False


def may_repeat() -> bool:
    """True inside of a region whose forwards a backward pass may run again."""
    if torch.compiler.is_compiling():
        return False
    if not torch.is_grad_enabled():
        return True
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def remember(calls: Calls, call: Call) -> None:
    """Add a call, and forget the calls that ran again.

    Of forwards without gradients, most of which never run again, the last one stays.
    """
    left = [held for held in calls if held.is_recorded and not held.is_repeated]
    calls.clear()
    calls.extend((*left, call))


def find_call(calls: Calls, rows: int, make_key: Callable[[], Tensor]) -> Call | None:
    """The call that runs again on these rows; the latest where several had the same input."""
    found = [call for call in calls if call.rows == rows]
    if len(found) > 1:
        key = make_key()
        found = [call for call in found if torch.equal(call.key, key)]
    left = [call for call in found if not call.is_repeated] or found
    if not left:
        return None
    left[-1].is_repeated = True
    return left[-1]
