"""Steps recorded as CUDA graphs, and several trainings side by side on one device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

import torch

from bitgnn._collector import collector_paused

__all__ = ["GraphMemory", "Pace", "Recorded", "side_by_side"]

Result = TypeVar("Result")
FULL_SHARE = 0.4
QUEUED_STEPS = 8
"""Steps that a training may be ahead of the device, so that others get their turn."""


class GraphMemory:
    """Memory of recordings that never run at the same time."""

    def __init__(self) -> None:
        self._pool: Any = None

    def pool(self) -> Any:
        """The pool of the recordings to come."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool

    def end(self) -> None:
        """Take a new pool from now on: one whose last recording is gone takes no other."""
        self._pool = None

    @staticmethod
    def make_room(device: torch.device) -> None:
        """Give back what steps before their recording have left, if memory gets short.

        Every stream keeps blocks of its own, and while a step is recorded none can be freed.
        """
        total = torch.cuda.get_device_properties(device).total_memory
        if torch.cuda.memory_reserved(device) > FULL_SHARE * total:
            torch.cuda.empty_cache()


class Recorded:
    """Runs a function of an integer; on a GPU its second call with an integer is recorded.

    Args:
        body: works on tensors that stay where they are.
        device: where it runs; a GPU needs another than its default stream.
        generator: of the random numbers in it, if any.
        memory: shared with what never runs at the same time; None for its own.
    """

    def __init__(
        self,
        body: Callable[[int], None],
        device: torch.device,
        generator: torch.Generator | None = None,
        memory: GraphMemory | None = None,
    ) -> None:
        self._body, self._device, self._generator = body, device, generator
        self._memory = GraphMemory() if memory is None else memory
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._warm: set[int] = set()

    def forget(self) -> None:
        """Record anew, since the body changed; nothing has to be warmed up again."""
        self._graphs.clear()
        self._memory.end()

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
        self._memory.make_room(self._device)
        graph = torch.cuda.CUDAGraph()
        if self._generator is not None:
            graph.register_generator_state(self._generator)
        with collector_paused():
            graph.capture_begin(pool=self._memory.pool(), capture_error_mode="thread_local")
            try:
                self._body(key)
            finally:
                graph.capture_end()
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
