"""Registers the reference wherever no compiled kernel exists, and the fake kernels."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bitgnn import _library
from bitgnn.ops.reference.table import HOST_TABLE, TABLE, on_one_device

# The library object keeps the registrations alive.
_LIBRARY = torch.library.Library("bitgnn", "FRAGMENT")


def register() -> None:
    """Load the compiled operators, define those they lack, and register fallbacks and fakes.

    A compiled CPU or CUDA kernel takes precedence over the fallback, which serves every other
    device. Operators are for inference: the Autograd key is a fall-through, so results never
    require gradients.
    """
    cpu, _, problem = _library.load_libraries()
    rows = TABLE | HOST_TABLE
    lacking = [name for name in rows if not _has_kernel(name)]
    if cpu is not None and lacking:
        problem = f"{cpu} lacks {lacking}: it belongs to another version. Reinstall bitgnn."
    if lacking and not _library.library_info().disabled:
        # Four frames up is the user's own import of bitgnn.
        warnings.warn(
            f"bitgnn runs its slow reference operators. {problem}", RuntimeWarning, stacklevel=4
        )
    for name, row in rows.items():
        function = row.reference
        if name in lacking:
            _LIBRARY.define(name + torch.library.infer_schema(function, mutates_args=()))
        # On other devices than the CPU, references of HOST_TABLE are errors.
        announces = name not in lacking and name in TABLE
        fallback = _announced(name, function) if announces else function
        # Without no_grad PyTorch would record the reference's own operations for autograd.
        _LIBRARY.impl(name, torch.no_grad()(fallback), "CompositeExplicitAutograd")
        _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
        _register_fake(name, row.fake)
    # What has no reference exists only where it was compiled.
    if _has_kernel("csr_from_edges"):
        _register_fake("csr_from_edges", _csr_from_edges)
    if _has_kernel("run_recording"):
        _LIBRARY.impl("run_recording", torch.library.fallthrough_kernel, "Autograd")


def _has_kernel(name: str) -> bool:
    return torch._C._dispatch_has_kernel(f"bitgnn::{name}")


def _register_fake(name: str, fake: Callable[..., Any]) -> None:
    torch.library.register_fake(f"bitgnn::{name}", on_one_device(name, fake), lib=_LIBRARY)


def _csr_from_edges(
    sources: Tensor, destinations: Tensor, num_rows: int, num_cols: int, self_loops: bool = False
) -> tuple[Tensor, Tensor]:
    room = sources.size(0) + (num_rows if self_loops else 0)
    rowptr = sources.new_empty((num_rows + 1,), dtype=torch.int32)
    return rowptr, sources.new_empty((room,), dtype=torch.int32)


def _announced(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The reference, which warns once per device type that no compiled kernel exists."""

    def fallback(*arguments: Any, **keywords: Any) -> Any:
        device = arguments[0].device.type
        if device not in _ANNOUNCED:
            _ANNOUNCED.add(device)
            problem = _library.load_libraries()[2]
            warnings.warn(
                f"bitgnn::{name}: no compiled kernels for {device}; the slow reference runs. "
                f"{problem}",
                RuntimeWarning,
                stacklevel=2,
            )
        TABLE[name].check(*arguments, **keywords)
        return function(*arguments, **keywords)

    return fallback


_ANNOUNCED: set[str] = set()
