"""Pairs of operators equal the two operators one after the other."""

import pytest
import torch
from wrong_calls import check_wrong_calls

from bitgnn import BitAdjacency, BitTensor
from bitgnn.ops import add, bmm, bspmm, fused

N, K, M = 40, 70, 37


@pytest.fixture
def operands(device):
    generator = torch.Generator().manual_seed(0)
    x, w, other = (torch.randn(shape, generator=generator) for shape in ((N, K), (M, K), (N, M)))
    edge_index = torch.randint(N, (2, 200), generator=generator)
    adjacency = BitAdjacency.from_edge_index(edge_index, N, normalize="sym")
    vector = torch.randn(M, generator=generator)
    return (
        x.to(device),
        BitTensor.from_float(w, scale="mean").to(device),
        other.to(device),
        adjacency.to(device),
        vector.to(device),
    )


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_bmm_add(operands, packed, scale):
    x, w, other, _, vector = operands
    if packed:
        x = BitTensor.from_float(x, scale="mean")
        product = bmm.bbf(x, w, scale=scale, bias=vector)
    else:
        product = bmm.fbf(x, w, scale=scale, bias=vector)
    assert torch.equal(fused.bmm_add(x, w, other, scale=scale, bias=vector), product + other)
    flip = vector > 0.5
    found = fused.bmm_add_bits(x, w, other, scale=scale, bias=vector, threshold=vector, flip=flip)
    expected = add.ffb(product, other, threshold=vector).to_float() > 0
    assert torch.equal(found.to_float() > 0, expected ^ flip)


# Packed rows, features and outputs of every way to multiply them.
@pytest.mark.parametrize(
    ("n", "k", "m"),
    [(3, 1, 1), (300, 257, 300), (2100, 1024, 1030), (33000, 100, 20), (33000, 64, 129)],
)
def test_bmm_add_of_packed_rows(n, k, m, device):
    generator = torch.Generator().manual_seed(k)
    x = BitTensor.from_float(torch.randn(n, k, generator=generator), scale="mean").to(device)
    w = BitTensor.from_float(torch.randn(m, k, generator=generator), scale="mean").to(device)
    other = (torch.randn(n, m, generator=generator) * 10).to(device)
    vector = torch.randn(m, generator=generator).to(device)
    total = bmm.bbf(x, w, scale=True, bias=vector) + other
    assert torch.equal(fused.bmm_add(x, w, other, scale=True, bias=vector), total)
    found = fused.bmm_add_bits(x, w, other, scale=True, bias=vector, threshold=vector)
    assert torch.equal(found.to_float() > 0, total >= vector)
    plain = fused.bmm_add_bits(x, w, other, scale=False)
    assert torch.equal(plain.to_float() > 0, bmm.bbf(x, w, scale=False) + other >= 0)


@pytest.mark.parametrize("packed", [False, True])
def test_bmm_bspmm(operands, packed):
    x, w, _, adjacency, vector = operands
    if packed:
        x = BitTensor.from_float(x, scale="mean")
    bits = bmm.bbb(x, w) if packed else bmm.fbb(x, w)
    floats = bmm.bbf(x, w) if packed else bmm.fbf(x, w)
    found = fused.bmm_bspmm(x, w, adjacency, bias=vector)
    assert torch.equal(found, bspmm.bbf(bits, adjacency, bias=vector))
    found = fused.bmm_bspmm(x, w, adjacency, hidden="F", bias=vector)
    assert torch.equal(found, bspmm.fbf(floats, adjacency, bias=vector))
    bits_found = fused.bmm_bspmm_bits(x, w, adjacency, threshold=vector)
    assert bits_found.equal(bspmm.bbb(bits, adjacency, threshold=vector))
    bits_found = fused.bmm_bspmm_bits(x, w, adjacency, hidden="F", threshold=vector)
    assert bits_found.equal(bspmm.fbb(floats, adjacency, threshold=vector))


X, W = torch.ones(6, 40), BitTensor.from_float(torch.ones(5, 40))
GRAPH = BitAdjacency.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 6)
WRONG = r"""
fused.bmm_add(X, W, torch.ones(6, 4))
    -> ValueError: fused.bmm_add: addend must be float32 \[6, 5\], got torch.float32 \[6, 4\]
fused.bmm_add_bits(X, W, torch.ones(6, 5).double()) -> ValueError: torch.float64
fused.bmm_bspmm(X, W, GRAPH, hidden="b")
    -> ValueError: fused.bmm_bspmm: hidden must be 'B' or 'F' or 'I', got 'b'
fused.bmm_bspmm(BitTensor.from_float(X), W, GRAPH, x_threshold=X[0])
    -> ValueError: x_threshold and x_gain must be None with packed x
fused.bmm_bspmm_bits(X[:, :3], W, GRAPH) -> ValueError: w must hold 3 features
fused.bmm_bspmm_bits(X[:3], W, GRAPH) -> ValueError: adjacency must have 3 columns
torch.ops.bitgnn.bmm_add(X, W.words, torch.ones(6, 5), 40, torch.ones(6))
    -> RuntimeError: bmm_add: x_scale must be left out with float x
torch.ops.bitgnn.bmm_bspmm(X, W.words, 40, GRAPH.rowptr, GRAPH.indices, col=torch.ones(6))
    -> RuntimeError: bmm_bspmm: col must be left out with hidden_bits=True
"""


def test_errors():
    check_wrong_calls(WRONG, globals())
