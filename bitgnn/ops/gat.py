r"""Graph attention over bits: float scores an edge and head, binary messages.

With scores :math:`s_{eh}` of the edges e from j to i and sources' bits :math:`x_j \in \{-1, +1\}`,

.. math:: out_{if} = \sum_e \mathrm{softmax}_e(s_{eh})\, x_{jf} + bias_f

where feature f is one of head h: of K features ``[N, K]``, those of a head side by side, float32
``[M, K]`` come out; where all heads share the K features, ``[M, H * K]``. The softmax and the sums
of a row are one pass over its edges; nothing an edge is written to memory. Factors of the adjacency
``[M, N]`` are left out, and an empty row gives its bias.

* :func:`gat`: :math:`s = \mathrm{leaky\_relu}(source_{jh} + target_{ih} + edge_{eh})`, or scores of
  the edges alone.
* :func:`gatv2`: :math:`s = \sum_{k \in h} a_k\, \mathrm{leaky\_relu}(l_{jk} + r_{ik})` of binary
  projections. A term has four values, so that up to what is the same for all edges of a row

  .. math:: s = \sum_{k \in h} \beta_{jk} (p_k + \beta_{ik}\, q_k), \qquad \beta \in \{0, 1\},

  a sum of integers looked up by bytes of :math:`\beta_j` and of :math:`\beta_j \wedge \beta_i`.
* :func:`transformer`: :math:`s = query_{ih} \cdot key_{jh} + edge_{eh}` of float rows.

Exponentials are a polynomial in float32, and sums have one order: results are the same on every
device, to the last bit. Every function raises TypeError (type, dtype) or ValueError (shape, device,
value) before any kernel runs. Operators are for inference: results carry no gradient.
"""

from typing import Any, NamedTuple

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
    source: Tensor | None,
    target: Tensor | None,
    *,
    negative_slope: float = 0.2,
    edge: Tensor | None = None,
    bias: Tensor | None = None,
    shared: bool = False,
) -> Tensor:
    """Attention by scores of nodes; see the module for shapes.

    Args:
        x: bits of the sources.
        adjacency: the graph.
        source: float32 ``[N, H]``; None, like ``target``, where ``edge`` says all.
        target: float32 ``[M, H]``.
        negative_slope: of the leaky ReLU; 1 takes the sum as it is.
        edge: float32 ``[E, H]`` in the order of the adjacency.
        bias: one entry a column of the result.
        shared: every head has all K features.
    """
    name = "gat.gat"
    given = edge if source is None else source
    heads = _check(name, x, adjacency, given.size(-1) if isinstance(given, Tensor) else 0, shared)
    if (source is None) != (target is None):
        raise ValueError(f"{name}: source and target must be given both or not at all")
    rows, columns = adjacency.shape
    if source is not None:
        _check_rows(name, "source", source, columns, heads, x.device)
        _check_rows(name, "target", target, rows, heads, x.device)
    if edge is not None:
        _check_rows(name, "edge", edge, adjacency.nnz, heads, x.device)
    middle = source, target, negative_slope, edge
    return _attended(name, "gat_bits", x, adjacency, heads, middle, bias, shared)


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
    """Attention by scores of pairs of bits; see the module and :func:`gat`.

    Args:
        x: bits of the sources.
        adjacency: the graph.
        left: bits of the sources' projections ``[N, H * C]``.
        right: bits of the destinations' projections ``[M, H * C]``.
        weights: from :func:`pair_weights`.
        bias: one entry a column of the result.
        shared: every head has all K features.
    """
    name = "gat.gatv2"
    heads = _check(name, x, adjacency, weights.step.numel(), shared)
    rows, columns = adjacency.shape
    for side, bits, count in (("left", left, columns), ("right", right, rows)):
        _arguments.bit_matrix(name, side, bits)
        _arguments.same_device(name, side, bits.device, x.device)
        shape = (count, weights.alone.numel())
        if tuple(bits.shape) != shape:
            raise ValueError(
                f"{name}: {side} must have shape {list(shape)}, got {list(bits.shape)}"
            )
    middle = left.words, right.words, left.size, *weights
    return _attended(name, "gatv2_bits", x, adjacency, heads, middle, bias, shared)


def transformer(
    x: BitTensor,
    adjacency: BitAdjacency,
    query: Tensor,
    key: Tensor,
    heads: int,
    *,
    edge: Tensor | None = None,
    bias: Tensor | None = None,
    shared: bool = False,
) -> Tensor:
    """Attention by dot products of float rows, unscaled; see the module and :func:`gat`.

    Args:
        x: bits of the sources.
        adjacency: the graph.
        query: float32 ``[M, H * C]``, of the destinations.
        key: float32 ``[N, H * C]``, of the sources.
        heads: H.
        edge: float32 ``[E, H]`` in the order of the adjacency.
        bias: one entry a column of the result.
        shared: every head has all K features.
    """
    name = "gat.transformer"
    heads = _check(name, x, adjacency, heads, shared)
    width = query.size(-1) if isinstance(query, Tensor) else 0
    if width % heads:
        raise ValueError(f"{name}: heads must divide the {width} columns of query, got {heads}")
    rows, columns = adjacency.shape
    _check_rows(name, "query", query, rows, width, x.device)
    _check_rows(name, "key", key, columns, width, x.device)
    if edge is not None:
        _check_rows(name, "edge", edge, adjacency.nnz, heads, x.device)
    middle = query, key, width, edge
    return _attended(name, "transformer_bits", x, adjacency, heads, middle, bias, shared)


def _attended(
    name: str,
    operator: str,
    x: BitTensor,
    adjacency: BitAdjacency,
    heads: int,
    middle: tuple[Any, ...],
    bias: Tensor | None,
    shared: bool,
) -> Tensor:
    _arguments.vector(name, "bias", bias, heads * x.size if shared else x.size, x.device)
    csr = adjacency.rowptr, adjacency.indices
    out: Tensor = call(
        name, operator, x.words, x.size, heads, *csr, *middle, bias, shared=shared, trusted=True
    )
    return out


def _check(name: str, x: BitTensor, adjacency: BitAdjacency, heads: int, shared: bool) -> int:
    """Bits, pattern and heads that fit together; gives the number of heads."""
    _arguments.bit_matrix(name, "x", x)
    check_pattern(name, adjacency, x.words.size(0), x.device)
    if heads < 1 or (not shared and x.size % heads):
        raise ValueError(f"{name}: heads must divide the {x.size} features of x, got {heads}")
    return heads


def _check_rows(
    name: str, argument: str, given: Any, rows: int, columns: int, device: torch.device
) -> None:
    if not (isinstance(given, Tensor) and given.dtype == torch.float32):
        raise TypeError(f"{name}: {argument} must be a float32 tensor, got {name_type(given)}")
    if given.shape != (rows, columns):
        raise ValueError(
            f"{name}: {argument} must have shape [{rows}, {columns}], got {list(given.shape)}"
        )
    _arguments.same_device(name, argument, given.device, device)
