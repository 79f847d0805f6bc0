"""Ways to run a frozen model by name: eagerly, as CUDA graphs, or what suits the device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bitgnn.inference.bound_program import Inputs
from bitgnn.inference.cuda_graph import CudaGraphExecutor, PinnedCall
from bitgnn.inference.frozen import Frozen
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.graph import Graph

__all__ = ["AutoExecutor", "CudaGraphExecutor", "EagerExecutor", "make_executor"]

DEFAULT_SHAPES = 8


class EagerExecutor:
    """Calls of a frozen model, one operator after the other; the choice on a CPU.

    It takes whatever the model takes, on any device, and follows a model that is moved or loaded
    into.

    Args:
        model: the frozen model.

    Attributes:
        pinned: called with features and a prepared graph, without checks, by callers that promise
            to change nothing between calls with the same inputs but values of ``x``. The next call
            may write to its result.

    Raises:
        TypeError: ``model`` is not a frozen model.
    """

    def __init__(self, model: Frozen) -> None:
        if not isinstance(model, Frozen):
            raise TypeError(
                f"EagerExecutor: model must be a frozen model, got {type(model).__name__}"
            )
        self.model = model
        self.pinned = PinnedCall(self.bound_call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns; arguments, ``out`` among them, and errors are its forward's."""
        return self.model(*args, **kwargs)

    def bound_call(self, x: Any, adjacency: Any = None) -> Callable[[], Any]:
        """What ``pinned`` does for these inputs."""
        if isinstance(self.model, FrozenModel):
            return self.model.bound_call(x, adjacency)
        return partial(self.model, x, adjacency)


class AutoExecutor:
    """One CUDA graph for each shape of inputs on a GPU; the eager executor elsewhere.

    What no CUDA graph can be made of runs eagerly. All executors give the same bits, so that the
    choice shows in time alone.

    Args:
        model: the frozen model.
        max_shapes: shapes to hold CUDA graphs for, at least 1. Inputs of further shapes, such as
            mini-batches of a loader, run eagerly.

    Attributes:
        choice: name of the executor that ran the last call; None before.
        left_out: why there is no CUDA graph of the last shape that was seen first; None where
            there is one.
        pinned: as that of :class:`EagerExecutor`.

    Raises:
        TypeError: ``model`` is not a frozen model.
        ValueError: ``max_shapes`` is below 1.
    """

    def __init__(self, model: Frozen, max_shapes: int = DEFAULT_SHAPES) -> None:
        self.eager = EagerExecutor(model)
        if max_shapes < 1:
            raise ValueError(f"AutoExecutor: max_shapes must be at least 1, got {max_shapes}")
        self.model: Any = model
        self.max_shapes = max_shapes
        self.choice: str | None = None
        self.left_out: str | None = None
        self._graphs: CudaGraphExecutor | None = None
        self._is_program = isinstance(model, FrozenModel)
        self.pinned = PinnedCall(self._bind)
        self._chosen: dict[tuple[Any, ...], str] = {}

    @property
    def choices(self) -> tuple[str, ...]:
        """The executor of each shape seen on a GPU, oldest first."""
        return tuple(self._chosen.values())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns; arguments, ``out`` among them, and errors are its forward's.

        Calls in other forms than features and a prepared graph run eagerly.
        """
        name = "eager"
        if self._is_program and 0 < len(args) <= 2 and (not kwargs or kwargs.keys() == {"out"}):
            held = None if self._graphs is None else self._graphs.find(*args)
            if self._graphs is not None and held is not None:
                self.choice = "cuda_graph"
                return self._graphs.replay(held, **kwargs)
            name = self._choose(args[0], args[1] if len(args) > 1 else None)
        run: Any = self._graphs if name == "cuda_graph" else self.eager
        scores = run(*args, **kwargs)
        self.choice = name
        return scores

    def _bind(self, x: Any, adjacency: Any) -> Callable[[], Any]:
        self(x, adjacency)
        run: Any = self._graphs if self.choice == "cuda_graph" else self.eager
        bound: Callable[[], Any] = run.bound_call(x, adjacency)
        return bound

    def _choose(self, x: Any, adjacency: Any) -> str:
        if not isinstance(x, Inputs) or x.device.type != "cuda":
            return "eager"
        if not isinstance(adjacency, Graph | None) or torch.cuda.is_current_stream_capturing():
            return "eager"  # other graphs are converted anew by every call
        dtype = x.dtype if isinstance(x, Tensor) else None
        graph = None if adjacency is None else (type(adjacency), adjacency.num_cols, adjacency.nnz)
        key = type(x), tuple(x.shape), dtype, graph
        name = self._chosen.get(key)
        if name is None:
            if len(self._chosen) >= self.max_shapes:
                return "eager"
            name = self._chosen[key] = self._try(x, adjacency)
        return name

    def _try(self, x: Any, adjacency: Any) -> str:
        """The executor for inputs of a new shape; what the model itself refuses is raised."""
        self.eager(x, adjacency)
        self.left_out = None
        try:
            if self._graphs is None:
                self._graphs = CudaGraphExecutor(self.model, max_graphs=self.max_shapes)
            self._graphs(x, adjacency)
        except (RuntimeError, TypeError, ValueError) as error:
            # The model or these inputs are not for it, or memory is short.
            self.left_out = f"{type(error).__name__}: {error}"
            return "eager"
        return "cuda_graph"


def make_executor(model: Frozen, name: str = "auto", **options: Any) -> Callable[..., Any]:
    """An executor of a frozen model by name; see :meth:`Frozen.executor`."""
    makers: dict[str, Callable[..., Callable[..., Any]]] = {
        "eager": EagerExecutor,
        "cuda_graph": CudaGraphExecutor,
        "auto": AutoExecutor,
    }
    if name not in makers:
        raise ValueError(f"executor: name must be one of {list(makers)}, got {name!r}")
    return makers[name](model, **options)
