"""Memory of a forward: bytes of the tensors something keeps, and the allocator's peak on top."""

from __future__ import annotations

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
    is_silenced = LEVEL_VARIABLE not in os.environ  # the user may want to be told
    if is_silenced:
        os.environ[LEVEL_VARIABLE] = SILENT
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            fn()
    finally:
        if is_silenced:
            del os.environ[LEVEL_VARIABLE]
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


def cuda_peak_request(fn: Callable[[], Any], device: torch.device) -> tuple[int, int]:
    """Peak of the bytes that ``fn()`` requests on a device, and the overhead of their blocks."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_stats(device)
    result = fn()
    torch.cuda.synchronize(device)
    after = torch.cuda.memory_stats(device)
    del result
    asked, handed_out = (
        after[f"{name}.all.peak"] - before[f"{name}.all.current"]
        for name in ("requested_bytes", "allocated_bytes")
    )
    return asked, handed_out - asked


def cuda_peak_allocation(fn: Callable[[], Any]) -> int:
    """Measure :func:`peak_allocation` with torch's CUDA allocator on the current device."""
    return sum(cuda_peak_request(fn, torch.device("cuda", torch.cuda.current_device())))


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
    inner: list[Any]
    if isinstance(thing, Tensor) and type(thing).__torch_dispatch__ is Tensor.__torch_dispatch__:
        yield from dense_parts(thing)
        return
    if isinstance(thing, Mapping):
        inner = list(thing.values())
    elif isinstance(thing, (list, tuple, set, frozenset)):
        inner = list(thing)
    else:  # wrappers of tensors hold their values in others
        inner = [getattr(thing, name, None) for name in _attributes(thing)]
    for value in inner:
        yield from _tensors(value, seen)


def _attributes(thing: Any) -> Iterator[str]:
    """Names of the instance attributes of ``thing``, slots included."""
    yield from getattr(thing, "__dict__", {})
    for kind in type(thing).__mro__:
        slots = getattr(kind, "__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def dense_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """The dense tensors that a dense or sparse one is made of."""
    if tensor.layout == torch.sparse_csr:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout == torch.sparse_csc:
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    if tensor.layout == torch.sparse_coo:
        return tensor._indices(), tensor._values()
    return (tensor,)
