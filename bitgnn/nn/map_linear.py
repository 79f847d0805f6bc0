"""Linear maps inside of binary layers, called like any module so that hooks and pruning act."""

from __future__ import annotations

from collections.abc import Callable

import torch_geometric.nn
from torch import Tensor

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class MapLinear(torch_geometric.nn.Linear):
    """PyG's ``Linear`` that may compute its product in another way."""

    @property
    def is_hooked(self) -> bool:
        """True where somebody put a hook on it; pruning and weight norms are hooks, too."""
        return any(vars(self).get(name) for name in HOOKS)

    def forward(self, x: Tensor, compute: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """``x W^T + b``, or ``compute(x)``."""
        if compute is not None:
            return compute(x)
        out: Tensor = super().forward(x)
        return out

    def through(self, x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """``compute(x)`` with all hooks on the map called around it."""
        if not self.is_hooked:
            return compute(x)
        out: Tensor = self(x, compute)
        return out

    def __repr__(self) -> str:
        # That of PyG's layer, whose place it takes.
        return super().__repr__().replace(type(self).__name__, "Linear", 1)
