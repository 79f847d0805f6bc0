"""Pairs of operators in one call: BMM + ADD, BMM + BSpMM and BSpMM + BMM.

``x`` ``[N, K]`` is a ``BitTensor`` or a dense matrix that is binarised inside, ``w`` ``[M, K]`` a
``BitTensor``. Both pairs equal the two operators one after the other (see ``bmm``, ``bspmm`` and
``add``) and save a call and, for BMM + ADD, a pass over the sum.

Every function raises TypeError (type, dtype) or ValueError (shape, device, value) before any
kernel runs. Operators are for inference: results carry no gradient.
"""

from typing import Any

from torch import Tensor

from bitgnn.bits import BitAdjacency, BitTensor, Int8Tensor
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops.bmm import check_operands
from bitgnn.ops.int8 import check_rows
from bitgnn.ops.layout_choice import check_factors


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
    name = "fused.bmm_add"
    held, *factors = _activations(name, x, w, scale, x_threshold, x_gain, check_finite)
    return call(
        name, "bmm_add", held, w.words, addend, w.size, *factors[:2], bias, None, None, *factors[2:]
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
    held, *factors = _activations(name, x, w, scale, x_threshold, x_gain, check_finite)
    words = call(
        name, "bmm_add", held, w.words, addend, w.size, *factors[:2], bias, threshold, flip,
        *factors[2:], True,
    )  # fmt: skip
    return BitTensor._trusted(words, w.words.size(0))


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
    options = (hidden, ("B", "F", "I"), scale, x_threshold, x_gain, check_finite)
    given = _hidden_product(name, x, w, adjacency, *options)
    if hidden == "I":
        return call(name, "bmm_bspmm_narrow", *given, bias, trusted=True)
    return call(name, "bmm_bspmm", *given, bias, None, hidden == "B", False, trusted=True)


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
    options = (hidden, ("B", "F"), scale, x_threshold, x_gain, check_finite)
    given = _hidden_product(name, x, w, adjacency, *options)
    out = call(name, "bmm_bspmm", *given, None, threshold, hidden == "B", True, trusted=True)
    return BitTensor._trusted(out, w.words.size(0))


def _activations(
    name: str,
    x: Tensor | BitTensor,
    w: BitTensor,
    scale: bool,
    x_threshold: Tensor | None,
    x_gain: Tensor | None,
    check_finite: bool,
) -> tuple[Any, ...]:
    """Check both operands; x, x_scale, w_scale, x_threshold, x_gain and scale of the operators."""
    if not isinstance(x, BitTensor):
        check_operands(name, "FB", x, w, check_finite)
        return x, None, w.scale if scale else None, x_threshold, x_gain, scale
    if x_threshold is not None or x_gain is not None:
        raise ValueError(f"{name}: x_threshold and x_gain must be None with packed x")
    check_operands(name, "BB", x, w)
    return x.words, *((x.scale, w.scale) if scale else (None, None)), None, None, False


def _hidden_product(
    name: str,
    x: Tensor | BitTensor,
    w: BitTensor,
    adjacency: BitAdjacency,
    hidden: str,
    allowed: tuple[str, ...],
    scale: bool,
    *given: Any,
) -> tuple[Any, ...]:
    """Check operands and options; return the arguments of both operators up to the bias."""
    if hidden not in allowed:
        choice = " or ".join(map(repr, allowed))
        raise ValueError(f"{name}: hidden must be {choice}, got {hidden!r}")
    bits = hidden == "B"
    held, *scales, x_threshold, x_gain, measured = _activations(
        name, x, w, scale and not bits, *given
    )
    check_factors(name, adjacency, held.size(0), held.device)
    col = None if bits else adjacency.col_scale
    return (
        held, w.words, w.size, adjacency.rowptr, adjacency.indices, *scales, x_threshold,
        None if bits else x_gain, measured, adjacency.row_scale, col,
    )  # fmt: skip


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
    """
    name = "fused.bspmm_bmm_bits"
    rows = check_operands(name, "BB", x, w)
    _check_neighbours(name, neighbours, adjacency, x.words, rows)
    words = call(
        name, "bspmm_bmm", neighbours.words, adjacency.rowptr, adjacency.indices, x.words, w.words,
        x.size, adjacency.row_scale, sum_bias, x.scale if scale else None,
        w.scale if scale else None, bias, threshold, flip, trusted=True,
    )  # fmt: skip
    return BitTensor._trusted(words, rows)


def bspmm_bmm_iib(
    neighbours: BitTensor,
    adjacency: BitAdjacency,
    x: Int8Tensor,
    w: Tensor,
    *,
    sum_bias: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    threshold: Tensor | None = None,
) -> BitTensor:
    """Bits ``[R, M]`` of ``bmm.iif(x, w) + bspmm.bbf(neighbours, adjacency) >= threshold``.

    Args:
        neighbours: signs ``[N, M]`` to aggregate; a scale they hold does not act.
        adjacency: the pattern ``[R, N]``; its row factors act, column factors cannot.
        x: the nodes' own 8-bit rows ``[R, K]``.
        w: int8 weights ``[M, 16 * ceil(K / 16)]``, as of ``bmm.iif``.
        sum_bias: float32 ``[M]``, added to the sums.
        scale: float32 ``[M]``, factors of the product.
        shift: float32 ``[M]``, added to the product.
        threshold: float32 ``[M]``, 0 without one.
    """
    name = "fused.bspmm_bmm_iib"
    check_rows(name, x)
    # What is no matrix, the operator refuses.
    rows = w.size(0) if isinstance(w, Tensor) and w.dim() == 2 else None
    _check_neighbours(name, neighbours, adjacency, x.codes, rows)
    words = call(
        name, "bspmm_bmm_iib", neighbours.words, adjacency.rowptr, adjacency.indices, x.codes, w,
        x.size, adjacency.row_scale, sum_bias, scale, shift, threshold, trusted=True,
    )  # fmt: skip
    return BitTensor._trusted(words, w.size(0))


def _check_neighbours(
    name: str, neighbours: BitTensor, adjacency: BitAdjacency, x: Tensor, outputs: int | None
) -> None:
    """Require neighbours and a pattern that fit rows x and a weight with ``outputs`` rows."""
    _arguments.bit_matrix(name, "neighbours", neighbours)
    check_factors(name, adjacency, neighbours.words.size(0), neighbours.words.device)
    _arguments.same_device(name, "x", x.device, neighbours.words.device)
    if outputs is not None and neighbours.size != outputs:
        raise ValueError(
            f"{name}: neighbours must hold {outputs} features like w, got {neighbours.size}"
        )
    if x.size(0) != adjacency.shape[0]:
        raise ValueError(f"{name}: x must have {adjacency.shape[0]} rows, got {x.size(0)}")
