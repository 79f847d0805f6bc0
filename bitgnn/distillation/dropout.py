"""Dropout of a model in use, stronger or weaker than the model says itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

__all__ = ["scaled_dropout"]

PROBABILITY = 0.5
"""What functional dropouts take where none is named."""
DROPOUTS: frozenset[Callable[..., Any]] = frozenset({
    torch.dropout, functional.dropout, functional.dropout1d, functional.dropout2d,
    functional.dropout3d, functional.alpha_dropout, functional.feature_alpha_dropout,
})  # fmt: skip
"""Functions that modules call, too; their first two arguments are ``input`` and ``p``."""


class _Scaled(TorchFunctionMode):
    """Calls dropouts with ``factor`` times their probability."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """The function's result."""
        named = {} if kwargs is None else dict(kwargs)
        if func in DROPOUTS:
            positional = args[1:2]
            given = positional[0] if positional else named.get("p", PROBABILITY)
            if 0 <= given <= 1:  # torch itself refuses others
                given = min(self.factor * given, 1.0)
            if positional:
                args = (args[0], given, *args[2:])
            else:
                named["p"] = given
        return func(*args, **named)


def scaled_dropout(factor: float) -> AbstractContextManager[Any]:
    """A context in which functions and modules of dropout act with ``factor`` times their ``p``.

    Args:
        factor: 0 switches dropout off, 1 leaves it as it is; no probability exceeds 1.
    """
    return nullcontext() if factor == 1 else _Scaled(factor)
