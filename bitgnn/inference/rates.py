"""Rates of this machine that theoretical latencies rest on, measured on the spot by operators."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import torch

from bitgnn.inference.costs import StepCost

__all__ = ["Rates", "measured_rates", "median_seconds"]

MOVED_BYTES = tuple(2**power for power in range(20, 28))
"""Read and written by the copies: from what caches hold to what memory alone does."""
SIDE = 1024
REPEATS = 7


@dataclass(frozen=True)
class Rates:
    """Work per second of one device with the present number of threads.

    Attributes:
        bytes: of torch's copies, by the number of bytes that each reads and writes: caches are
            faster than memory.
        bit_operations: the packed product of two 1024 x 1024 matrices.
        float_operations: torch's float32 product of two 1024 x 1024 matrices.
    """

    bytes: Mapping[int, float]
    bit_operations: float
    float_operations: float

    def byte_rate(self, size: int) -> float:
        """The rate of the largest copy of no more bytes, or of the smallest of all."""
        return self.bytes[max((n for n in self.bytes if n <= size), default=min(self.bytes))]

    def seconds(self, cost: StepCost) -> float:
        """Time that moving the bytes takes, or computing, whichever is longer."""
        compute = (
            cost.bit_operations / self.bit_operations
            + cost.float_operations / self.float_operations
        )
        return max(cost.bytes / self.byte_rate(cost.bytes), compute)


def median_seconds(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median time of a call, behind one untimed call."""
    return statistics.median(_seconds(call, device, repeats))


def _seconds(call: Callable[[], object], device: torch.device, repeats: int) -> list[float]:
    found = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - start)
    return found[1:]


def measured_rates(device: torch.device) -> Rates:
    """Rates of a device, measured once in a process for each number of threads."""
    return _measured(device, torch.get_num_threads())


@lru_cache
def _measured(device: torch.device, threads: int) -> Rates:
    def fastest(call: Callable[[], object]) -> float:
        return min(_seconds(call, device, REPEATS))

    with torch.inference_mode():
        moved = {}
        for size in MOVED_BYTES:
            data, copy = torch.zeros(2, size // 2, dtype=torch.uint8, device=device)
            moved[size] = size / fastest(partial(copy.copy_, data))
        operations = 2 * SIDE**3
        words = torch.zeros(SIDE, SIDE // 32, dtype=torch.int32, device=device)
        product = torch.ops.bitgnn.bmm_bbf.default
        bits = operations / fastest(lambda: product(words, words, SIDE))
        floats = torch.ones(SIDE, SIDE, device=device)
        return Rates(moved, bits, operations / fastest(lambda: floats @ floats))
