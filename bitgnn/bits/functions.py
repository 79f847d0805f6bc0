"""cat() and stack() of packed tensors, PyTorch's functions that take them, and set bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.bits.adjacency import BitAdjacency
from bitgnn.bits.layouts import offsets, pointer_dtype
from bitgnn.bits.rows import FUNCTIONS, PackedRows
from bitgnn.bits.tensor import BitTensor

Packed = TypeVar("Packed", bound=PackedRows)

_ROWS_AT_ONCE = 1 << 14


def cat(tensors: Sequence[Packed], dim: int = 0, *, out: Packed | None = None) -> Packed:
    """Join the rows of packed tensors, as ``torch.cat``.

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
    """Stack packed rows or images into one packed tensor, as ``torch.stack``.

    Args:
        tensors: of one kind, shape and device; rows of ``BitTensor``, single images of
            ``BitImages``, ternary or boolean ones of any shape.
        dim: 0, the new dimension, since features are packed.
        out: written to and returned, where given.

    Raises:
        TypeError: as :func:`cat`.
        ValueError: as :func:`cat`, or the result would have more dimensions than the kind has.
    """
    parts = _checked("stack", tensors)
    first = parts[0]
    if dim not in (0, -first.dim() - 1):
        raise ValueError(f"stack: dim must be 0, since features are packed, got {dim}")
    if first._has_rows() and not first.ANY_DIMS:
        raise ValueError(
            f"stack: tensors must be single rows or images of {first.NAME}, got shape "
            f"{list(first.shape)}; cat joins those"
        )
    _same("stack", parts, lambda part: list(part.shape), "must have shape")
    return _into(out, first._joined("stack", parts, torch.stack))


def _index_select(x: Packed, dim: int, index: Tensor, *, out: Packed | None = None) -> Packed:
    if not isinstance(x, PackedRows):
        raise TypeError(f"index_select: input must be packed like the others, got {name_type(x)}")
    return _into(out, x.index_select(dim, index))


FUNCTIONS.update(
    {
        "cat": cat,
        "concat": cat,
        "concatenate": cat,
        "stack": stack,
        "index_select": _index_select,
        "equal": lambda x, other: isinstance(x, PackedRows) and x.equal(other),
        "clone": lambda x, memory_format=torch.preserve_format: x.clone(
            memory_format=memory_format
        ),
        "detach": lambda x: x.detach(),
        "alias": lambda x: x.detach(),
    }
)


def _checked(name: str, tensors: Any) -> list[Any]:
    """A list of at least one packed tensor, all of one kind and device."""
    parts = list(tensors)
    if not parts:
        raise ValueError(f"{name}: tensors must not be empty")
    kind = getattr(parts[0], "NAME", None)
    wanted = f"{'an' if kind[0] == 'I' else 'a'} {kind}" if kind else "packed"
    for place, part in enumerate(parts):
        if not isinstance(part, PackedRows) or kind != part.NAME:
            raise TypeError(
                f"{name}: tensors[{place}] must be {wanted} like the others, got {name_type(part)}"
            )
    _same(name, parts, lambda part: part.device, "must be on")
    return parts


def _same(name: str, parts: list[Any], of: Callable[[Any], Any], must: str) -> None:
    expected = of(parts[0])
    for place, part in enumerate(parts):
        if of(part) != expected:
            raise ValueError(
                f"{name}: tensors[{place}] {must} {expected} like the first, got {of(part)}"
            )


def _into(out: Packed | None, found: Packed) -> Packed:
    if out is None:
        return found
    targets, sources = out._tensors(), found._tensors()
    if out.NAME != found.NAME or out.shape != found.shape or len(targets) != len(sources):
        raise ValueError(f"out must be a {found.NAME} like the result, {found!r}, got {out!r}")
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
    return out


def set_bits(bits: BitTensor) -> BitAdjacency:
    """The positions of the set bits: ``pattern[i, k] = 1`` where feature ``k`` of row ``i`` is +1.

    With it a binary product needs only the weights of set bits,
    ``sum_k x[i, k] w[o, k] = 2 * sum_{k set} w[o, k] - sum_k w[o, k]``, which is BSpMM over this
    pattern. It is smaller and faster than the packed words where a row has fewer set bits than
    words, as with bag-of-words features.

    Args:
        bits: ``[N, size]``; the scale is left out.

    Returns:
        The pattern ``[N, size]`` without factors, columns ascending in each row.
    """
    words = bits.words
    counts = [torch.empty(0, dtype=torch.int64, device=words.device)]
    columns = [torch.empty(0, dtype=torch.int32, device=words.device)]
    for start in range(0, words.size(0), _ROWS_AT_ONCE):
        block = BitTensor(words[start : start + _ROWS_AT_ONCE], bits.size).to_float() > 0
        counts.append(block.sum(1))
        columns.append(block.nonzero()[:, 1].to(torch.int32))
    indices = torch.cat(columns)
    rowptr = offsets(torch.cat(counts)).to(pointer_dtype(len(indices)))
    return BitAdjacency(rowptr, indices, bits.size)


def select_rows(pattern: BitAdjacency, rows: Tensor) -> BitAdjacency:
    """Select rows of a pattern without factors, in the given order.

    Args:
        pattern: ``[M, N]``, as :func:`set_bits` makes it.
        rows: int64 ``[R]``, each in [0, M); a row may occur more than once.

    Returns:
        The pattern ``[R, N]``.
    """
    starts = pattern.rowptr[:-1].long()[rows]
    ends = offsets(pattern.rowptr.diff()[rows])
    # Entry e of row r in the result is entry e - ends[r] + starts[r] of the pattern.
    shift = torch.repeat_interleave(starts - ends[:-1], ends.diff())
    indices = pattern.indices[torch.arange(shift.numel(), device=rows.device) + shift]
    return BitAdjacency._trusted(
        ends.to(pointer_dtype(len(indices))), indices, pattern.num_cols, None, None
    )
