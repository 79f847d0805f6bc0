"""Walks over a model's modules: finds those to swap or pack, and replaces them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from torch import nn


def outermost(model: nn.Module, wanted: Callable[[nn.Module], bool]) -> dict[str, nn.Module]:
    """Outermost matching modules by name."""
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if wanted(module) and not is_inside(name, found):
            found[name] = module
    return found


def is_inside(name: str, others: Collection[str]) -> bool:
    """True if a module is part of another by name; every module is part of the model."""
    return any(name != other and (not other or name.startswith(f"{other}.")) for other in others)


def check_names(names: Collection[str], known: Collection[str]) -> None:
    """Refuse names of a configuration that are no layers."""
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ValueError(
            f"binarize: no layer that can be binary is named {unknown}, the model has "
            f"{sorted(known)}"
        )


def put_everywhere(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """The model with ``new`` in place of ``old`` under every name that this has, or ``new``."""
    if model is old:
        return new
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is old:
                setattr(parent, name, new)
    return model


PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def is_compiled(module: nn.Module) -> bool:
    """True if a module is the result of ``torch.compile``."""
    # The class itself is in a module of torch whose import takes seconds.
    return type(module).__name__ == "OptimizedModule"


def unwrapped(model: Any) -> nn.Module:
    """The user's module inside of ``torch.compile`` and of data-parallel wrappers."""
    while isinstance(model, PARALLEL) or is_compiled(model):
        model = model.module if isinstance(model, PARALLEL) else model._orig_mod
    return model
