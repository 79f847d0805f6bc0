"""Packed rows in PyG's Data and HeteroData, which cut, join and count them as tensors."""

from __future__ import annotations

import sys
from typing import Any

import torch

from bitgnn.bits.rows import PackedRows

_STORAGE = "torch_geometric.data.storage"


class _State:
    """True once PyG's storages know packed rows."""

    is_known = False


def teach_storages() -> None:
    """Make PyG's storages hold packed rows by their :meth:`~PackedRows.as_features`.

    PyG looks for attributes with one row a node only among tensors, and passes any other object on
    whole: a batch would hold the features of all nodes. Nothing is done, and PyG is not imported,
    as long as it is not there.
    """
    if torch.compiler.is_compiling() or _State.is_known or _STORAGE not in sys.modules:
        return
    base: Any = getattr(sys.modules[_STORAGE], "BaseStorage", None)
    if base is None:  # the module is being imported
        return
    hold = base.__setitem__

    def hold_as_tensor(self: Any, key: str, value: Any) -> None:
        if isinstance(value, PackedRows):
            value = value.as_features()
        hold(self, key, value)

    base.__setitem__ = hold_as_tensor
    _State.is_known = True
