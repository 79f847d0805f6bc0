"""What the allocator was asked for at once during a forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bitgnn.measure.memory import peak_allocation
from bitgnn.ops.buffers import no_buffer_cache

__all__ = ["forward_peak"]


def forward_peak(forward: Callable[[], Any], device: torch.device) -> tuple[int, int]:
    """Most bytes asked for at once beyond what existed before, and what their blocks had more.

    Args:
        forward: has run before, so that caches and layouts are there.
        device: where it runs.
    """
    if device.type == "cuda":
        return _cuda_peak(forward, device)
    # Results that the library keeps for reuse would not be seen.
    with no_buffer_cache():
        return peak_allocation(forward), 0


def _cuda_peak(forward: Callable[[], Any], device: torch.device) -> tuple[int, int]:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_stats(device)
    result = forward()
    torch.cuda.synchronize(device)
    after = torch.cuda.memory_stats(device)
    del result
    asked, handed_out = (
        after[f"{name}.all.peak"] - before[f"{name}.all.current"]
        for name in ("requested_bytes", "allocated_bytes")
    )
    return asked, handed_out - asked
