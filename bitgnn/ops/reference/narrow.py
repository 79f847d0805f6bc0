"""Reference of BMM + BSpMM with the product held as narrow integers in between.

``dot = 2 * half + (K & 1)``: the half of a product of K signs has one bit less than the product.
Without factors the sums are exact integers. With them they are float32 sums in a canonical order
that depends on a row's degree alone, so that every backend gives the same bits.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from bitgnn.ops.reference._sums import check_edges, row_sums
from bitgnn.ops.reference.bmm import _binary, _dot
from bitgnn.ops.reference.fused import bmm_add, bmm_bspmm
from bitgnn.ops.reference.heads import HEADS, finished
from bitgnn.ops.reference.pack import row_scale, signs
from bitgnn.ops.reference.table import CSR, EITHER_X, PACKED_W, operator

MAX_NARROW_SIZE = 65535
"""Features up to which the half of a product fits 16 bits; wider ones take float rows."""

SUM_SLOTS = 8
"""Partial sums of a piece: slot ``s`` takes edges ``s, s + 8, s + 16, ...`` in that order."""

SUM_PIECE = 128
"""Edges of a piece; the pieces of a row are added up from the first to the last."""

_ROOT = "root:R,W(root_size) root_w:M,W(root_size) root_scale:R root_w_scale:M root_bias:M"
_NARROW = f"{EITHER_X} {PACKED_W} {_ROOT} col:N bias:M"


def canonical_sums(
    rowptr: Tensor, width: int, factor: Callable[[Tensor], Tensor], value: Callable[..., Tensor]
) -> Tensor:
    """Float32 ``[M, width]``: sums of ``factor(edges) * value(edges)`` in the canonical order.

    Edge ``p`` of a piece goes to slot ``p % 8`` by a fused multiply-add; the slots are folded as
    ``s[:4] + s[4:]``, then ``s[:2] + s[2:]``, then ``s[0] + s[1]``; pieces follow one another.
    """
    starts, ends, device = rowptr[:-1].long(), rowptr[1:].long(), rowptr.device
    pieces = -((starts - ends) // SUM_PIECE)
    row_of = torch.arange(len(starts), device=device).repeat_interleave(pieces)
    before = pieces.cumsum(0) - pieces
    begins = starts[row_of] + SUM_PIECE * (
        torch.arange(len(row_of), device=device) - before[row_of]
    )
    ends = ends[row_of]
    slots = torch.zeros(len(row_of), SUM_SLOTS, width, dtype=torch.float32, device=device)
    for position in range(min(SUM_PIECE, int((ends - begins).max()) if len(row_of) else 0)):
        taking = torch.nonzero(begins + position < ends).squeeze(1)
        edges, slot = begins[taking] + position, position % SUM_SLOTS
        # Exact in float64 but for the last rounding: a fused multiply-add.
        product = factor(edges).double().unsqueeze(1) * value(edges).double()
        slots[taking, slot] = (slots[taking, slot].double() + product).float()
    count = SUM_SLOTS
    while count > 1:
        count //= 2
        slots = slots[:, :count] + slots[:, count:]
    total = torch.zeros(len(starts), width, dtype=torch.float32, device=device)
    for piece in range(int(pieces.max()) if len(pieces) else 0):
        active = torch.nonzero(pieces > piece).squeeze(1)
        total[active] = total[active] + slots[before[active] + piece, 0]
    return total


def _scores(like: Tensor, rows: int, size: int, head: int) -> Tensor:
    """Scores without values, or what a head makes of them."""
    if head == HEADS["classes"]:
        return like.new_empty((rows,), dtype=torch.int64)
    return like.new_empty((rows, size), dtype=torch.float32)


@operator(
    f"{_NARROW} {CSR} order:P-1,2 shift:M",
    lambda x, w, rowptr, head: _scores(x, rowptr.size(0) - 1, w.size(0), head),
)
def bmm_bspmm_narrow(
    x: Tensor,
    w: Tensor,
    size: int,
    rowptr: Tensor,
    indices: Tensor,
    x_scale: Tensor | None = None,
    w_scale: Tensor | None = None,
    x_threshold: Tensor | None = None,
    x_gain: Tensor | None = None,
    scale: bool = False,
    row: Tensor | None = None,
    col: Tensor | None = None,
    bias: Tensor | None = None,
    head: int = 0,
    root: Tensor | None = None,
    root_w: Tensor | None = None,
    root_size: int = 0,
    root_scale: Tensor | None = None,
    root_w_scale: Tensor | None = None,
    root_bias: Tensor | None = None,
    order: Tensor | None = None,
    shift: Tensor | None = None,
    trusted: bool = False,
) -> Tensor:
    """``(row[i] * w_scale[o]) * sum_j f[j] * dot[j, o] + bias[o]``, ``f = x_scale * col``.

    A ``shift`` [M] of the product adds ``(row[i] * shift[o]) * sum_j f[j]`` in front of the bias.

    To that comes ``(root_scale[i] * root_w_scale[o]) * dot(root, root_w)[i, o] + root_bias[o]``
    where these packed rows are given, in the order of :func:`bmm_add`. ``head`` says what becomes
    of the scores: :func:`~bitgnn.ops.reference.heads.finished`. ``order`` (as
    :meth:`BitAdjacency.row_order` has it; compiled operators check it like the pattern) tells
    kernels which rows to begin with and changes nothing.
    """
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    if shift is not None and size > MAX_NARROW_SIZE:
        raise ValueError(
            f"bmm_bspmm_narrow: shift must be left out with more than {MAX_NARROW_SIZE} features, "
            f"got {size}"
        )
    own = (root, root_w, root_size, root_scale, root_w_scale, root_bias)
    if size > MAX_NARROW_SIZE:
        scores = bmm_bspmm(
            x, w, size, rowptr, indices, x_scale, w_scale, x_threshold, x_gain, scale, row, col,
            bias, hidden_bits=False, trusted=True,
        )  # fmt: skip
        return finished(_with_root(scores, *own), head)
    packed = x.dtype == torch.int32
    dot = _dot(signs(x, size) if packed else _binary(x, x_threshold), signs(w, size))
    if not packed and scale:
        x_scale = row_scale(x, x_threshold, x_gain)
    factor = col if x_scale is None else x_scale if col is None else x_scale * col
    if factor is None:
        sums = row_sums(rowptr, w.size(0), torch.int32, lambda edges: dot[indices[edges].long()])
        value, ones = sums.to(torch.float32), rowptr.diff().to(torch.float32).unsqueeze(1)
    else:
        value, ones = _weighted(dot, size, rowptr, indices, factor)
    value = _scaled(row, w_scale, value)
    if shift is not None:
        value = value + _scaled(row, shift, ones)
    return finished(_with_root(value if bias is None else value + bias, *own), head)


def _with_root(
    sums: Tensor,
    root: Tensor | None,
    root_w: Tensor | None,
    size: int,
    scale: Tensor | None,
    w_scale: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    if root is None or root_w is None:
        return sums
    return bmm_add(root, root_w, sums, size, scale, w_scale, bias)


def _scaled(row: Tensor | None, scale: Tensor | None, value: Tensor) -> Tensor:
    """``(row[i] * scale[o]) * value``, without what is None."""
    if row is None or scale is None:
        factor = scale if row is None else row.unsqueeze(1)
        return value if factor is None else factor * value
    return (row.unsqueeze(1) * scale) * value


def _weighted(
    dot: Tensor, size: int, rowptr: Tensor, indices: Tensor, factor: Tensor
) -> tuple[Tensor, Tensor]:
    """Sums of ``f * dot`` as ``2 * sum(f * half)``, ``sum(f)`` more where K is odd; and these."""
    halves = (dot >> 1).to(torch.float32)
    halves = torch.cat([halves, torch.ones_like(factor).unsqueeze(1)], dim=1)
    sums = canonical_sums(
        rowptr,
        halves.size(1),
        lambda edges: factor[indices[edges].long()],
        lambda edges: halves[indices[edges].long()],
    )
    value, ones = 2 * sums[:, :-1], sums[:, -1:]
    return value + ones if size % 2 else value, ones
