"""Pairs of operators in one call: BMM + ADD and BMM + BSpMM.

``x`` ``[N, K]`` is a ``BitTensor`` or a dense matrix that is binarised inside, ``w`` ``[M, K]`` a
``BitTensor``. Both pairs equal the two operators one after the other (see ``bmm``, ``bspmm`` and
``add``) and save a call and, for BMM + ADD, a pass over the sum.

Every function raises TypeError (type, dtype) or ValueError (shape, device, value) before any
kernel runs. Operators are for inference: results carry no gradient.
"""

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops.bmm import check_operands
from bitgnn.ops.bspmm import check_pattern


def bmm_add(
    x: Tensor | BitTensor,
    w: BitTensor,
    addend: Tensor,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    x_threshold: Tensor | None = None,
    x_gain: Tensor | None = None,
    check_finite: bool = False,
) -> Tensor:
    """Float32 ``[N, M]``: ``(x_scale[i] * w_scale[o]) * dot + bias[o] + addend[i, o]``.

    Args:
        x: activations; with ``scale`` their row scale is held (bits) or measured (floats).
        w: weights.
        addend: float32 ``[N, M]``, such as the other branch of a GraphSAGE or GraphConv layer.
        scale: whether scales act.
        bias: float32 ``[M]``.
        x_threshold: float32 ``[K]``, for float ``x``.
        x_gain: float32 ``[K]``, for float ``x``; enters the scale only.
        check_finite: raise where float ``x`` holds NaN or infinity.
    """
    return _sum(
        "fused.bmm_add", x, w, addend, scale, bias, None, None, x_threshold, x_gain, check_finite
    )


def bmm_add_bits(
    x: Tensor | BitTensor,
    w: BitTensor,
    addend: Tensor,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    x_threshold: Tensor | None = None,
    x_gain: Tensor | None = None,
    check_finite: bool = False,
) -> BitTensor:
    """Bits of ``bmm_add(...) >= threshold[o]`` (0 without one), inverted where ``flip[o]``."""
    name = "fused.bmm_add_bits"
    words = _sum(
        name, x, w, addend, scale, bias, threshold, flip, x_threshold, x_gain, check_finite, True
    )
    return BitTensor._trusted(words, w.words.size(0))


def _sum(
    name: str,
    x: Tensor | BitTensor,
    w: BitTensor,
    addend: Tensor,
    scale: bool,
    bias: Tensor | None,
    threshold: Tensor | None,
    flip: Tensor | None,
    x_threshold: Tensor | None,
    x_gain: Tensor | None,
    check_finite: bool,
    out_bits: bool = False,
) -> Tensor:
    held, scales = _activations(name, x, w, scale, x_threshold, x_gain, check_finite)
    _addend(name, addend, held.size(0), w.words.size(0), w.device)
    return call(
        name, "bmm_add", held, w.words, addend, w.size, *scales, bias, threshold, flip,
        x_threshold, x_gain, scale and not isinstance(x, BitTensor), out_bits,
    )  # fmt: skip


def bmm_bspmm(
    x: Tensor | BitTensor,
    w: BitTensor,
    adjacency: BitAdjacency,
    *,
    hidden: str = "B",
    scale: bool = True,
    bias: Tensor | None = None,
    x_threshold: Tensor | None = None,
    x_gain: Tensor | None = None,
    check_finite: bool = False,
) -> Tensor:
    """Float32 ``[R, M]`` of ``bspmm(bmm(x, w), adjacency) + bias``, for an ``[R, N]`` adjacency.

    Args:
        x: activations.
        w: weights.
        adjacency: the pattern with its factors; ``col_scale`` does not act with ``hidden="B"``.
        hidden: what goes from the product to the aggregation: ``"B"``, signs without scales,
            ``"F"``, floats, or ``"I"``, narrow integers with a factor for each row: the same
            values as with ``"F"`` from a table of a quarter or half of the bytes. Their sums are
            exact where no scale of ``x`` and no ``col_scale`` act (while K times a row's degree
            stays below 2**31), else added up in an order of its own that depends on a row's degree
            alone; a GPU has another such order for more than 48 columns that few edges read.
        scale: whether scales act; they cannot with ``hidden="B"``.
        bias: float32 ``[M]``, added after aggregation.
        x_threshold: float32 ``[K]``, for float ``x``.
        x_gain: float32 ``[K]``, for float ``x``; enters the scale only.
        check_finite: raise where float ``x`` holds NaN or infinity.
    """
    name = "fused.bmm_bspmm"
    _hidden(name, hidden, "B", "F", "I")
    given = (x_threshold, x_gain, check_finite)
    if hidden != "I":
        return _aggregated(name, x, w, adjacency, hidden, scale, *given, bias, None, False)
    held, scales = _activations(name, x, w, scale, *given)
    check_pattern(name, adjacency, held.size(0), held.device)
    return call(
        name, "bmm_bspmm_narrow", held, w.words, w.size, adjacency.rowptr, adjacency.indices,
        *scales, x_threshold, x_gain, scale and not isinstance(x, BitTensor), adjacency.row_scale,
        adjacency.col_scale, bias, trusted=True,
    )  # fmt: skip


def bmm_bspmm_bits(
    x: Tensor | BitTensor,
    w: BitTensor,
    adjacency: BitAdjacency,
    *,
    hidden: str = "B",
    scale: bool = True,
    threshold: Tensor | None = None,
    x_threshold: Tensor | None = None,
    x_gain: Tensor | None = None,
    check_finite: bool = False,
) -> BitTensor:
    """Bits of the aggregated product ``>= threshold[o]``; arguments as in :func:`bmm_bspmm`."""
    name = "fused.bmm_bspmm_bits"
    _hidden(name, hidden, "B", "F")
    given = (x_threshold, x_gain, check_finite)
    words = _aggregated(name, x, w, adjacency, hidden, scale, *given, None, threshold, True)
    return BitTensor._trusted(words, w.words.size(0))


def _aggregated(
    name: str,
    x: Tensor | BitTensor,
    w: BitTensor,
    adjacency: BitAdjacency,
    hidden: str,
    scale: bool,
    x_threshold: Tensor | None,
    x_gain: Tensor | None,
    check_finite: bool,
    bias: Tensor | None,
    threshold: Tensor | None,
    out_bits: bool,
) -> Tensor:
    bits = hidden == "B"
    scale = scale and not bits
    held, scales = _activations(name, x, w, scale, x_threshold, x_gain, check_finite)
    check_pattern(name, adjacency, held.size(0), held.device)
    return call(
        name, "bmm_bspmm", held, w.words, w.size, adjacency.rowptr, adjacency.indices, *scales,
        x_threshold, None if bits else x_gain, scale and not isinstance(x, BitTensor),
        adjacency.row_scale, None if bits else adjacency.col_scale, bias, threshold, bits,
        out_bits, trusted=True,
    )  # fmt: skip


def _hidden(name: str, hidden: str, *allowed: str) -> None:
    choice = " or ".join(map(repr, allowed))
    if hidden not in allowed:
        raise ValueError(f"{name}: hidden must be {choice}, got {hidden!r}")


def _activations(
    name: str,
    x: Tensor | BitTensor,
    w: BitTensor,
    scale: bool,
    x_threshold: Tensor | None,
    x_gain: Tensor | None,
    check_finite: bool,
) -> tuple[Tensor, tuple[Tensor | None, Tensor | None]]:
    """Check both operands; what the operator takes for x, and the scales that are held."""
    if not isinstance(x, BitTensor):
        check_operands(name, "FB", x, w, check_finite)
        return x, (None, w.scale if scale else None)
    if not (x_threshold is None and x_gain is None):
        raise ValueError(f"{name}: x_threshold and x_gain must be None with packed x")
    check_operands(name, "BB", x, w)
    return x.words, (x.scale, w.scale) if scale else (None, None)


def _addend(name: str, addend: Tensor, rows: int, columns: int, device: torch.device) -> None:
    _arguments.float_matrix(name, "addend", addend)
    if not (addend.dtype == torch.float32 and addend.shape == (rows, columns)):
        raise ValueError(
            f"{name}: addend must be float32 [{rows}, {columns}], got {addend.dtype} "
            f"{list(addend.shape)}"
        )
    _arguments.same_device(name, "addend", addend.device, device)


def bspmm_bmm_bits(
    neighbours: BitTensor,
    adjacency: BitAdjacency,
    x: BitTensor,
    w: BitTensor,
    *,
    scale: bool = True,
    sum_bias: Tensor | None = None,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
) -> BitTensor:
    """Bits ``[R, M]`` of ``bmm.bbf(x, w) + bspmm.bbf(neighbours, adjacency) >= threshold``.

    Args:
        neighbours: signs ``[N, M]`` to aggregate; a scale they hold does not act.
        adjacency: the pattern ``[R, N]``; its row factors act, column factors cannot.
        x: the nodes' own bits ``[R, K]``.
        w: weights ``[M, K]``.
        scale: whether the scales of x and w act.
        sum_bias: float32 ``[M]``, added to the sums.
        bias: float32 ``[M]``, added to the product.
        threshold: float32 ``[M]``, 0 without one.
        flip: bool ``[M]``, turns bits round.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: a shape or device does not fit.
    """
    name = "fused.bspmm_bmm_bits"
    _arguments.bit_matrix(name, "neighbours", neighbours)
    rows = check_operands(name, "BB", x, w)
    check_pattern(name, adjacency, neighbours.words.size(0), neighbours.words.device)
    _arguments.same_device(name, "x", x.words.device, neighbours.words.device)
    if neighbours.size != rows:
        raise ValueError(
            f"{name}: neighbours must hold {rows} features like w, got {neighbours.size}"
        )
    if x.words.size(0) != adjacency.shape[0]:
        raise ValueError(f"{name}: x must have {adjacency.shape[0]} rows, got {x.words.size(0)}")
    words = call(
        name, "bspmm_bmm", neighbours.words, adjacency.rowptr, adjacency.indices, x.words, w.words,
        x.size, adjacency.row_scale, sum_bias, x.scale if scale else None,
        w.scale if scale else None, bias, threshold, flip, trusted=True,
    )  # fmt: skip
    return BitTensor._trusted(words, rows)
