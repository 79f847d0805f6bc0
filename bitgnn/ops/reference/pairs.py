"""Reference of the pairs of operators in one call: BMM + ADD, BMM + BSpMM and BSpMM + BMM.

Where the product between BMM and BSpMM is held as narrow integers, ``dot = 2 * half + (K & 1)``:
the half of a product of K signs has one bit less than the product. Without factors the sums are
exact integers. With them they are float32 sums in the order of :func:`canonical_sums`, which
depends on a row's degree alone, so that every backend gives the same bits.
"""

import torch
from torch import Tensor

from bitgnn.ops.reference._sums import canonical_sums, check_edges, row_sums
from bitgnn.ops.reference.bmm import _binary, _dot, bmm_bbb, bmm_bbf, bmm_fbb, bmm_fbf
from bitgnn.ops.reference.bspmm import bspmm_bbb, bspmm_bbf, bspmm_fbb, bspmm_fbf
from bitgnn.ops.reference.pack import decide, row_scale, signs, to_words
from bitgnn.ops.reference.table import CSR, EITHER_X, PACKED_W, PRODUCT, operator


def _float_product(
    x: Tensor,
    w: Tensor,
    size: int,
    x_scale: Tensor | None,
    w_scale: Tensor | None,
    bias: Tensor | None,
    x_threshold: Tensor | None,
    x_gain: Tensor | None,
    scale: bool,
) -> Tensor:
    """The product with float output for x as words (int32) or as values."""
    if x.dtype == torch.int32:
        return bmm_bbf(x, w, size, x_scale, w_scale, bias)
    # The weight's scale counts whether or not the rows of x have one.
    if scale or w_scale is None:
        return bmm_fbf(x, w, w_scale, bias, x_threshold, x_gain, scale)
    value = w_scale * bmm_fbf(x, w, None, None, x_threshold, x_gain, False)
    return value if bias is None else value + bias


@operator(f"{EITHER_X} {PACKED_W} addend:N,M {PRODUCT} -> out:N,M")
def bmm_add(
    x: Tensor,
    w: Tensor,
    addend: Tensor,
    size: int,
    x_scale: Tensor | None = None,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    x_threshold: Tensor | None = None,
    x_gain: Tensor | None = None,
    scale: bool = False,
    out_bits: bool = False,
) -> Tensor:
    """``(x_scale * w_scale) * dot + bias + addend`` ``[N, M]``, or words of its comparison."""
    value = _float_product(x, w, size, x_scale, w_scale, bias, x_threshold, x_gain, scale) + addend
    if not out_bits:
        return value
    return to_words(decide(value, threshold, flip))


@operator(f"{EITHER_X} {PACKED_W} {CSR} col:N {PRODUCT} -> out:P-1,M")
def bmm_bspmm(
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
    threshold: Tensor | None = None,
    hidden_bits: bool = True,
    out_bits: bool = False,
    trusted: bool = False,
) -> Tensor:
    """The product, as bits or floats between, aggregated to floats or words."""
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    if hidden_bits:
        if x.dtype == torch.int32:
            hidden = bmm_bbb(x, w, size)
        else:
            hidden = bmm_fbb(x, w, x_threshold=x_threshold, scale=False)
        if out_bits:
            return bspmm_bbb(hidden, w.size(0), rowptr, indices, row, threshold, True)
        return bspmm_bbf(hidden, w.size(0), rowptr, indices, row, bias, trusted=True)
    hidden = _float_product(x, w, size, x_scale, w_scale, None, x_threshold, x_gain, scale)
    if out_bits:
        return bspmm_fbb(hidden, rowptr, indices, row, col, threshold, True)
    return bspmm_fbf(hidden, rowptr, indices, row, col, bias, trusted=True)


JOINT = "x:P-1,W(size) w:M,W(size) sum_bias:M x_scale:P-1 w_scale:M neighbours:_,W(M) " + PRODUCT
"""Operands beside a layout's."""


@operator(f"{CSR} {JOINT} -> bits:P-1,M")
def bspmm_bmm(
    neighbours: Tensor,
    rowptr: Tensor,
    indices: Tensor,
    x: Tensor,
    w: Tensor,
    size: int,
    row: Tensor | None = None,
    sum_bias: Tensor | None = None,
    x_scale: Tensor | None = None,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    trusted: bool = False,
) -> Tensor:
    """Words of ``(x_scale * w_scale) * dot + bias + (row * sum + sum_bias) >= threshold``.

    ``sum`` is that of the words of ``neighbours`` over the pattern, ``dot`` of x times w; every
    float step is rounded on its own in the order of :func:`bspmm_bbf` and :func:`bmm_add`.
    """
    if not trusted:
        check_edges(rowptr, indices, neighbours.size(0))
    sums = bspmm_bbf(neighbours, w.size(0), rowptr, indices, row, sum_bias, trusted=True)
    return bmm_add(
        x, w, sums, size, x_scale, w_scale, bias, threshold, flip, None, None, False, True
    )


MAX_NARROW_SIZE = 65535
"""Features up to which the half of a product fits 16 bits; wider ones take float rows."""

_ROOT = "root:R,W(root_size) root_w:M,W(root_size) root_scale:R root_w_scale:M root_bias:M"
_NARROW = f"{EITHER_X} {PACKED_W} {_ROOT} col:N bias:M"


HEADS = {"log_softmax": 1, "softmax": 2, "classes": 3}
"""Numbers of the heads in the operators; 0 for none."""


def finished(scores: Tensor, head: int) -> Tensor:
    """Scores ``[N, C]`` with a head.

    Args:
        scores: float32 ``[N, C]``.
        head: 0 for the scores, else of :data:`HEADS`: ``log_softmax`` or ``softmax`` over the
            features, or ``classes``, int64 ``[N]``, the index of the largest score, the first of
            equal ones and the first NaN where there is one.
    """
    if head == HEADS["log_softmax"]:
        return scores.log_softmax(-1)
    if head == HEADS["softmax"]:
        return scores.softmax(-1)
    return scores.argmax(-1) if head == HEADS["classes"] else scores


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
    of the scores: :func:`~bitgnn.ops.reference.pairs.finished`. ``order`` (as
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
