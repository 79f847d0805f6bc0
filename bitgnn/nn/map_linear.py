"""Linear maps inside of binary layers, called like any module so that hooks and pruning act."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_geometric.nn
from torch import Tensor
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

MAKERS = (BasePruningMethod, WeightNorm, SpectralNorm)
"""Hooks of torch that compute a weight from other parameters before each forward."""
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def is_hooked(linear: torch.nn.Module) -> bool:
    """True if a map has hooks; those of pruning and weight norms count, too."""
    return any(map(vars(linear).get, HOOKS))


def is_watched(linear: torch.nn.Module) -> bool:
    """True if a hook does more than compute the weight."""
    hooks = (hook for name in HOOKS for hook in (vars(linear).get(name) or {}).values())
    return any(not isinstance(hook, MAKERS) for hook in hooks)


def remake_weight(linear: torch.nn.Module) -> None:
    """Let pruning and weight norms recompute the weight from their present parameters."""
    for hook in linear._forward_pre_hooks.values():
        if isinstance(hook, SpectralNorm):  # a call may go on with its iteration
            setattr(linear, hook.name, hook.compute_weight(linear, do_power_iteration=False))
        elif isinstance(hook, MAKERS):
            hook(linear, None)


def through(linear: torch.nn.Module, x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """``compute(x)`` with all hooks on a map called around it."""
    if not (isinstance(linear, MapLinear) and is_hooked(linear)):
        return compute(x)
    out: Tensor = linear(x, compute)
    return out


class MapLinear(torch_geometric.nn.Linear):
    """PyG's ``Linear`` with a replaceable product."""

    def forward(self, x: Tensor, compute: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """``x W^T + b``, or ``compute(x)``."""
        if compute is not None:
            return compute(x)
        out: Tensor = super().forward(x)
        return out

    def __repr__(self) -> str:
        # That of PyG's layer, whose place it takes.
        return super().__repr__().replace(type(self).__name__, "Linear", 1)
