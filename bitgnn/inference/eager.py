"""Runs a frozen model as it is: one operator call for each fused stage."""

from __future__ import annotations

from typing import Any

from bitgnn.inference.frozen import Frozen

__all__ = ["EagerExecutor"]


class EagerExecutor:
    """Calls of a frozen model, one operator after the other; the choice on a CPU.

    It takes whatever the model takes, on any device, and follows a model that is moved or loaded
    into.

    Args:
        model: the frozen model.

    Raises:
        TypeError: ``model`` is not a frozen model.
    """

    def __init__(self, model: Frozen) -> None:
        if not isinstance(model, Frozen):
            raise TypeError(
                f"EagerExecutor: model must be a frozen model, got {type(model).__name__}"
            )
        self.model = model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns; arguments and errors are those of its forward."""
        return self.model(*args, **kwargs)
