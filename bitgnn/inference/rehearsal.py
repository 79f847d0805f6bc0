"""Runs the calls of a frozen model on tensors without memory, to count what they would hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from bitgnn.inference.bound_program import Inputs
from bitgnn.inference.frozen_model import FrozenModel, Graph
from bitgnn.ops.route import DeviceDescription, route

META = torch.device("meta")


@dataclass(frozen=True)
class CallMemory:
    """Bytes while a call runs: of values that calls hand on, its own among them, and beside them.

    ``workspace`` is what the call takes at most at once.
    """

    activations: int
    workspace: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.activations + self.workspace


@torch.no_grad()
def rehearse(
    model: FrozenModel,
    x: Inputs,
    adjacency: Graph | None,
    device: str | torch.device | DeviceDescription | None,
) -> list[CallMemory]:
    """What each call of ``model(x, adjacency)`` would hold, in order, without running a kernel.

    Of ``x`` only the shapes count. What Python derives from the graph's pattern, such as the order
    of its rows, is made and kept as in a forward. The kernels of ``device`` take scratch memory,
    see :func:`bitgnn.ops.route.route`; None leaves that out. The model may hold no user's code.
    """
    graphs = model._adjacencies(adjacency, x.shape[0])
    executable, values = model._start(x)
    values = [_imagined(value) if isinstance(value, Tensor) else value for value in values]
    found = []
    with _Counting(device) as counting:
        for run in executable.runners:
            if not any(run is call for call in executable.calls):  # lets go of values
                run(values, graphs)
                continue
            before = counting.start()
            run(values, graphs)
            activations = before + counting.made()
            found.append(CallMemory(activations, counting.most - activations))
    return found


class _Counting(TorchDispatchMode):
    """Keeps count of the tensors that calls make, which have shapes but no memory.

    Operators on packed bits, and whatever reads their results, run on the meta device. What is
    made of a graph's tensors alone is computed, since later shapes may depend on it.
    """

    def __init__(self, device: str | torch.device | DeviceDescription | None) -> None:
        super().__init__()
        self.device = device
        self.most = 0
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}
        self._before: frozenset[int] = frozenset()

    def start(self) -> int:
        """A call begins; bytes held before it."""
        self.most = self._held()
        self._before = frozenset(self._live)
        return self.most

    def made(self) -> int:
        """Bytes that the call has left behind."""
        self._held()
        return sum(n for key, (_, n) in self._live.items() if key not in self._before)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        read = _tensors((args, kwargs))
        is_own, makes = func.namespace == "bitgnn", func is torch.ops.aten.empty.memory_format
        if is_own or makes or any(tensor.is_meta for tensor in read):
            args, kwargs = tree_map_only(Tensor, _imagined, (args, kwargs))
            if makes or kwargs.get("device") is not None:
                kwargs["device"] = META
        scratch = 0
        if is_own and self.device is not None:
            name = func._schema.name.split("::")[1]
            scratch = route(name, *args, device=self.device, **kwargs).scratch_bytes
        result = func(*args, **kwargs)
        known = {tensor.untyped_storage()._cdata for tensor in read} | self._live.keys()
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            if storage._cdata not in known:  # no view of what was read
                self._live[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.most = max(self.most, self._held() + scratch)
        return result

    def _held(self) -> int:
        """Bytes of what is still there."""
        self._live = {key: kept for key, kept in self._live.items() if not kept[0].expired()}
        return sum(nbytes for _, nbytes in self._live.values())


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _imagined(tensor: Tensor) -> Tensor:
    """A tensor on the meta device in its place."""
    if tensor.is_meta:
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)
