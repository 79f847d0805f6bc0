"""Rates of this machine that theoretical latencies rest on, measured on the spot by operators."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch

from bitgnn.inference.costs import StepCost

__all__ = ["Rates", "measured_rates", "median_seconds"]

COPY_BYTES = 2**25
SIDE = 1024
REPEATS = 7


@dataclass(frozen=True)
class Rates:
    """Work per second of one device with the present number of threads.

    Attributes:
        bytes: torch's copy of 32 MiB, read and written.
        bit_operations: the packed product of two 1024 x 1024 matrices.
        float_operations: torch's float32 product of two 1024 x 1024 matrices.
    """

    bytes: float
    bit_operations: float
    float_operations: float

    def seconds(self, cost: StepCost) -> float:
        """Time that moving the bytes takes, or computing, whichever is longer."""
        compute = (
            cost.bit_operations / self.bit_operations
            + cost.float_operations / self.float_operations
        )
        return max(cost.bytes / self.bytes, compute)


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
        data, copy = torch.zeros(2, COPY_BYTES, dtype=torch.uint8, device=device)
        moved = 2 * COPY_BYTES / fastest(lambda: copy.copy_(data))
        operations = 2 * SIDE**3
        words = torch.zeros(SIDE, SIDE // 32, dtype=torch.int32, device=device)
        product = torch.ops.bitgnn.bmm_bbf.default
        bits = operations / fastest(lambda: product(words, words, SIDE))
        floats = torch.ones(SIDE, SIDE, device=device)
        return Rates(moved, bits, operations / fastest(lambda: floats @ floats))
