"""Checks shared by the Python operators; messages name function, argument, found and expected."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.bits import BitTensor, TernaryTensor
from bitgnn.ops.reference.table import TABLE, size_of


def call(function: str, operator: str, *arguments: Any, **keywords: Any) -> Any:
    """Run an operator, which checks its arguments; errors name the function and the argument."""
    if torch.compiler.is_compiling() or not is_compiled(operator):
        _check_row(function, operator, arguments)
        return getattr(torch.ops.bitgnn, operator)(*arguments, **keywords)
    try:
        return _OVERLOADS[operator](*arguments, **keywords)
    except (RuntimeError, TypeError):
        _check_row(function, operator, arguments)
        raise


_OVERLOADS: dict[str, Any] = {}
"""Compiled operators by name: to look one up in torch costs as much as to run it."""
_PARAMETERS = {"codes": "x", "weight": "w"}
"""Parameters of functions by arguments of operators, where these are called otherwise."""


def is_compiled(operator: str) -> bool:
    """True if an operator checks its arguments itself, as its reference does not."""
    if operator not in _OVERLOADS:
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"bitgnn::{operator}", "CPU"):
            return False
        _OVERLOADS[operator] = getattr(torch.ops.bitgnn, operator).default
    return True


def _check_row(function: str, operator: str, arguments: Sequence[Any]) -> None:
    """Require operands to be what the operator's row of the table says.

    Words are those of packed operands, whose features the function compares itself.
    """
    row = TABLE[operator]
    given = dict(zip(row.parameters, arguments, strict=False))
    sizes: dict[str, Any] = {}
    for name, terms in row.operands.items():
        value = given.get(name)
        if value is None and row.parameters[name]:
            continue
        shown = _PARAMETERS.get(name, name)
        if not (isinstance(value, Tensor) and value.dtype in row.dtypes[name]):
            dtypes = " or ".join(map(str, row.dtypes[name]))
            raise TypeError(
                f"{function}: {shown} must be a {dtypes} tensor, got {name_type(value)}"
            )
        found = list(value.shape)
        is_packed = value.dtype == torch.int32 and any("W(" in term for term in terms)
        wanted = [None if term == "_" else size_of(term, given, sizes) for term in terms]
        if len(found) == len(terms):
            sizes.update({t: n for t, n in zip(terms, found, strict=True) if t not in sizes})
            wanted = [n if w is None else w for n, w in zip(found, wanted, strict=True)]
        if found != wanted and not is_packed:
            shape = ", ".join(
                t if w is None else str(w) for t, w in zip(terms, wanted, strict=False)
            )
            raise ValueError(f"{function}: {shown} must have shape [{shape}], got {found}")
        same_device(function, shown, value.device, arguments[0].device)


def float_matrix(
    function: str,
    name: str,
    x: Tensor,
    check_finite: bool = False,
    also: tuple[torch.dtype, ...] = (),
) -> None:
    """Require a dense matrix, floating-point or of a dtype in ``also``, finite where asked for."""
    if not (
        isinstance(x, Tensor)
        and (x.is_floating_point() or x.dtype in also)
        and x.layout == torch.strided
    ):
        raise TypeError(
            f"{function}: {name} must be a dense floating-point tensor"
            f"{''.join(f' or {dtype}' for dtype in also)}, got {name_type(x)}"
        )
    if x.dim() != 2:
        raise ValueError(f"{function}: {name} must have two dimensions, got shape {list(x.shape)}")
    if check_finite and not bool(torch.isfinite(x).all()):
        raise ValueError(f"{function}: {name} must be finite, got NaN or infinity")


def packable_matrix(function: str, name: str, x: Tensor, check_finite: bool = False) -> None:
    """Require a matrix that can be packed: dense, floating-point or uint8."""
    float_matrix(function, name, x, check_finite, also=(torch.uint8,))


def bit_matrix(function: str, name: str, x: BitTensor) -> None:
    """Require a BitTensor."""
    if not isinstance(x, BitTensor):
        raise TypeError(f"{function}: {name} must be a BitTensor, got {name_type(x)}")


def ternary_matrix(function: str, name: str, x: TernaryTensor) -> None:
    """Require a TernaryTensor of two dimensions."""
    if not isinstance(x, TernaryTensor):
        raise TypeError(f"{function}: {name} must be a TernaryTensor, got {name_type(x)}")
    if len(x.shape) != 2:
        raise ValueError(f"{function}: {name} must have two dimensions, got shape {list(x.shape)}")


def bit_pair(function: str, a: BitTensor, b: BitTensor) -> None:
    """Require two BitTensors on one device."""
    bit_matrix(function, "a", a)
    bit_matrix(function, "b", b)
    same_device(function, "b", b.words.device, a.words.device)


def float_pair(function: str, a: Tensor, b: Tensor, check_finite: bool) -> None:
    """Require two dense matrices of floats on one device."""
    float_matrix(function, "a", a, check_finite)
    float_matrix(function, "b", b, check_finite)
    same_device(function, "b", b.device, a.device)


def same_device(function: str, name: str, found: torch.device, expected: torch.device) -> None:
    """Require an operand to be on the device of the first one."""
    if found != expected:
        raise ValueError(
            f"{function}: {name} must be on {expected} like the first operand, got {found}"
        )


def vector(
    function: str,
    name: str,
    value: Tensor | None,
    size: int,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Require None or a vector of ``size`` elements of ``dtype`` on ``device``."""
    if value is None:
        return
    if not (isinstance(value, Tensor) and value.dtype == dtype):
        raise TypeError(f"{function}: {name} must be a {dtype} tensor, got {name_type(value)}")
    if not (value.dim() == 1 and value.size(0) == size):
        raise ValueError(f"{function}: {name} must have shape [{size}], got {list(value.shape)}")
    same_device(function, name, value.device, device)


def no_bias_with_integer(function: str, bias: Tensor | None, integer: bool) -> None:
    """Refuse a bias with integer results, which are plain sums."""
    if integer and bias is not None:
        raise ValueError(
            f"{function}: bias must be None with integer=True, which returns plain sums"
        )
