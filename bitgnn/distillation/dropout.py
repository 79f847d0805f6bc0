"""Dropout of a model in use, stronger or weaker than the model says itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import _VF

__all__ = ["scaled_dropout"]

KINDS = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
OPERATIONS = tuple(name + end for name in KINDS for end in ("", "_"))
"""Of torch, which modules and functions of dropout call; their arguments begin ``input, p``."""


@contextmanager
def scaled_dropout(factor: float) -> Iterator[None]:
    """A context in which functions and modules of dropout act with ``factor`` times their ``p``.

    The operations behind them are exchanged, in the whole process: a mode that looks at every
    function of torch takes as long as a small graph's forward.

    Args:
        factor: 0 switches dropout off, 1 leaves it as it is; no probability exceeds 1.
    """
    found = {name: getattr(torch, name) for name in (OPERATIONS if factor != 1 else ())}
    try:
        _exchange({name: _scaled(operation, factor) for name, operation in found.items()})
        yield
    finally:
        _exchange(found)


def _exchange(operations: dict[str, Callable[..., Any]]) -> None:
    for name, operation in operations.items():
        setattr(torch, name, operation)
        setattr(_VF, name, operation)


def _scaled(operation: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """An operation with ``factor`` times the probability; one that torch refuses stays wrong."""

    @functools.wraps(operation)
    def called(input: Any, p: float, *rest: Any, **named: Any) -> Any:
        return operation(input, min(factor * p, 1.0) if 0 <= p <= 1 else p, *rest, **named)

    return called
