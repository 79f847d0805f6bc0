"""cat() and stack() of packed tensors, and the functions of PyTorch that take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.bits.rows import PackedRows

Packed = TypeVar("Packed", bound=PackedRows)


def cat(tensors: Sequence[Packed], dim: int = 0, *, out: Packed | None = None) -> Packed:
    """Rows of several packed tensors behind each other, as ``torch.cat``.

    Args:
        tensors: ``[N_i, ...]`` of one kind, of equal sizes but for the first, on one device; with
            a scale each, or none of them. The scale of ternary and boolean ones is the same.
        dim: 0, since features are packed; :func:`bitgnn.ops.concat` joins features.
        out: written to and returned, where given.

    Returns:
        ``[sum of N_i, ...]``.

    Raises:
        TypeError: the tensors are not of one packed kind.
        ValueError: there is none, or sizes, devices or scales do not fit, or ``dim`` is not 0.
    """
    parts = _checked("cat", tensors)
    parts[0]._check_dim("cat", dim)
    _same("cat", parts, lambda part: list(part.shape[1:]), "must have rows of shape")
    return _into(out, parts[0]._joined("cat", parts, torch.cat))


def stack(tensors: Sequence[Packed], dim: int = 0, *, out: Packed | None = None) -> Packed:
    """Packed rows or images as those of one packed tensor, as ``torch.stack``.

    Args:
        tensors: of one kind, shape and device; rows of ``BitTensor``, single images of
            ``BitImages``, ternary or boolean ones of any shape.
        dim: 0, since features are packed.
        out: written to and returned, where given.

    Returns:
        One dimension more, the first.

    Raises:
        TypeError: the tensors are not of one packed kind.
        ValueError: there is none, or sizes, devices or scales do not fit, or the result would
            have more dimensions than the kind has, or ``dim`` is not 0.
    """
    parts = _checked("stack", tensors)
    first = parts[0]
    check_value(
        dim in (0, -first.dim() - 1),
        lambda: f"stack: dim must be 0, since features are packed, got {dim}",
    )
    check_value(
        not (first.HAS_ONE_BATCH and first._has_rows()),
        lambda: (
            f"stack: tensors must be single rows or images of {first.NAME}, got shape "
            f"{list(first.shape)}; cat joins those"
        ),
    )
    _same("stack", parts, lambda part: list(part.shape), "must have shape")
    return _into(out, first._joined("stack", parts, torch.stack))


def index_select(x: Packed, dim: int, index: Tensor, *, out: Packed | None = None) -> Packed:
    """``x.index_select(dim, index)``, written to ``out`` where given."""
    check_type(
        isinstance(x, PackedRows),
        lambda: f"index_select: input must be packed like the others, got {name_type(x)}",
    )
    return _into(out, x.index_select(dim, index))


def equal(x: PackedRows, other: Any) -> bool:
    """``x.equal(other)``."""
    return isinstance(x, PackedRows) and x.equal(other)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cat": cat,
    "concat": cat,
    "concatenate": cat,
    "stack": stack,
    "index_select": index_select,
    "equal": equal,
    "clone": lambda x, memory_format=torch.preserve_format: x.clone(memory_format=memory_format),
    "detach": lambda x: x.detach(),
    "alias": lambda x: x.detach(),
}


def call(function: Any, args: Any, kwargs: Any) -> Any:
    """Implements ``__torch_function__`` of packed tensors.

    Raises:
        TypeError: the function is none of those that packed tensors have.
    """
    name = getattr(function, "__name__", str(function))
    if name not in _FUNCTIONS:
        raise _unknown(name)
    if "tensors" not in kwargs and "input" in kwargs:
        kwargs = dict(kwargs)
        args = (kwargs.pop("input"), *args)
    return _FUNCTIONS[name](*args, **kwargs)


def dispatch(operator: Any, args: Any, kwargs: Any) -> Any:
    """Implements ``__torch_dispatch__`` of packed tensors.

    Raises:
        TypeError: the operator is none of those that packed tensors have.
    """
    name = operator.overloadpacket.__name__
    if name not in _FUNCTIONS:
        raise _unknown(f"aten.{name}")
    return _FUNCTIONS[name](*args, **kwargs)


def _unknown(name: str) -> TypeError:
    return TypeError(f"{name}: not defined for packed values; call to_float() first")


def _checked(name: str, tensors: Any) -> list[Any]:
    """A list of at least one packed tensor, all of one kind and device."""
    parts = list(tensors)
    check_value(bool(parts), lambda: f"{name}: tensors must not be empty")
    kind = getattr(parts[0], "NAME", None)
    for place, part in enumerate(parts):
        check_type(
            isinstance(part, PackedRows) and kind == part.NAME,
            lambda place=place, part=part: (  # type: ignore[misc]
                f"{name}: tensors[{place}] must be {f'a {kind}' if kind else 'packed'} like the "
                f"others, got {name_type(part)}"
            ),
        )
    _same(name, parts, lambda part: part.device, "must be on")
    return parts


def _same(name: str, parts: list[Any], of: Callable[[Any], Any], must: str) -> None:
    expected = of(parts[0])
    for place, part in enumerate(parts):
        found = of(part)
        check_value(
            found == expected,
            lambda place=place, found=found: (  # type: ignore[misc]
                f"{name}: tensors[{place}] {must} {expected} like the first, got {found}"
            ),
        )


def _into(out: Packed | None, found: Packed) -> Packed:
    if out is None:
        return found
    check_value(
        out.NAME == found.NAME
        and out.shape == found.shape
        and len(out._tensors()) == len(found._tensors()),
        lambda: f"out must be a {found.NAME} like the result, {found!r}, got {out!r}",
    )
    for target, source in zip(out._tensors(), found._tensors(), strict=True):
        target.copy_(source)
    return out
