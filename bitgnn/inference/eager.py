"""Runs a frozen model as it is: one operator call for each fused stage."""

from __future__ import annotations

from typing import Any

from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.graph_program import Graph

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

    def __init__(self, model: FrozenModel) -> None:
        if not isinstance(model, FrozenModel):
            raise TypeError(
                f"EagerExecutor: model must be a FrozenModel, got {type(model).__name__}"
            )
        self.model = model

    def __call__(
        self, x: Any = None, adjacency: Graph | Any = None, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Scores of each node; arguments, result and errors of :meth:`FrozenModel.forward`."""
        return self.model(x, adjacency, *args, **kwargs)
