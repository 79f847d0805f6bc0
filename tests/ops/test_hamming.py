"""Nearest codes by Hamming distance: order, ties, chunks, shards, many and far codes, errors."""

import itertools

import pytest
import torch
from torch import Tensor

from bitgnn import BitTensor
from bitgnn.bits.tensor import words_for
from bitgnn.ops.hamming import hamming_topk, merge_topk
from bitgnn.ops.reference import OPERATORS

REFERENCE = OPERATORS["hamming_topk"]


def words(rows: int, size: int, generator: torch.Generator, values: int = 2**31) -> Tensor:
    """Random words, of few values many rows are equally far."""
    found = torch.randint(-values, values, (rows, words_for(size)), generator=generator).int()
    if size % 32:
        found[:, -1] &= (1 << size % 32) - 1
    return found


def assert_nearest(queries: Tensor, codes: Tensor, size: int, k: int, device: torch.device) -> None:
    found = torch.ops.bitgnn.hamming_topk(queries.to(device), codes.to(device), size, k)
    expected = REFERENCE(queries, codes, size, k)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine.cpu(), theirs)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 64, 96, 256, 300, 512, 1000, 1024, 1056, 2048])
@pytest.mark.parametrize("values", [1, 2**31], ids=["ties", "random"])
def test_sizes(size, values, device):
    generator = torch.Generator().manual_seed(size)
    for queries, codes in ((1, 1), (2, 33), (3, 4097), (17, 300), (130, 513)):
        pair = [words(rows, size, generator, values) for rows in (queries, codes)]
        for k in {1, min(codes, 20), codes}:
            assert_nearest(*pair, size, k, device)


def test_more_queries_than_pass_the_codes_together(device):
    generator = torch.Generator().manual_seed(0)
    assert_nearest(words(1100, 64, generator), words(600, 64, generator), 64, 9, device)


@pytest.mark.parametrize("queries", [1, 2, 40])
@pytest.mark.parametrize("k", [1, 100, 3000])
def test_codes_in_the_worst_order(queries, k, device):
    """Each code is nearer than all before, so that every one of them is near when it is read."""
    generator = torch.Generator().manual_seed(1)
    codes, query = words(30_000, 256, generator), words(1, 256, generator)
    distance, order = REFERENCE(query, codes, 256, len(codes))
    assert distance[0, 0] < distance[0, -1]
    far = words(queries, 256, generator)
    far[0] = query[0]
    assert_nearest(far, codes[order[0].flip(0)], 256, k, device)


@pytest.mark.parametrize("queries", [1, 5])
def test_equal_codes(queries, device):
    generator = torch.Generator().manual_seed(2)
    codes = words(1, 128, generator).expand(20_000, -1).contiguous()
    assert_nearest(words(queries, 128, generator), codes, 128, 50, device)


@pytest.mark.parametrize("size", [1, 33, 250])
def test_padding_bits_count_nowhere(size, device):
    generator = torch.Generator().manual_seed(3)
    set_bits = [torch.full_like(words(rows, size, generator), -1) for rows in (3, 70)]
    set_bits[1][35:] = words(35, size, generator)
    assert_nearest(*set_bits, size, 60, device)


def test_views(device):
    generator = torch.Generator().manual_seed(4)
    queries, codes = words(9, 64, generator).to(device), words(200, 64, generator).to(device)
    for pair in ((queries[1:], codes[1:]), (queries[::2], codes[::3]), (queries.flip(1), codes)):
        found = torch.ops.bitgnn.hamming_topk(*pair, 64, 5)
        expected = REFERENCE(*(part.cpu().contiguous() for part in pair), 64, 5)
        assert all(torch.equal(a.cpu(), b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_agree(threads):
    generator = torch.Generator().manual_seed(5)
    queries, codes = words(3, 256, generator, 2), words(70_001, 256, generator, 2)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_nearest(queries, codes, 256, 200, torch.device("cpu"))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("chunk", [None, 1, 7, 1000])
def test_chunks_and_shards(chunk, device):
    generator = torch.Generator().manual_seed(6)
    codes = BitTensor(words(500, 40, generator, 4), 40)
    queries = BitTensor(words(6, 40, generator, 4), 40).to(device)
    expected = REFERENCE(queries.words.cpu(), codes.words, 40, 30)
    rows = (0, 200, 200, 203, 500)
    shards = [codes[a:b] for a, b in itertools.pairwise(rows)]
    for held in (codes, shards, iter(shards), [shard.to(device) for shard in shards]):
        found = hamming_topk(queries, held, 30, chunk=chunk)
        assert all(torch.equal(a.cpu(), b) for a, b in zip(found, expected, strict=True))
        assert all(result.device.type == device.type for result in found)


def test_distances_are_those_of_dot_products():
    x, y = torch.randn(4, 100), torch.randn(50, 100)
    distances, indices = hamming_topk(BitTensor.from_float(x), BitTensor.from_float(y), 50)
    dots = torch.where(x >= 0, 1, -1) @ torch.where(y >= 0, 1, -1).T
    assert torch.equal(100 - 2 * distances.long(), dots.gather(1, indices))
    assert torch.equal(dots.sort(dim=1, descending=True, stable=True).indices, indices)


def test_merged_shards_may_come_in_any_order():
    near = [torch.tensor([[1, 3]]).int(), torch.tensor([[1, 1, 2]]).int()]
    places = [torch.tensor([[7, 2]]), torch.tensor([[9, 5, 0]])]
    distances, indices = merge_topk(near, places, 4)
    assert distances.tolist() == [[1, 1, 1, 2]]
    assert indices.tolist() == [[5, 7, 9, 0]]
    with pytest.raises(ValueError, match="of the same shards"):
        merge_topk(near, places[:1], 4)


def test_wrong_arguments():
    queries, codes = BitTensor(torch.zeros(2, 2).int(), 40), BitTensor(torch.zeros(3, 2).int(), 40)
    with pytest.raises(TypeError, match=r"queries must be a BitTensor, got torch\.float32 Tensor"):
        hamming_topk(torch.zeros(2, 40), codes, 1)
    with pytest.raises(TypeError, match="codes must be a BitTensor or shards of it, got int"):
        hamming_topk(queries, 3, 1)
    with pytest.raises(ValueError, match="codes must have 40 bits like queries, got 64"):
        hamming_topk(queries, BitTensor(torch.zeros(3, 2).int(), 64), 1)
    with pytest.raises(ValueError, match="k must be at most the 3 codes, got 4"):
        hamming_topk(queries, codes, 4)
    with pytest.raises(ValueError, match="k must not be negative, got -1"):
        hamming_topk(queries, codes, -1)
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        hamming_topk(queries, codes, 1, chunk=0)
    with pytest.raises(ValueError, match="queries must have two dimensions"):
        hamming_topk(queries[0], codes, 1)
    with pytest.raises(RuntimeError, match="k must be from 0 to the 3 rows of codes, got 4"):
        torch.ops.bitgnn.hamming_topk(queries.words, codes.words, 40, 4)
    assert [r.shape for r in hamming_topk(queries, [], 0)] == [(2, 0), (2, 0)]
