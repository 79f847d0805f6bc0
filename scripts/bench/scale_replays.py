"""Forwards of several ranks again and again: results must stay the same, and memory with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

AT_ONCE = 100
"""Forwards between two looks at the clock and at memory."""


def replays_record(
    run: Callable[[], torch.Tensor], device: torch.device, replays: int, seconds: float
) -> dict[str, Any]:
    """So many forwards at least, for so long at least; ``differing`` values of all ranks."""
    first = run().clone()
    differing = torch.zeros((), dtype=torch.int64, device=device)
    free, begin, count, is_over = [_free(device)], time.monotonic(), 0, False
    while not is_over:
        for _ in range(min(AT_ONCE, replays)):
            differing += (run() != first).sum()
            count += 1
        free.append(_free(device))
        took = time.monotonic() - begin
        # All ranks go on as long as one of them does.
        done = torch.tensor(int(count >= replays and took >= seconds), device=device)
        dist.all_reduce(done, dist.ReduceOp.MIN)
        is_over = bool(done)
    dist.all_reduce(differing)
    lost = torch.tensor([free[0] - min(free), free[1] - free[-1]], device=device)
    dist.all_reduce(lost, dist.ReduceOp.MAX)
    return {
        "replays": count, "seconds": took, "ms": 1e3 * took / count, "differing": int(differing),
        "bytes_taken": int(lost[0]), "bytes_lost": int(lost[1]),
    }  # fmt: skip


def _free(device: torch.device) -> int:
    """Bytes that a GPU has left, once it has done its work; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize()
    return int(torch.cuda.mem_get_info()[0])
