"""Steps recorded as CUDA graphs, and several trainings side by side on one device."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

import torch

__all__ = ["Pace", "Recorded", "side_by_side"]

Result = TypeVar("Result")
QUEUED_STEPS = 8
"""Steps that a training may be ahead of the device, so that others get their turn."""


class Recorded:
    """Runs a function of an integer; on a GPU its second call with an integer is recorded.

    Args:
        body: works on tensors that stay where they are.
        device: where it runs; a GPU needs another than its default stream.
        generator: of the random numbers in it, if any.
    """

    def __init__(
        self,
        body: Callable[[int], None],
        device: torch.device,
        generator: torch.Generator | None = None,
    ) -> None:
        self._body, self._device, self._generator = body, device, generator
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._warm: set[int] = set()

    def forget(self) -> None:
        """Record anew, since the body changed; nothing has to be warmed up again."""
        self._graphs.clear()

    def __call__(self, key: int) -> None:
        """Run the body with ``key``."""
        if self._device.type != "cuda":
            self._body(key)
        elif key in self._graphs:
            self._graphs[key].replay()
        elif key not in self._warm:
            self._warm.add(key)
            self._body(key)
        else:
            self._graphs[key] = self._record(key)
            self._graphs[key].replay()

    def _record(self, key: int) -> torch.cuda.CUDAGraph:
        """Capture the body; unlike torch.cuda.graph without waiting for the work of others."""
        graph = torch.cuda.CUDAGraph()
        if self._generator is not None:
            graph.register_generator_state(self._generator)
        # A collection might free other graphs' memory in the middle of the capture.
        collecting = gc.isenabled()
        gc.disable()
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                self._body(key)
            finally:
                graph.capture_end()
        finally:
            if collecting:
                gc.enable()
        return graph


class Pace:
    """Keeps one training from running far ahead of the device.

    Args:
        device: where it runs.
    """

    def __init__(self, device: torch.device) -> None:
        self._events: deque[torch.cuda.Event] | None = deque() if device.type == "cuda" else None

    def step(self) -> Iterator[None]:
        """Note a step, and yield until few are waiting."""
        if self._events is None:
            return
        event = torch.cuda.Event()
        event.record()
        self._events.append(event)
        while len(self._events) > QUEUED_STEPS:
            if self._events[0].query():
                self._events.popleft()
            else:
                yield

    def finish(self) -> Iterator[None]:
        """Yield until all steps are done."""
        if self._events is None:
            return
        event = torch.cuda.Event()
        event.record()
        self._events.clear()
        while not event.query():
            yield


def side_by_side(
    trainings: Sequence[Generator[None, None, Result]], device: torch.device
) -> list[Result]:
    """Run generators in turns, each on its own stream, until all are done.

    Args:
        trainings: each yields often and returns its result.
        device: where they run.

    Returns:
        Their results, in the same order.
    """
    results: dict[int, Any] = {}
    streams = [
        torch.cuda.Stream(device) if device.type == "cuda" else None for _ in range(len(trainings))
    ]
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    waiting = dict(enumerate(trainings))
    while waiting:
        for number, training in list(waiting.items()):
            # Without a stream the current one stays.
            with torch.cuda.stream(streams[number]):
                try:
                    next(training)
                except StopIteration as stop:
                    results[number] = stop.value
                    del waiting[number]
    return [results[number] for number in range(len(trainings))]
