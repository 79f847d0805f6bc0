"""Signatures of what PyTorch asks for one at every call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["with_signature"]

F = TypeVar("F", bound=Callable[..., Any])


def with_signature(forward: F) -> F:
    """A function's ``forward`` that holds its signature.

    ``torch.autograd.Function.apply`` binds arguments to it; working it out takes as long as to
    launch several operators.
    """
    forward.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    return forward
