"""Kernels of one call on a GPU in the order they run, their times and the gaps between them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Kernel", "kernels_of_calls", "profile_call"]

CALLS = 10
NAME_LENGTH = 90


@dataclass(frozen=True)
class Kernel:
    """One kernel, copy or fill on the device.

    Attributes:
        name: of the kernel, without its arguments.
        begin: microseconds from the profiler's start.
        end: likewise.
    """

    name: str
    begin: float
    end: float


def profile_call(call: Callable[[], Any], calls: int = CALLS) -> list[dict[str, Any]]:
    """Runs a call several times under torch's profiler.

    Args:
        call: queues the same kernels each time, best by replaying a CUDA graph.
        calls: how often.

    Returns:
        As :func:`kernels_of_calls`.
    """
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as run:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    found = [
        Kernel(event.name, event.time_range.start, event.time_range.end)
        for event in run.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    return kernels_of_calls(found, calls)


def kernels_of_calls(kernels: Sequence[Kernel], calls: int) -> list[dict[str, Any]]:
    """Medians over calls of the same kernels.

    Args:
        kernels: of all calls.
        calls: how many; they must have run as many kernels each.

    Returns:
        For each kernel of a call its ``name``, ``seconds``, and ``gap``: seconds between the end
        of the one in front and its begin, 0 for the first; negative where they overlap.

    Raises:
        ValueError: the kernels are not a multiple of the calls.
    """
    if calls < 1 or len(kernels) % calls:
        raise ValueError(f"bench: {len(kernels)} kernels are not those of {calls} like calls")
    ordered = sorted(kernels, key=lambda kernel: kernel.begin)
    count = len(ordered) // calls
    runs = [ordered[start : start + count] for start in range(0, len(ordered), count or 1)]
    found = []
    for place in range(count):
        seconds = statistics.median(run[place].end - run[place].begin for run in runs)
        gap = 0.0
        if place:
            gap = statistics.median(run[place].begin - run[place - 1].end for run in runs)
        name = _short(runs[0][place].name)
        found.append({"name": name, "seconds": seconds * 1e-6, "gap": gap * 1e-6})
    return found


def _short(name: str) -> str:
    """A kernel's name without return type and arguments."""
    return name.removeprefix("void ").partition("(")[0][:NAME_LENGTH]
