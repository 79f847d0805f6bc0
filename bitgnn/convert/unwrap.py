"""The module inside of torch's wrappers: compiled models and data-parallel ones."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["is_compiled", "unwrapped"]

PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def is_compiled(module: nn.Module) -> bool:
    """Whether a module is the result of ``torch.compile``."""
    # The class itself is in a module of torch whose import takes seconds.
    return type(module).__name__ == "OptimizedModule"


def unwrapped(model: Any) -> nn.Module:
    """The user's module inside of ``torch.compile`` and of data-parallel wrappers.

    Args:
        model: wrapped any number of times, or not at all.
    """
    while isinstance(model, PARALLEL) or is_compiled(model):
        model = model.module if isinstance(model, PARALLEL) else model._orig_mod
    return model
