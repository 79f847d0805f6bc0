"""The module inside of torch's wrappers: compiled models and data-parallel ones."""

from __future__ import annotations

from torch import nn

__all__ = ["unwrapped"]


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's module inside of ``torch.compile`` and of data-parallel wrappers.

    Args:
        model: wrapped any number of times, or not at all.
    """
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner
