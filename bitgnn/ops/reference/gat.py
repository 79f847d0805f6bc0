"""Reference of graph attention over bits: softmax of scores an edge, weighted sums of signs."""

import torch
from torch import Tensor

from bitgnn.bits.tensor import words_for
from bitgnn.ops.reference.bspmm import check_edges, row_sums
from bitgnn.ops.reference.pack import decide, from_words, signs, to_words
from bitgnn.ops.reference.table import CSR, Arguments, operator

PIECE = 256
"""Edges of a row that are added up in their order; the sums of pieces follow one another."""
LEAST_EXPONENT = -86.0
DOT_PARTS = 8
"""Sums of products that a dot product adds up at last: number k has products k, k + 8, ..."""
_ROUND = 12582912.0
_COEFFICIENTS = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1,
)  # fmt: skip
_END = "bias?:_ threshold?:_ shared=False out_bits=False trusted=False"


def exponential(x: Tensor) -> Tensor:
    """``exp(x)`` of float32 ``x <= 0``, within 2 units in the last place on every device."""
    shifted = x * 1.44269504 + _ROUND
    k = shifted - _ROUND
    r = (x - k * 0.693359375) - k * -2.12194440e-4
    p = torch.full_like(x, _COEFFICIENTS[0])
    for coefficient in _COEFFICIENTS[1:]:
        p = p * r + coefficient
    y = (p * (r * r) + r) + 1.0
    power = ((shifted.view(torch.int32) + 127) << 23).view(torch.float32)
    return torch.where(x < LEAST_EXPONENT, 0.0, y * power)


def _columns(a: Arguments) -> int:
    columns: int = a.heads * a.size if a.shared else a.size
    return columns


def _result(a: Arguments) -> Tensor:
    """An empty result of the right shape and dtype."""
    rows = a.rowptr.size(0) - 1
    if a.out_bits:
        return a.x.new_empty((rows, words_for(a.size)), dtype=torch.int32)
    return a.x.new_empty((rows, _columns(a)), dtype=torch.float32)


def _check(a: Arguments) -> None:
    check_edges(a, a.x.size(0))
    if a.heads < 1 or (not a.shared and a.size % a.heads):
        raise ValueError(f"heads must divide the {a.size} features of x, got {a.heads}")
    if a.shared and a.out_bits:
        raise ValueError("out_bits must be left out with shared=True")
    for name in ("bias", "threshold"):
        vector = getattr(a, name)
        if vector is not None and vector.shape != (_columns(a),):
            raise ValueError(f"{name} must have {_columns(a)} entries, got {list(vector.shape)}")


def _sums(rowptr: Tensor, terms: Tensor) -> Tensor:
    """Sums of ``terms`` ``[E, K]`` over the edges of each row, piece by piece."""
    starts, ends = rowptr[:-1].long(), rowptr[1:].long()
    pieces = -((starts - ends) // PIECE)
    of_row = torch.arange(len(starts), device=rowptr.device).repeat_interleave(pieces)
    first = torch.nn.functional.pad(pieces.cumsum(0), (1, 0))
    begins = starts[of_row] + PIECE * (
        torch.arange(len(of_row), device=starts.device) - first[of_row]
    )
    bounds = torch.cat([begins, rowptr[-1:].long()])
    width = terms.size(1)
    sums = row_sums(bounds, width, torch.float32, lambda e: terms[e])
    return row_sums(first, width, torch.float32, lambda e: sums[e])


def _attend(a: Arguments, scores: Tensor) -> Tensor:
    """Weighted means of the sources' signs, by scores ``[E, heads]`` of the edges."""
    rows, edges = a.rowptr.size(0) - 1, a.indices.size(0)
    target = torch.repeat_interleave(
        torch.arange(rows, device=a.x.device), a.rowptr.diff().long(), output_size=edges
    )
    index = target.unsqueeze(1).expand_as(scores)
    seen = torch.where(scores.isnan(), -torch.inf, scores)
    most = scores.new_full((rows, a.heads), -torch.inf).scatter_reduce(0, index, seen, "amax")
    weights = exponential(scores - most[target])
    total = _sums(a.rowptr, weights)
    values = signs(a.x, a.size)[a.indices.long()]
    if a.shared:
        terms = (weights.unsqueeze(2) * values.unsqueeze(1)).flatten(1)
        total = total.repeat_interleave(a.size, 1)
    else:
        channels = a.size // a.heads
        terms = weights.repeat_interleave(channels, 1) * values
        total = total.repeat_interleave(channels, 1)
    has_edges = (a.rowptr.diff() > 0).unsqueeze(1)
    out = torch.where(has_edges, _sums(a.rowptr, terms) / total, 0.0)
    out = out if a.bias is None else out + a.bias
    return to_words(decide(out, a.threshold)) if a.out_bits else out


def _sources_and_targets(a: Arguments) -> tuple[Tensor, Tensor]:
    rows = torch.arange(a.rowptr.size(0) - 1, device=a.x.device)
    targets = torch.repeat_interleave(rows, a.rowptr.diff().long(), output_size=a.indices.size(0))
    return a.indices.long(), targets


@operator(
    f"x:N,W(size) size:int heads:int {CSR} source*:N,heads target*:P-1,heads negative_slope:float "
    f"edge?:E,heads {_END}",
    _result,
)
def gat_bits(a: Arguments) -> Tensor:
    r"""GAT: scores of an edge are ``leaky(source[j] + target[i] + edge[e])``.

    Without ``source`` and ``target`` they are ``leaky(edge[e])``. Results are float32 ``[M, size]``
    (``[M, heads * size]`` where all heads ``shared`` the features), or bits ``>= threshold``.
    """
    _check(a)
    if (a.source is None) != (a.target is None):
        raise ValueError("source and target must be given both or not at all")
    if a.source is None and a.edge is None:
        raise ValueError("edge must be given without source and target")
    sources, targets = _sources_and_targets(a)
    scores = a.edge if a.source is None else a.source[sources] + a.target[targets]
    scores = scores if a.source is None or a.edge is None else scores + a.edge
    slope = torch.tensor(a.negative_slope, dtype=torch.float32, device=scores.device)
    return _attend(a, torch.where(scores > 0, scores, scores * slope))


@operator(
    f"x:N,W(size) size:int heads:int {CSR} left:N,W(width) right:P-1,W(width) width:int "
    f"alone:width@int32 both:width@int32 step:heads {_END}",
    _result,
)
def gatv2_bits(a: Arguments) -> Tensor:
    r"""GATv2 of bits: scores are ``step * sum_k left[j, k] (alone[k] + right[i, k] both[k])``.

    The sums are integers; results as of :func:`gat_bits`.
    """
    _check(a)
    if a.width % a.heads:
        raise ValueError(f"heads must divide width {a.width}, got {a.heads}")
    sources, targets = _sources_and_targets(a)
    left, right = (from_words(words, a.width).long() for words in (a.left, a.right))
    terms = left[sources] * (a.alone.long() + right[targets] * a.both.long())
    sums = terms.view(len(sources), a.heads, a.width // a.heads).sum(2).to(torch.int32)
    return _attend(a, a.step * sums.float())


@operator(
    f"x:N,W(size) size:int heads:int {CSR} query:P-1,width key:N,width width:int edge?:E,heads "
    f"{_END}",
    _result,
)
def transformer_bits(a: Arguments) -> Tensor:
    r"""Dot products: scores are ``sum_k query[i, k] key[j, k] + edge[e]`` over a head's columns.

    Results as of :func:`gat_bits`.
    """
    _check(a)
    if a.width % a.heads:
        raise ValueError(f"heads must divide width {a.width}, got {a.heads}")
    sources, targets = _sources_and_targets(a)
    channels = a.width // a.heads
    products = (a.query[targets] * a.key[sources]).view(len(sources), a.heads, channels)
    padded = torch.nn.functional.pad(products, (0, -channels % DOT_PARTS))
    sums = padded.new_zeros(len(sources), a.heads, DOT_PARTS)
    count = padded.size(2) // DOT_PARTS
    for part in padded.view(len(sources), a.heads, count, DOT_PARTS).unbind(2):
        sums = sums + part
    while sums.size(2) > 1:
        first, second = sums.chunk(2, 2)
        sums = first + second
    scores = sums.squeeze(2)
    return _attend(a, scores if a.edge is None else scores + a.edge)
