r"""Graph attention over bits: float scores an edge and head, binary messages.

With scores :math:`s_{eh}` of the edges e from j to i and sources' bits :math:`x_j \in \{-1, +1\}`,

.. math:: out_{if} = \sum_e \mathrm{softmax}_e(s_{eh})\, x_{jf} + bias_f

where feature f is one of head h. The softmax and the sums of a row are one pass over its edges;
nothing an edge is written to memory. An empty row gives its bias.

* :func:`gat`: :math:`s = \mathrm{leaky\_relu}(source_{jh} + target_{ih} + edge_{eh})`.
* :func:`gatv2`: :math:`s = \sum_{k \in h} a_k\, \mathrm{leaky\_relu}(l_{jk} + r_{ik})` of binary
  projections. A term has four values, so that up to what is the same for all edges of a row

  .. math:: s = \sum_{k \in h} \beta_{jk} (p_k + \beta_{ik}\, q_k), \qquad \beta \in \{0, 1\},

  a sum of integers looked up by bytes of :math:`\beta_j` and of :math:`\beta_j \wedge \beta_i`.

Exponentials are a polynomial in float32, and sums have one order: results are the same on every
device, to the last bit. Every function raises TypeError (type, dtype) or ValueError (shape, device,
value) before any kernel runs. Operators are for inference: results carry no gradient.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn._checks import name_type
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops.layout_choice import check_pattern

LARGEST_SUM = 1 << 30
"""Bound of the integer sums of scores."""
LARGEST_WEIGHT = 1 << 22


class PairWeights(NamedTuple):
    """Integer weights of scores of pairs of bits; see :func:`pair_weights`."""

    alone: Tensor
    """Int32 ``[H * C]``, of a source's bits."""
    both: Tensor
    """Int32 ``[H * C]``, of bits that are set at both ends."""
    step: Tensor
    """Float32 ``[H]``."""


def pair_weights(
    att: Tensor,
    negative_slope: float,
    left_bias: Tensor | None = None,
    right_bias: Tensor | None = None,
) -> PairWeights:
    """Weights of :func:`gatv2` for attention vectors ``[H, C]`` of projections of -1/+1 bits.

    A projection is its bits plus a bias ``[H * C]``, if any. The weights are rounded to half of
    ``step``, 2**-22 of a head's largest weight where it has up to 128 channels.
    """
    weight = att.detach().double()
    heads, channels = weight.shape
    zero = weight.new_zeros(heads, channels)
    sides = [
        zero if b is None else b.detach().double().view_as(weight) for b in (left_bias, right_bias)
    ]

    def term(left: float, right: float) -> Tensor:
        return weight * functional.leaky_relu(left + right + sides[0] + sides[1], negative_slope)

    neither, alone, other = term(-1.0, -1.0), term(1.0, -1.0), term(-1.0, 1.0)
    both = term(1.0, 1.0) - other - alone + neither
    alone = alone - neither
    most = torch.stack([alone.abs(), both.abs()]).amax((0, 2)) if channels else zero.sum(1)
    limit = min(LARGEST_WEIGHT, LARGEST_SUM // (2 * max(channels, 1)))
    step = torch.where(most > 0, most / limit, 1.0).float()
    unit = step.double().unsqueeze(1)
    alone, both = ((values / unit).round().to(torch.int32).flatten() for values in (alone, both))
    return PairWeights(alone, both, step)


def gat(
    x: BitTensor,
    adjacency: BitAdjacency,
    source: Tensor,
    target: Tensor,
    *,
    negative_slope: float = 0.2,
    edge: Tensor | None = None,
    bias: Tensor | None = None,
    shared: bool = False,
) -> Tensor:
    """Attention by scores of nodes; see the module.

    Args:
        x: bits of the sources ``[N, K]``, those of a head side by side.
        adjacency: ``[M, N]``; its factors are left out.
        source: float32 ``[N, H]``.
        target: float32 ``[M, H]``.
        negative_slope: of the leaky ReLU.
        edge: float32 ``[E, H]`` in the order of the adjacency.
        bias: float32, one entry a column of the result.
        shared: every head has all K features.

    Returns:
        Float32 ``[M, K]``; ``[M, H * K]`` with ``shared``.
    """
    name = "gat.gat"
    heads = _check(name, x, adjacency, source.size(-1) if isinstance(source, Tensor) else 0, shared)
    rows, columns = adjacency.shape
    _check_scores(name, "source", source, columns, heads, x.device)
    _check_scores(name, "target", target, rows, heads, x.device)
    if edge is not None:
        _check_scores(name, "edge", edge, adjacency.nnz, heads, x.device)
    _arguments.vector(name, "bias", bias, heads * x.size if shared else x.size, x.device)
    out: Tensor = call(
        name, "gat_bits", x.words, x.size, heads, adjacency.rowptr, adjacency.indices, source,
        target, negative_slope, edge, bias, shared=shared, trusted=True,
    )  # fmt: skip
    return out


def gatv2(
    x: BitTensor,
    adjacency: BitAdjacency,
    left: BitTensor,
    right: BitTensor,
    weights: PairWeights,
    *,
    bias: Tensor | None = None,
    shared: bool = False,
) -> Tensor:
    """Attention by scores of pairs of bits; see the module.

    Args:
        x: bits of the sources ``[N, K]``, those of a head side by side.
        adjacency: ``[M, N]``; its factors are left out.
        left: bits of the sources' projections ``[N, H * C]``.
        right: bits of the destinations' projections ``[M, H * C]``.
        weights: from :func:`pair_weights`.
        bias: float32, one entry a column of the result.
        shared: every head has all K features.

    Returns:
        Float32 ``[M, K]``; ``[M, H * K]`` with ``shared``.
    """
    name = "gat.gatv2"
    heads = _check(name, x, adjacency, weights.step.numel(), shared)
    for side, bits, count in (
        ("left", left, adjacency.shape[1]),
        ("right", right, adjacency.shape[0]),
    ):
        _arguments.bit_matrix(name, side, bits)
        _arguments.same_device(name, side, bits.device, x.device)
        shape = (count, weights.alone.numel())
        if tuple(bits.shape) != shape:
            raise ValueError(
                f"{name}: {side} must have shape {list(shape)}, got {list(bits.shape)}"
            )
    _arguments.vector(name, "bias", bias, heads * x.size if shared else x.size, x.device)
    out: Tensor = call(
        name, "gatv2_bits", x.words, x.size, heads, adjacency.rowptr, adjacency.indices, left.words,
        right.words, left.size, *weights, bias, shared=shared, trusted=True,
    )  # fmt: skip
    return out


def _check(name: str, x: BitTensor, adjacency: BitAdjacency, heads: int, shared: bool) -> int:
    """Bits, pattern and heads that fit together; gives the number of heads."""
    _arguments.bit_matrix(name, "x", x)
    check_pattern(name, adjacency, x.words.size(0), x.device)
    if heads < 1 or (not shared and x.size % heads):
        raise ValueError(f"{name}: heads must divide the {x.size} features of x, got {heads}")
    return heads


def _check_scores(
    name: str, argument: str, scores: Tensor, rows: int, heads: int, device: torch.device
) -> None:
    if not (isinstance(scores, Tensor) and scores.dtype == torch.float32):
        raise TypeError(f"{name}: {argument} must be a float32 tensor, got {name_type(scores)}")
    if scores.shape != (rows, heads):
        raise ValueError(
            f"{name}: {argument} must have shape [{rows}, {heads}], got {list(scores.shape)}"
        )
    _arguments.same_device(name, argument, scores.device, device)
