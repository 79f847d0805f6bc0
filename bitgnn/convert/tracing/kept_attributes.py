"""Leaves the attributes of modules as they were before their code was traced."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

__all__ = ["attributes_kept"]

CONSTANT = "_tensor_constant"
"""Names that begin so are torch.fx's own, for tensors that a forward makes of plain numbers."""


@contextmanager
def attributes_kept(root: nn.Module) -> Iterator[None]:
    """Put back what code that runs inside sets, appends or deletes in the modules of ``root``.

    A trace runs the user's forward on stand-ins for tensors, and a forward may keep what it sees.
    """
    held: list[tuple[Any, Any]] = []
    for module in root.modules():
        # With parameters, buffers and children, which are dictionaries among them.
        containers = [value for value in vars(module).values() if type(value) in (dict, list, set)]
        held.extend((one, copy.copy(one)) for one in (vars(module), *containers))
    try:
        yield
    finally:
        for container, before in held:
            _put_back(container, before)


def _put_back(container: Any, before: Any) -> None:
    if isinstance(container, list):
        container[:] = before
    elif isinstance(container, set):
        container.clear()
        container.update(before)
    else:
        for key in [key for key in container if key not in before]:
            if not str(key).startswith(CONSTANT):
                del container[key]
        for key, value in before.items():
            if key not in container or container[key] is not value:
                container[key] = value
