"""Checks of inputs before anything is computed, for trained and frozen layers alike."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.bits import PackedRows


def check_floats(
    owner: str,
    name: str,
    x: Any,
    device: torch.device,
    dtypes: Collection[torch.dtype] | None = None,
) -> None:
    """Require a dense tensor of floats, or of the dtypes given, on the device of a layer."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{owner}: {name} must be a tensor, got {name_type(x)}")
    if x.layout != torch.strided or x.is_nested:
        got = "nested tensor" if x.is_nested else f"tensor of layout {x.layout}"
        raise TypeError(f"{owner}: {name} must be dense, got a {got}")
    if dtypes is None and not x.is_floating_point():
        raise TypeError(f"{owner}: {name} must hold floats, got {x.dtype}")
    if dtypes is not None and x.dtype not in dtypes:
        raise TypeError(f"{owner}: {name} must be float32, float16 or bfloat16, got {x.dtype}")
    if x.device != device:
        raise ValueError(f"{owner}: {name} must be on {device} like the layer, got {x.device}")


def check_input(owner: str, x: Any, takes_bytes: bool) -> None:
    """Require a dense tensor of floats, or of uint8 for a first layer in fixed point.

    Nothing in a transform of ``torch.func`` is let through.
    """
    if isinstance(x, Tensor):
        refuse_transforms(owner)
    is_dense = isinstance(x, Tensor) and x.layout == torch.strided
    if is_dense and (x.is_floating_point() or (takes_bytes and x.dtype == torch.uint8)):
        return
    wanted = "floats or uint8" if takes_bytes else "floats"
    got = f"{x.layout} tensor" if isinstance(x, Tensor) and x.is_floating_point() else name_type(x)
    raise TypeError(f"{owner}: input must be a dense tensor of {wanted}, got {got}")


def unpacked(x: Any) -> Any:
    """Features as floats, both sides of a pair; what is not packed stays as it is."""
    if isinstance(x, PackedRows):
        return x.to_float()
    is_pair = isinstance(x, tuple | list) and any(isinstance(side, PackedRows) for side in x)
    return tuple(unpacked(side) for side in x) if is_pair else x


def float_features(owner: str, x: Any) -> Any:
    """Features as floats, both sides of a pair; what is neither packed nor a tensor stays as it is.

    Raises:
        TypeError: a side holds integers, bools or complex numbers.
    """
    x = unpacked(x)
    for side in x if isinstance(x, tuple | list) else (x,):
        require_floats(owner, "x", side)
    return x


def require_floats(owner: str, name: str, x: Any) -> None:
    """Refuse tensors of anything but floats, whose dtype the result would have."""
    if isinstance(x, Tensor) and not x.is_floating_point():
        raise TypeError(f"{owner}: {name} must hold floats, got {x.dtype}; call {name}.float()")


def refuse_transforms(owner: str) -> None:
    """Refuse to run inside of a transform of ``torch.func``.

    Surrogate gradients, statistics that are kept and operators on packed bits have no rules there.
    """
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        raise RuntimeError(
            f"{owner}: a binary layer must not be called inside of a transform of torch.func "
            "(grad, vjp, jvp, vmap, jacrev); call backward() or torch.autograd.grad, one input at "
            "a time, or use precision 'fp32'"
        )


def as_pair(owner: str, x: Any) -> tuple[Any, Any]:
    """Features of sources and destinations, one of them perhaps None; the same for one tensor."""
    if isinstance(x, Tensor):
        return x, x
    sides = x if isinstance(x, tuple | list) else (x,)
    wrong = [side for side in sides if not isinstance(side, Tensor | None)]
    if sides is not x or wrong:
        raise TypeError(f"{owner}: x must be a tensor or a pair, got {name_type([*wrong, x][0])}")
    return x[0], x[1]
