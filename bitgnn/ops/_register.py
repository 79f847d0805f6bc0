"""Registers the reference wherever no compiled kernel exists, and the fake kernels."""

import warnings
from collections.abc import Callable
from typing import Any

import torch

from bitgnn import _library
from bitgnn.ops._fake import FAKES
from bitgnn.ops._fake_calls import on_one_device
from bitgnn.ops.reference import OPERATORS

# The library object keeps the registrations alive.
_LIBRARY = torch.library.Library("bitgnn", "FRAGMENT")


def register() -> None:
    """Load the compiled operators, define those they lack, and register fallbacks and fakes.

    A compiled CPU or CUDA kernel takes precedence over the fallback, which serves every other
    device. Operators are for inference: the Autograd key is a fall-through, so results never
    require gradients.
    """
    cpu, _, problem = _library.load_libraries()
    lacking = [name for name in OPERATORS if not torch._C._dispatch_has_kernel(f"bitgnn::{name}")]
    if cpu is not None and lacking:
        problem = f"{cpu} lacks {lacking}: it belongs to another version. Reinstall bitgnn."
    if lacking and not _library.library_info().disabled:
        # Four frames up is the user's own import of bitgnn.
        warnings.warn(
            f"bitgnn runs its slow reference operators. {problem}", RuntimeWarning, stacklevel=4
        )
    for name, function in OPERATORS.items():
        if name in lacking:
            _LIBRARY.define(name + torch.library.infer_schema(function, mutates_args=()))
        fallback = function if name in lacking else _announced(name, function)
        # Without no_grad PyTorch would record the reference's own operations for autograd.
        if name in OPERATORS:
            _LIBRARY.impl(name, torch.no_grad()(fallback), "CompositeExplicitAutograd")
        elif name in lacking:
            _LIBRARY.impl(name, torch.no_grad()(fallback), "CPU")
        _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
        fake = on_one_device(name, FAKES[name])
        torch.library.register_fake(f"bitgnn::{name}", fake, lib=_LIBRARY)
    # What has no reference exists only where it was compiled.
    for name in FAKES.keys() - OPERATORS.keys():
        if torch._C._dispatch_has_kernel(f"bitgnn::{name}"):
            fake = on_one_device(name, FAKES[name])
            torch.library.register_fake(f"bitgnn::{name}", fake, lib=_LIBRARY)


def _announced(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The reference, telling once per device type that no compiled kernel serves it."""

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
        return function(*arguments, **keywords)

    return fallback


_ANNOUNCED: set[str] = set()
