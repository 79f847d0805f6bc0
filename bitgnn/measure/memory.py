"""Memory of a forward: bytes of the tensors something keeps, and the allocator's peak on top."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

MEMORY_EVENT = "[memory]"
LEVEL_VARIABLE, SILENT = "KINETO_LOG_LEVEL", "6"
"""Below this level the profiler's library tells stderr when it starts and stops; it reads the level
once, when it is first used."""


def peak_allocation(fn: Callable[[], Any]) -> int:
    """Largest number of bytes torch's CPU allocator had handed out at once during ``fn()``.

    Counted from zero at the call, so it is what the call needs beyond what exists already; its
    result is included. Memory that kernels take elsewhere (small C++ vectors) is not seen.
    """
    with (
        _silent_profiler(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded,
    ):
        fn()
    events = [
        (event.start_ns(), event.nbytes())
        for event in recorded.profiler.kineto_results.events()
        if event.name() == MEMORY_EVENT
    ]
    current = peak = 0
    for _, change in sorted(events, key=lambda event: event[0]):
        current += change
        peak = max(peak, current)
    return peak


@contextlib.contextmanager
def _silent_profiler() -> Iterator[None]:
    """Nothing is told unless the user wants it."""
    if LEVEL_VARIABLE in os.environ:
        yield
        return
    os.environ[LEVEL_VARIABLE] = SILENT
    try:
        yield
    finally:
        del os.environ[LEVEL_VARIABLE]


def cuda_peak_allocation(fn: Callable[[], Any]) -> int:
    """Largest number of bytes torch's CUDA allocator had handed out at once during ``fn()``.

    Counted as :func:`peak_allocation` does, on the current device.
    """
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = fn()
    torch.cuda.synchronize()
    del result
    return torch.cuda.max_memory_allocated() - before


def stored_bytes(*things: Any) -> int:
    """Bytes of all tensors kept by ``things``, each storage once.

    Looks into modules, containers and the attributes of objects (``BitTensor``,
    ``BitAdjacency`` with its cached layouts, ``SparseTensor``, data classes).
    """
    storages: dict[int, int] = {}
    for tensor in _tensors(list(things), set()):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def _tensors(thing: Any, seen: set[int]) -> Iterator[Tensor]:
    is_code = callable(thing) and not isinstance(thing, torch.nn.Module)
    if id(thing) in seen or is_code or isinstance(thing, (str, bytes, ModuleType)):
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor) and not _is_wrapper(thing):
        yield from dense_parts(thing)
    elif isinstance(thing, Mapping):
        for value in thing.values():
            yield from _tensors(value, seen)
    elif isinstance(thing, (list, tuple, set, frozenset)):
        for value in thing:
            yield from _tensors(value, seen)
    else:
        for name in _attributes(thing):
            yield from _tensors(getattr(thing, name, None), seen)


def _is_wrapper(tensor: Tensor) -> bool:
    """Whether the values lie in other tensors, which are attributes."""
    return type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__


def dense_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """The dense tensors that a dense or sparse one is made of."""
    if tensor.layout == torch.sparse_csr:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout == torch.sparse_csc:
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    if tensor.layout == torch.sparse_coo:
        return tensor._indices(), tensor._values()
    return (tensor,)


def _attributes(thing: Any) -> Iterator[str]:
    """Names of the instance attributes of ``thing``, slots included."""
    yield from list(getattr(thing, "__dict__", {}))
    for kind in type(thing).__mro__:
        slots = getattr(kind, "__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
