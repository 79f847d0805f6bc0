"""Dropout of a model in use, stronger or weaker than the model says itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import _VF, Tensor, nn

from bitgnn.quantize import fast_dropout

__all__ = ["scaled_dropout"]

PLAIN = "dropout"
MOST = 0.999
"""Probability up to which few random bits decide."""
KINDS = (PLAIN, "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
OPERATIONS = tuple(name + end for name in KINDS for end in ("", "_"))
"""Of torch, which modules and functions of dropout call; their arguments begin ``input, p``."""


@contextmanager
def scaled_dropout(factor: float, on_cpu: bool = False) -> Iterator[None]:
    """A context in which functions and modules of dropout act with ``factor`` times their ``p``.

    The operations behind them are exchanged, in the whole process: a mode that looks at every
    function of torch takes as long as a small graph's forward.

    Args:
        factor: 0 switches dropout off, 1 leaves it as it is; no probability exceeds 1.
        on_cpu: draw for plain tensors on the CPU as :func:`bitgnn.quantize.fast_dropout` does:
            PyTorch takes longer over the dropout of wide features than over all else in a step.
    """
    is_needed = factor != 1 or on_cpu
    found = {name: getattr(torch, name) for name in (OPERATIONS if is_needed else ())}
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
    is_plain = operation.__name__ == PLAIN

    @functools.wraps(operation)
    def called(input: Any, p: float, *rest: Any, **named: Any) -> Any:
        p = min(factor * p, 1.0) if 0 <= p <= 1 else p
        if is_plain and _is_quick(input, p) and len(rest) + len(named) == 1:
            return fast_dropout(input, p, *rest, *named.values())
        return operation(input, p, *rest, **named)

    return called


def _is_quick(x: Any, p: float) -> bool:
    is_plain = type(x) in (Tensor, nn.Parameter) and x.device.type == "cpu"
    return is_plain and x.is_floating_point() and 0 <= p <= MOST
