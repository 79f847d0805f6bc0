"""Kernels of one call on a GPU in the order they end, with what each adds to the call."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

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
    """Runs a call several times under torch's profiler."""
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
    """Medians over calls of the same kernels."""
    if calls < 1 or len(kernels) % calls:
        raise ValueError(f"bench: {len(kernels)} kernels are not those of {calls} like calls")
    ordered = sorted(kernels, key=lambda kernel: kernel.end)
    count = len(ordered) // calls
    runs = [ordered[start : start + count] for start in range(0, len(ordered), count or 1)]
    found = []
    for place in range(count):
        seconds = statistics.median(run[place].end - run[place].begin for run in runs)
        step = seconds
        if place:
            step = statistics.median(run[place].end - run[place - 1].end for run in runs)
        name = _short(runs[0][place].name)
        found.append({"name": name, "seconds": seconds * 1e-6, "step": step * 1e-6})
    return found


def _short(name: str) -> str:
    """A kernel's name without return type and arguments."""
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return name.partition("(")[0][:NAME_LENGTH]


PARTS = {
    "first layer": ("fixed",),
    "convolutions": ("conv",),
    "pooling": ("pool",),
    "linear layers": ("bmm", "linear"),
}
"""Parts of a network by the beginnings of the names of their kernels; the first that fits."""


def parts_of(kernels: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds that each part of a network takes, other kernels as ``"other"``."""
    found = dict.fromkeys([*PARTS, "other"], 0.0)
    for kernel in kernels:
        name = kernel["name"].partition("<")[0].rpartition("::")[2]
        part = next((part for part, begins in PARTS.items() if name.startswith(begins)), "other")
        found[part] += kernel["step"]
    return found
