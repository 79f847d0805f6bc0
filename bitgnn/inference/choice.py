"""Executors by name, and the one that measures the others and keeps the fastest."""

from __future__ import annotations

import statistics
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bitgnn.inference.bound_program import Inputs
from bitgnn.inference.cooperative import CooperativeExecutor
from bitgnn.inference.cuda_graph import CudaGraphExecutor
from bitgnn.inference.eager import EagerExecutor
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.graph_program import Graph

__all__ = ["AutoExecutor", "Executor", "make_executor"]

Executor = Callable[..., Tensor]
"""Takes features and a prepared graph as :meth:`FrozenModel.forward` does."""

WARM_UPS = 2
ROUNDS = 5
"""Interleaved timings of each candidate; the median counts."""
ROUND_SECONDS = 1e-3
MAX_CALLS = 20
"""Calls of a round: as many as fill ``ROUND_SECONDS``, at most so many."""
DEFAULT_SHAPES = 8

EXECUTORS: dict[str, Callable[..., Executor]] = {
    "eager": EagerExecutor,
    "cuda_graph": CudaGraphExecutor,
    "cooperative": CooperativeExecutor,
}


class AutoExecutor:
    """Measures the executors on the first call with inputs of a shape and keeps the fastest.

    On a CPU it is the eager one. On a CUDA device every candidate that takes the model and the
    inputs is warmed up and timed by the clock, launches included, in interleaved rounds; the first
    call with a shape therefore lasts as long as about a hundred. All executors give the same bits,
    so that the choice shows in time alone.

    Args:
        model: the frozen model.
        candidates: names of executors, "eager" being tried in any case; None for all there are.
        max_shapes: shapes to measure and to hold executors' graphs for, at least 1. Inputs of
            further shapes, such as mini-batches of a loader, run eagerly.

    Attributes:
        choice: name of the executor that ran the last call; None before.
        seconds: median time of each candidate when the last choice was made.
        left_out: why a candidate was no choice then, by its name.

    Raises:
        TypeError: ``model`` is not a frozen model.
        ValueError: an unknown candidate, or ``max_shapes`` is below 1.
    """

    def __init__(
        self,
        model: FrozenModel,
        candidates: Sequence[str] | None = None,
        max_shapes: int = DEFAULT_SHAPES,
    ) -> None:
        self.eager = EagerExecutor(model)
        names = list(EXECUTORS) if candidates is None else ["eager", *candidates]
        unknown = sorted(set(names) - EXECUTORS.keys())
        if unknown:
            raise ValueError(
                f"AutoExecutor: candidates must be of {list(EXECUTORS)}, got {unknown}"
            )
        if max_shapes < 1:
            raise ValueError(f"AutoExecutor: max_shapes must be at least 1, got {max_shapes}")
        self.model = model
        self.candidates = tuple(dict.fromkeys(names))
        self.max_shapes = max_shapes
        self.choice: str | None = None
        self.seconds: dict[str, float] = {}
        self.left_out: dict[str, str] = {}
        self._made: dict[str, Executor] = {"eager": self.eager}
        self._chosen: OrderedDict[tuple[Any, ...], str] = OrderedDict()

    @property
    def choices(self) -> tuple[str, ...]:
        """The executor chosen for each shape seen, oldest first."""
        return tuple(self._chosen.values())

    def __call__(
        self, x: Any = None, adjacency: Graph | Any = None, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Scores of each node; arguments, result and errors of :meth:`FrozenModel.forward`.

        Calls in other forms than features and a prepared graph run eagerly.
        """
        if args or kwargs or not isinstance(x, Inputs):
            self.choice = "eager"
            return self.eager(x, adjacency, *args, **kwargs)
        name = self._choose(x, adjacency)
        scores = self._made[name](x, adjacency)
        self.choice = name
        return scores

    def _choose(self, x: Any, adjacency: Any) -> str:
        if x.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return "eager"
        if not isinstance(adjacency, Graph | None):
            return "eager"  # it is converted anew by every call
        key = _key(x, adjacency)
        name = self._chosen.get(key)
        if name is None:
            if len(self._chosen) >= self.max_shapes:
                return "eager"
            name = self._pick(x, adjacency)
            self._chosen[key] = name
            # Those that serve no shape give their memory back.
            used = {"eager", *self._chosen.values()}
            self._made = {held: run for held, run in self._made.items() if held in used}
        return name

    def _pick(self, x: Any, adjacency: Any) -> str:
        """Name of the fastest; what the model itself refuses is raised."""
        self.eager(x, adjacency)
        ready: dict[str, Callable[[], Tensor]] = {}
        self.left_out = {}
        for name in self.candidates:
            try:
                run = self._executor(name)
                for _ in range(WARM_UPS):
                    run(x, adjacency)
            except (RuntimeError, TypeError, ValueError) as error:
                # The model or these inputs are not for it, or memory is short.
                self.left_out[name] = f"{type(error).__name__}: {error}"
            else:
                ready[name] = partial(run, x, adjacency)
        self.seconds = _median_seconds(ready, x.device)
        return min(self.seconds, key=self.seconds.__getitem__)

    def _executor(self, name: str) -> Executor:
        if name not in self._made:
            options = {"max_graphs": self.max_shapes} if name == "cuda_graph" else {}
            self._made[name] = EXECUTORS[name](self.model, **options)
        return self._made[name]


def make_executor(model: FrozenModel, name: str = "auto", **options: Any) -> Executor:
    """An executor of a frozen model by name.

    Args:
        model: the frozen model.
        name: ``"eager"``, ``"cuda_graph"``, ``"cooperative"``, ``"auto"`` or ``"predicted"``.
        options: arguments of that executor.

    Raises:
        ValueError: there is no such executor.
    """
    # It builds on this file.
    from bitgnn.inference.predicted_executor import PredictedExecutor

    makers = {**EXECUTORS, "auto": AutoExecutor, "predicted": PredictedExecutor}
    if name not in makers:
        raise ValueError(f"executor: name must be one of {list(makers)}, got {name!r}")
    return makers[name](model, **options)


def _key(x: Any, adjacency: Any) -> tuple[Any, ...]:
    """What tells inputs of one speed from others."""
    dtype = x.dtype if isinstance(x, Tensor) else None
    graph = None if adjacency is None else (type(adjacency), adjacency.num_cols, adjacency.nnz)
    return type(x), tuple(x.shape), dtype, graph


def _median_seconds(
    functions: Mapping[str, Callable[[], Any]], device: torch.device
) -> dict[str, float]:
    """Time of one call by the clock, of calls that follow each other without waiting."""

    def seconds(run: Callable[[], Any], calls: int) -> float:
        torch.cuda.synchronize(device)
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        torch.cuda.synchronize(device)
        return (time.perf_counter() - begin) / calls

    calls = {
        name: max(1, min(MAX_CALLS, round(ROUND_SECONDS / seconds(run, 1))))
        for name, run in functions.items()
    }
    found: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, run in functions.items():
            found[name].append(seconds(run, calls[name]))
    return {name: statistics.median(times) for name, times in found.items()}
