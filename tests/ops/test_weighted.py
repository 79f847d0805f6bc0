"""BSpMM over an adjacency with values: sums of weights by the bit, and of bit planes."""

import pytest
import torch
from wrong_calls import check_wrong_calls

from bitgnn import BitAdjacency, BitTensor
from bitgnn.bits.ternary import TernaryTensor
from bitgnn.ops import bspmm, fused, weighted  # noqa: F401  (wrong calls use them)
from bitgnn.quantize import sgn

SIZES = [(0, 3, 5), (3, 3, 0), (1, 1, 1), (31, 9, 31), (33, 65, 33), (20, 40, 128), (7, 5, 300)]
"""Destinations, sources, features."""


def made(m, n, signed=True, **options):
    """An adjacency of random weights, with duplicates and rows without entries."""
    generator = torch.Generator().manual_seed(m + n)
    count = 6 * m if m and n else 0
    rows = torch.randint(max(1, (m + 1) // 2), (count,), generator=generator) * 2
    rows = rows.clamp(max=max(0, m - 1))
    edges = torch.stack([torch.randint(max(1, n), (count,), generator=generator), rows])
    weight = torch.randn(count, generator=generator)
    weight = weight if signed else weight.abs() + 0.1
    return BitAdjacency.from_edge_index(edges, (m, n), weight, **options)


def drawn(n, k, device):
    return torch.randn(n, k, generator=torch.Generator().manual_seed(k)).to(device)


def agree(found, expected):
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_letter_in_front_of_an_adjacency_with_values(size, device):
    m, n, k = size
    adjacency, x = made(m, n).to(device), drawn(n, k, device)
    assert (adjacency.values is None) == (adjacency.nnz == 0)
    matrix, bias = adjacency.to_dense().double(), drawn(1, k, device)[0]
    packed = BitTensor.from_float(x)
    value = matrix @ sgn(x).double()
    agree(bspmm.bbf(packed, adjacency, bias=bias), value + bias)
    agree(bspmm.bff(packed, adjacency, bias=bias), value + bias)
    agree(bspmm.fbf(x, adjacency, bias=bias), matrix @ x.double() + bias)
    agree(bspmm.fff(x, adjacency), matrix @ x.double())
    if adjacency.values is not None:
        agree(bspmm.fbf((9 * x).to(torch.int8), adjacency), matrix @ (9 * x).char().double())
    # Bits are those of the floats, which are the same sums.
    sums, threshold = bspmm.bbf(packed, adjacency), drawn(1, k, device)[0]
    assert torch.equal(
        bspmm.bbb(packed, adjacency, threshold=threshold).to_float(), sgn(sums - threshold)
    )
    floats = bspmm.fbf(x, adjacency)
    assert torch.equal(bspmm.fbb(x, adjacency).to_float(), sgn(floats))
    # Signs as floats have the same sums, to the last bit.
    assert torch.equal(bspmm.fbf(sgn(x).float(), adjacency), sums)
    scaled = BitTensor.from_float(x, scale="mean")
    assert torch.equal(bspmm.bbf(scaled, adjacency), sums)
    agree(bspmm.bff(scaled, adjacency), matrix @ scaled.to_float().double())


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("bits", [None, 3])
def test_ternary_rows(size, bits, device):
    m, n, k = size
    adjacency, x = made(m, n, value_bits=bits).to(device), drawn(n, k, device)
    matrix, bias = adjacency.to_dense().double(), drawn(1, k, device)[0]
    scaled = TernaryTensor.from_float(x, 0.5)
    for packed in (scaled, TernaryTensor(scaled.words, k, scaled.counts)):
        value = matrix @ packed.to_float().double() + bias
        agree(bspmm.tbf(packed, adjacency, bias=bias), value)
        sums = bspmm.tbf(packed, adjacency)
        assert torch.equal(bspmm.tbb(packed, adjacency).to_float(), sgn(sums))


@pytest.mark.parametrize("least", [0, weighted.PLANE_DEGREE])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("bits", [1, 2, 3, 4])
@pytest.mark.parametrize("signed", [False, True])
def test_values_in_bits_have_exact_sums(size, bits, signed, least, device, monkeypatch):
    monkeypatch.setattr(weighted, "PLANE_DEGREE", least)  # with 0 all sums are those of planes
    m, n, k = size
    if bits == 1 and signed:
        if made(m, n).nnz:
            with pytest.raises(ValueError, match="value_bits must be at least 2 for negative"):
                made(m, n, value_bits=1)
        return
    adjacency, x = made(m, n, signed, value_bits=bits).to(device), drawn(n, k, device)
    if adjacency.values is None:
        return  # there are no edges
    packed, codes = BitTensor.from_float(x), adjacency.values
    assert torch.equal(codes, codes.round())
    if signed:
        assert int(codes.abs().max()) == 2 ** (bits - 1) - 1
    else:
        assert 1 <= int(codes.min()) <= int(codes.max()) == 2**bits - 1
    plain = BitAdjacency(adjacency.rowptr, adjacency.indices, n, values=codes)
    exact = plain.to_dense().double() @ sgn(x).double()
    expected = adjacency.row_scale.unsqueeze(1) * exact.float()
    bias = drawn(1, k, device)[0]
    assert torch.equal(bspmm.bbf(packed, adjacency), expected)
    assert torch.equal(bspmm.bbf(packed, adjacency, bias=bias), expected + bias)
    assert torch.equal(bspmm.fbf(sgn(x).float(), adjacency), expected)  # planes or floats
    found = bspmm.bbb(packed, adjacency, threshold=bias)
    assert torch.equal(found.to_float(), (expected >= bias).float() * 2 - 1)
    planes = adjacency.planes()
    assert len(planes.patterns) == bits
    rebuilt = sum(w * p.to_dense() for w, p in zip(planes.weights, planes.patterns, strict=True))
    assert torch.equal(rebuilt, plain.to_dense())
    assert adjacency.derived_nbytes == planes.nbytes > 0


def test_values_in_bits_are_next_to_the_weights(device):
    exact, rounded = made(40, 30, False).to(device), made(40, 30, False, value_bits=4).to(device)
    most = exact.to_dense().max()
    assert (exact.to_dense() - rounded.to_dense()).abs().max() <= most / 15
    assert made(40, 30, value_bits=2).nnz < exact.nnz  # what rounds to 0 is no entry
    assert "values in 4 bits" in repr(rounded)
    again = rounded.to("cpu")
    assert again.value_bits == 4
    assert torch.equal(again.to_dense(), rounded.to_dense().cpu())
    shared = BitAdjacency.from_edge_index(torch.tensor([[0, 1], [1, 1]]), 2, value_bits=2)
    assert shared.values is None  # which is exact as it is


def test_planes_follow_writes(device, monkeypatch):
    monkeypatch.setattr(weighted, "PLANE_DEGREE", 0)
    adjacency = made(33, 20, value_bits=4).to(device)
    packed = BitTensor.from_float(drawn(20, 40, device))
    before = bspmm.bbf(packed, adjacency)
    adjacency.values.neg_()
    assert torch.equal(bspmm.bbf(packed, adjacency), -before)


@pytest.mark.parametrize("bits", [None, 4])
def test_compiled(bits, device):
    adjacency = made(33, 20, value_bits=bits).to(device)
    packed = BitTensor.from_float(drawn(20, 40, device))
    run = torch.compile(lambda x, a: bspmm.bbf(x, a), backend="aot_eager", fullgraph=True)
    assert torch.equal(run(packed, adjacency), bspmm.bbf(packed, adjacency))


VALUES = made(6, 6)
X = BitTensor.from_float(torch.ones(6, 40))
FLOATS = torch.ones(6, 40)
make, EDGES = BitAdjacency.from_edge_index, torch.tensor([[0, 1], [1, 1]])
WEIGHT = torch.tensor([1.0, 2.0])
WRONG = r"""
bspmm.bbf(X, VALUES, integer=True)
    -> ValueError: bspmm.bbf: integer must be False over an adjacency with values
bspmm.bbf(X, VALUES, layout="frdc") -> ValueError: layout must be None or 'csr' over values
bspmm.bbb(X, VALUES, threshold=WEIGHT) -> ValueError: threshold must have shape \[40\], got \[2\]
bspmm.fbf(FLOATS, VALUES, bias=WEIGHT) -> ValueError: bias must have shape \[40\], got \[2\]
bspmm.bbf(X, made(6, 7)) -> ValueError: adjacency must have 6 columns like the rows of x, got 7
bspmm.bff(X, made(6, 7)) -> ValueError: adjacency must have 6 columns like the rows of x, got 7
fused.bmm_bspmm(X, X, VALUES) -> ValueError: adjacency must have factors or none, got values
make(EDGES, 2, WEIGHT, value_bits=5) -> ValueError: value_bits must be None or from 1 to 4, got 5
make(EDGES, 2, WEIGHT, value_bits=True) -> ValueError: value_bits .* got bool
make(EDGES, 2, -WEIGHT, value_bits=1) -> ValueError: value_bits must be at least 2 for negative
"""


def test_wrong_calls():
    check_wrong_calls(WRONG, globals())
