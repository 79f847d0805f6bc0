"""Pairs of operators in one call: BMM + ADD and BMM + BSpMM.

``x`` ``[N, K]`` is a ``BitTensor`` or a dense matrix that is binarised inside, ``w`` ``[M, K]`` a
``BitTensor``. Both pairs equal the two operators one after the other (see ``bmm``, ``bspmm`` and
``add``) and save a call and, for BMM + ADD, a pass over the sum.

Every function raises TypeError (type, dtype) or ValueError (shape, device, value) before any
kernel runs. Operators are for inference: results carry no gradient.
"""

import torch
from torch import Tensor

from bitgnn._checks import check_value
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.ops import _arguments
from bitgnn.ops.bmm import check_bits_bits, check_floats_bits
from bitgnn.ops.bspmm import check_pattern

_OPS = torch.ops.bitgnn


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
    held, rows = _activations(name, x, w, x_threshold, x_gain, check_finite)
    _addend(name, addend, held.size(0), rows, w.device)
    _arguments.vector(name, "bias", bias, rows, w.device)
    result: Tensor = _OPS.bmm_add(
        held, w.words, addend, w.size, _scale(x, scale), w.scale if scale else None, bias,
        None, None, x_threshold, x_gain, scale and isinstance(x, Tensor), False,
    )  # fmt: skip
    return result


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
    """Bits of ``bmm_add(...) >= threshold[o]`` (0 without one), turned round where ``flip[o]``."""
    name = "fused.bmm_add_bits"
    held, rows = _activations(name, x, w, x_threshold, x_gain, check_finite)
    _addend(name, addend, held.size(0), rows, w.device)
    _arguments.vector(name, "bias", bias, rows, w.device)
    _arguments.vector(name, "threshold", threshold, rows, w.device)
    _arguments.vector(name, "flip", flip, rows, w.device, torch.bool)
    words = _OPS.bmm_add(
        held, w.words, addend, w.size, _scale(x, scale), w.scale if scale else None, bias,
        threshold, flip, x_threshold, x_gain, scale and isinstance(x, Tensor), True,
    )  # fmt: skip
    return BitTensor._trusted(words, rows)


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
    held, rows = _activations(name, x, w, x_threshold, x_gain, check_finite)
    _arguments.vector(name, "bias", bias, rows, w.device)
    _hidden(name, hidden, "B", "F", "I")
    result: Tensor
    if hidden == "I":
        check_pattern(name, adjacency, held.size(0), held.device)
        result = _OPS.bmm_bspmm_narrow(
            held, w.words, w.size, adjacency.rowptr, adjacency.indices, _scale(x, scale),
            w.scale if scale else None, x_threshold, x_gain, scale and isinstance(x, Tensor),
            adjacency.row_scale, adjacency.col_scale, bias, trusted=True,
        )  # fmt: skip
        return result
    result = _aggregated(
        name, x, held, w, adjacency, hidden, scale, x_threshold, x_gain, bias, None, False
    )
    return result


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
    held, rows = _activations(name, x, w, x_threshold, x_gain, check_finite)
    _hidden(name, hidden, "B", "F")
    _arguments.vector(name, "threshold", threshold, rows, w.device)
    words = _aggregated(
        name, x, held, w, adjacency, hidden, scale, x_threshold, x_gain, None, threshold, True
    )
    return BitTensor._trusted(words, rows)


def _aggregated(
    name: str,
    x: Tensor | BitTensor,
    held: Tensor,
    w: BitTensor,
    adjacency: BitAdjacency,
    hidden: str,
    scale: bool,
    x_threshold: Tensor | None,
    x_gain: Tensor | None,
    bias: Tensor | None,
    threshold: Tensor | None,
    out_bits: bool,
) -> Tensor:
    check_pattern(name, adjacency, held.size(0), held.device)
    bits = hidden == "B"
    scale = scale and not bits
    result: Tensor = _OPS.bmm_bspmm(
        held, w.words, w.size, adjacency.rowptr, adjacency.indices, _scale(x, scale),
        w.scale if scale else None, x_threshold, None if bits else x_gain,
        scale and isinstance(x, Tensor), adjacency.row_scale,
        None if bits else adjacency.col_scale, bias, threshold, bits, out_bits, trusted=True,
    )  # fmt: skip
    return result


def _hidden(name: str, hidden: str, *allowed: str) -> None:
    choice = " or ".join(map(repr, allowed))
    check_value(hidden in allowed, lambda: f"{name}: hidden must be {choice}, got {hidden!r}")


def _scale(x: Tensor | BitTensor, scale: bool) -> Tensor | None:
    return x.scale if scale and isinstance(x, BitTensor) else None


def _activations(
    name: str,
    x: Tensor | BitTensor,
    w: BitTensor,
    x_threshold: Tensor | None,
    x_gain: Tensor | None,
    check_finite: bool,
) -> tuple[Tensor, int]:
    """Check both operands; what the operator takes for x, and the rows of the weight."""
    if not isinstance(x, BitTensor):
        return x, check_floats_bits(name, x, w, x_threshold, x_gain, check_finite)
    check_value(
        x_threshold is None and x_gain is None,
        lambda: f"{name}: x_threshold and x_gain must be None with packed x",
    )
    return x.words, check_bits_bits(name, x, w)


def _addend(name: str, addend: Tensor, rows: int, columns: int, device: torch.device) -> None:
    _arguments.float_matrix(name, "addend", addend)
    check_value(
        addend.dtype == torch.float32 and addend.shape == (rows, columns),
        lambda: (
            f"{name}: addend must be float32 [{rows}, {columns}], got {addend.dtype} "
            f"{list(addend.shape)}"
        ),
    )
    _arguments.same_device(name, "addend", addend.device, device)
