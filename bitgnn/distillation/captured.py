"""Runs epochs that repeat the same work on the same tensors as a CUDA graph."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bitgnn._capture import capturing
from bitgnn.nn.adjacencies import kept_adjacencies
from bitgnn.nn.inputs.input_statistics import ColumnStatistics
from bitgnn.nn.roles.has_role import HasRole

WARM_UPS = 2
"""Epochs in which layers look at their inputs, and torch and its libraries choose kernels."""
WAITED = "called a synchronizing CUDA operation"
"""Torch's warning when the host waits for the GPU."""
PLAIN = (bool, int, float, str, bytes, type(None))
SKIPPED = ("_parameters", "_buffers", "_modules", "host_count")
"""Attributes compared separately, and the host's batch count, which a graph reads from a buffer."""


class RepeatedEpoch:
    """Calls a function once an epoch; on a GPU a CUDA graph of it soon takes over.

    A graph repeats what was launched, not what Python did. So an epoch is watched first, and stays
    a function for good if in it the host waited for the GPU, drew random numbers, or left an
    attribute of the model behind that it had not found. Random numbers of the GPU are those that
    the function would draw. Whatever ``run`` changes apart from its result is in tensors that stay
    where they are; ``may_repeat`` says whether every call does the same.
    """

    def __init__(
        self, run: Callable[[], Tensor], model: nn.Module, optimizer: Optimizer, may_repeat: bool
    ) -> None:
        self._run, self._model, self._optimizer = run, model, optimizer
        self._device = next(model.parameters()).device
        self._may_repeat = may_repeat and self._device.type == "cuda"
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result = torch.empty(0)
        self._held: tuple[Any, ...] = ()

    @property
    def is_captured(self) -> bool:
        """True once a CUDA graph replaces the function."""
        return self._graph is not None

    def __call__(self) -> Tensor:
        """Run an epoch."""
        if self._graph is not None:
            self._graph.replay()
            return self._result.clone()
        self._calls += 1
        if not self._may_repeat or self._calls <= WARM_UPS or _is_young(self._model):
            return self._run()
        self._may_repeat = False
        result, repeats = self._watched()
        if repeats:
            self._capture()
        return result

    def _watched(self) -> tuple[Tensor, bool]:
        """Run an epoch and check if a graph would repeat it."""
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            before = list(python_state(self._model))
            try:
                result = self._run()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
            after = list(python_state(self._model))
        waits = [warning for warning in told if WAITED in str(warning.message)]
        for warning in told:
            if warning not in waits and "Synchronization debug mode" not in str(warning.message):
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )
        return result, not waits and are_same(before, after)

    def _capture(self) -> None:
        """Capture the function, unless the GPU has no memory for a graph or refuses it."""
        self._set_capturable(True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            state = generator.clone_state()
            try:
                with capturing(graph):
                    self._result = self._run()
            except RuntimeError:
                generator.graphsafe_set_state(state)
                self._set_capturable(False)
                return
        self._graph, self._held = graph, kept_adjacencies()

    def _set_capturable(self, value: bool) -> None:
        """Set the optimizer's ``capturable`` flag, without which its steps warn in a graph."""
        for group in self._optimizer.param_groups:
            group["capturable"] = value


def _is_young(model: nn.Module) -> bool:
    """True while layers still look at every batch or for their roles, and wait for a GPU.

    Layers that read the signs of other ones count no batches.
    """
    modules = list(model.modules())
    kept = (module for module in modules if isinstance(module, ColumnStatistics))
    return any(statistics.host_count > 0 and statistics.is_young for statistics in kept) or any(
        module.is_settling for module in modules if isinstance(module, HasRole)
    )


def python_state(model: nn.Module) -> Iterator[tuple[Any, int]]:
    """Python state that may change a model's forward: values, and sizes of containers."""
    drawn = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    yield random.getstate(), 0
    yield drawn["key"].tobytes(), drawn["pos"]
    yield torch.get_rng_state().numpy().tobytes(), 0
    for module in model.modules():
        rest = {name: value for name, value in vars(module).items() if name not in SKIPPED}
        for value in (*rest.values(), *module._parameters.values(), *module._buffers.values()):
            yield value, len(value) if isinstance(value, (list, dict, set)) else 0
            yield _drawn(value), 0


def _drawn(value: Any) -> Any:
    """State of a random generator; None for anything else."""
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state())
    return value.get_state().numpy().tobytes() if isinstance(value, torch.Generator) else None


def are_same(before: list[tuple[Any, int]], after: list[tuple[Any, int]]) -> bool:
    """True if the values are the same objects, or equal plain ones, of unchanged sizes."""
    return len(before) == len(after) and all(
        _is_same(old, new) and size == other
        for (old, size), (new, other) in zip(before, after, strict=True)
    )


def _is_same(old: Any, new: Any) -> bool:
    if old is new:
        return True
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(map(_is_same, old, new))
    return isinstance(old, PLAIN) and type(old) is type(new) and bool(old == new)
