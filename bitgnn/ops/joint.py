"""A sum of packed neighbours and a product of the nodes' own bits, added and compared in one call.

That is what GraphSAGE's and GraphConv's layers hand on as bits: the neighbours' aggregated signs
plus the root term. Operators are for inference: results carry no gradient.
"""

from torch import Tensor

from bitgnn._checks import check_value
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops.bmm import check_bits_bits
from bitgnn.ops.bspmm import check_pattern

__all__ = ["bspmm_bmm_bits"]


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
    name = "joint.bspmm_bmm_bits"
    _arguments.bit_matrix(name, "neighbours", neighbours)
    rows = check_bits_bits(name, x, w)
    check_pattern(name, adjacency, neighbours.words.size(0), neighbours.words.device)
    _arguments.same_device(name, "x", x.words.device, neighbours.words.device)
    check_value(
        neighbours.size == rows,
        lambda: f"{name}: neighbours must hold {rows} features like w, got {neighbours.size}",
    )
    check_value(
        x.words.size(0) == adjacency.shape[0],
        lambda: f"{name}: x must have {adjacency.shape[0]} rows, got {x.words.size(0)}",
    )
    words = call(
        name, "bspmm_bmm", neighbours.words, adjacency.rowptr, adjacency.indices, x.words, w.words,
        x.size, adjacency.row_scale, sum_bias, x.scale if scale else None,
        w.scale if scale else None, bias, threshold, flip, trusted=True,
    )  # fmt: skip
    return BitTensor._trusted(words, rows)
