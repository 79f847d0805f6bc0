"""Nearest codes by Hamming distance: exact top-k over packed rows, in chunks and over shards."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.bits import BitTensor
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call

_NAME = "hamming_topk"


def hamming_topk(
    queries: BitTensor,
    codes: BitTensor | Iterable[BitTensor],
    k: int,
    *,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Find the ``k`` codes nearest to each query by Hamming distance, exactly.

    .. math:: d(q, c) = \sum_b q_b \oplus c_b, \qquad \langle q, c \rangle = K - 2 d(q, c)

    for codes of :math:`K` bits, so that the nearest codes have the largest dot products of their
    :math:`\pm 1` values. Row scales have no part in it. Of equally near codes those with the
    smaller index win, on every device and for any chunks and shards: results are equal to the bit.
    No matrix of all distances is made.

    Args:
        queries: ``[Q, K]``.
        codes: ``[N, K]``, or shards of it, whose rows are numbered through. Those on another device
            than the queries are moved to it, a chunk at a time.
        k: at most N.
        chunk: most codes searched at a time, which bounds what is moved; None for a whole shard.

    Returns:
        Distances int32 and indices int64, both ``[Q, k]``, nearest first, on the device of the
        queries.

    Raises:
        TypeError: an operand is not a :class:`~bitgnn.BitTensor`.
        ValueError: sizes differ, or ``k`` or ``chunk`` is out of range.
    """
    _matrix("queries", queries)
    if chunk is not None and chunk < 1:
        raise ValueError(f"{_NAME}: chunk must be at least 1, got {chunk}")
    if k < 0:
        raise ValueError(f"{_NAME}: k must not be negative, got {k}")
    found: tuple[Tensor, Tensor] | None = None
    seen, device, size = 0, queries.words.device, queries.size
    for part in _parts([codes] if isinstance(codes, BitTensor) else codes, size, chunk):
        words = part.to(device, non_blocking=True)
        distances, indices = call(_NAME, _NAME, queries.words, words, size, min(k, words.size(0)))
        if found is None:
            found = distances, indices
        else:
            found = merge_topk((found[0], distances), (found[1], indices + seen), k)
        seen += words.size(0)
    if k > seen:
        raise ValueError(f"{_NAME}: k must be at most the {seen} codes, got {k}")
    if found is None:
        rows = queries.words.size(0)
        found = queries.words.new_empty((rows, 0)), queries.words.new_empty((rows, 0)).long()
    return found


def merge_topk(
    distances: Sequence[Tensor], indices: Sequence[Tensor], k: int
) -> tuple[Tensor, Tensor]:
    """Merge the nearest codes of several shards: the ``k`` nearest of all of them.

    Args:
        distances: int32 ``[Q, k_i]`` of each shard.
        indices: int64 ``[Q, k_i]`` of each shard, numbered through all of them.
        k: codes to keep, at most as many as there are.

    Returns:
        Distances int32 and indices int64 ``[Q, min(k, sum of k_i)]``, nearest first, of equally
        near codes the smaller index first.

    Raises:
        ValueError: there is no shard, or shapes differ.
    """
    if not distances or [d.shape for d in distances] != [i.shape for i in indices]:
        raise ValueError(
            "merge_topk: distances and indices must be of the same shards, got shapes "
            f"{[list(d.shape) for d in distances]} and {[list(i.shape) for i in indices]}"
        )
    near, places = torch.cat(tuple(distances), 1), torch.cat(tuple(indices), 1)
    places, order = places.sort(dim=1)
    near, by_distance = near.gather(1, order).sort(dim=1, stable=True)
    return near[:, :k].contiguous(), places.gather(1, by_distance)[:, :k].contiguous()


def _matrix(name: str, x: BitTensor) -> None:
    _arguments.bit_matrix(_NAME, name, x)
    if x.words.dim() != 2:
        raise ValueError(f"{_NAME}: {name} must have two dimensions, got shape {list(x.shape)}")


def _parts(shards: Iterable[BitTensor], size: int, chunk: int | None) -> Iterator[Tensor]:
    """Words of the codes, at most ``chunk`` rows at a time."""
    if not isinstance(shards, Iterable):
        raise TypeError(
            f"{_NAME}: codes must be a BitTensor or shards of it, got {name_type(shards)}"
        )
    for shard in shards:
        _matrix("codes", shard)
        if shard.size != size:
            raise ValueError(f"{_NAME}: codes must have {size} bits like queries, got {shard.size}")
        yield from (shard.words,) if chunk is None else shard.words.split(chunk)
