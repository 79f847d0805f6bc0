"""The Python operators against plain float matrix products: an oracle apart from the reference."""

import pytest
import torch
from torch import Tensor

from bitgnn import BitAdjacency, BitTensor
from bitgnn.ops import add, bmm, bspmm, concat
from bitgnn.ops.pack import pack, unpack

SHAPES = [(1, 1, 1), (5, 33, 7), (40, 128, 65), (17, 1433, 16)]
LAYOUTS = [None, "csr", "sliced", "frdc"]


def sgn(x: Tensor) -> Tensor:
    return torch.where(x >= 0, 1.0, -1.0).to(torch.float64)


def close(found: Tensor, expected: Tensor) -> None:
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5, atol=1e-4)


def bits_agree(found: BitTensor, value: Tensor, flip: Tensor | None = None) -> None:
    """Bits of ``value >= 0`` wherever the float oracle is not within rounding of a tie."""
    expected = value >= 0
    if flip is not None:
        expected = expected ^ flip
    sure = value.abs() > 1e-4
    assert found.scale is None
    assert torch.equal((found.validate().to_float() > 0)[sure], expected[sure])
    assert value.numel() == 0 or sure.double().mean() > 0.5


@pytest.fixture(params=SHAPES, ids=str)
def problem(request, device):
    n, k, m = request.param
    torch.manual_seed(n + k + m)
    x, w = torch.randn(n, k, device=device), torch.randn(m, k, device=device)
    return x, w


@pytest.mark.parametrize("letters", ["bb", "fb", "bf", "ff"])
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_bmm(letters, scale, bias, problem):
    x, w = problem
    offset = torch.randn(len(w), device=x.device) if bias else None
    dot = sgn(x) @ sgn(w).t()
    value = dot
    if scale:
        value = x.double().abs().mean(1, keepdim=True) * w.double().abs().mean(1) * value
    if bias:
        value = value + offset
    left = x if letters[0] == "f" else BitTensor.from_float(x, scale="mean")
    right = w if letters[1] == "f" else BitTensor.from_float(w, scale="mean")
    to_bits = getattr(bmm, f"{letters}b")
    if not scale and not bias:
        # Integers: ties occur and must give +1.
        assert torch.equal(to_bits(left, right, scale=False).to_float(), sgn(dot).float())
    else:
        bits_agree(to_bits(left, right, scale=scale, bias=offset), value)
    threshold = torch.randn(len(w), device=x.device)
    flip = torch.rand(len(w), device=x.device) < 0.5
    found = to_bits(left, right, scale=scale, bias=offset, threshold=threshold, flip=flip)
    bits_agree(found, value - threshold, flip)
    if letters != "ff":
        to_float = getattr(bmm, f"{letters}f")
        close(to_float(left, right, scale=scale, bias=offset), value)
        integers = to_float(left, right, integer=True)
        assert integers.dtype == torch.int32
        assert torch.equal(integers.double(), dot)


def test_batch_norm_folds_into_threshold_and_gain(problem):
    x, w = problem
    mean, gain = torch.randn(x.size(1), device=x.device), torch.rand(x.size(1), device=x.device)
    normal = (x - mean) * gain
    value = normal.abs().mean(1, keepdim=True) * (sgn(x - mean) @ sgn(w).t())
    packed = BitTensor.from_float(w)
    close(bmm.fbf(x, packed, x_threshold=mean, x_gain=gain), value)
    bias = torch.randn(len(w), device=x.device)
    bits = bmm.fbb(x, packed, bias=bias, x_threshold=mean, x_gain=gain)
    bits_agree(bits, value + bias)
    scaled = pack(x, threshold=mean, gain=gain, scale="mean")
    close(scaled.scale, normal.abs().mean(1))
    assert torch.equal(unpack(pack(x, threshold=mean)), sgn(x - mean).float())


@pytest.fixture(params=[(1, 1, 1), (30, 40, 33), (65, 20, 128)], ids=str)
def graph(request, device):
    """Activations, adjacency with factors, and its dense float64 parts."""
    m, n, k = request.param
    torch.manual_seed(m + n + k)
    edge_index = torch.stack([torch.randint(n, (3 * m,)), torch.randint(m, (3 * m,))])
    edge_index = torch.unique(edge_index, dim=1)
    plain = BitAdjacency.from_edge_index(edge_index, (m, n))
    adjacency = BitAdjacency(
        plain.rowptr, plain.indices, n, row_scale=torch.randn(m), col_scale=torch.rand(n)
    ).to(device)
    pattern = torch.zeros(m, n, dtype=torch.float64)
    pattern[edge_index[1], edge_index[0]] = 1
    return torch.randn(n, k, device=device), adjacency, pattern.to(device)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bspmm_bits_over_pattern(layout, graph):
    x, adjacency, pattern = graph
    packed = BitTensor.from_float(x)
    sums = pattern @ sgn(x)
    value = adjacency.row_scale.double().unsqueeze(1) * sums
    offset = torch.randn(x.size(1), device=x.device)
    close(bspmm.bbf(packed, adjacency, layout=layout), value)
    close(bspmm.bbf(packed, adjacency, bias=offset, layout=layout), value + offset)
    integers = bspmm.bbf(packed, adjacency, integer=True, layout=layout)
    assert integers.dtype == torch.int32
    assert torch.equal(integers.double(), sums)
    # Ties and empty rows give +1.
    found = bspmm.bbb(packed, adjacency, layout=layout)
    assert torch.equal(found.to_float(), sgn(value).float())
    bits_agree(bspmm.bbb(packed, adjacency, threshold=offset, layout=layout), value - offset)


def test_bspmm_floats_over_pattern(graph):
    x, adjacency, _ = graph
    value = adjacency.to_dense().double() @ x.double()
    offset = torch.randn(x.size(1), device=x.device)
    close(bspmm.fbf(x, adjacency), value)
    close(bspmm.fbf(x, adjacency, bias=offset), value + offset)
    bits_agree(bspmm.fbb(x, adjacency, threshold=offset), value - offset)
    close(bspmm.fbf(x.to(torch.float64), adjacency), value)
    half = x.to(torch.bfloat16)
    close(bspmm.fbf(half, adjacency), adjacency.to_dense().double() @ half.double())


@pytest.mark.parametrize("form", ["csr", "csr32", "coo", "SparseTensor"])
def test_bspmm_over_float_matrix(form, graph):
    x, _, pattern = graph
    weights = torch.randn(pattern.shape, dtype=torch.float64, device=x.device) * pattern
    matrix = weights.float().to_sparse_coo() if form == "coo" else weights.float().to_sparse_csr()
    if form == "csr32":
        parts = matrix.crow_indices().int(), matrix.col_indices().int(), matrix.values()
        matrix = torch.sparse_csr_tensor(*parts, weights.shape)
    if form == "SparseTensor":
        reason = "torch_sparse (extra 'sparse') is not installed"
        sparse = pytest.importorskip("torch_sparse", reason=reason)
        matrix = sparse.SparseTensor.from_torch_sparse_csr_tensor(matrix)
    packed = BitTensor.from_float(x, scale="mean")
    offset = torch.randn(x.size(1), device=x.device)
    value = weights @ x.double()
    close(bspmm.fff(x, matrix, bias=offset), value + offset)
    bits_agree(bspmm.ffb(x, matrix, threshold=offset), value - offset)
    value = weights @ packed.to_float().double()
    close(bspmm.bff(packed, matrix), value)
    close(bspmm.bff(packed, matrix, bias=offset), value + offset)
    bits_agree(bspmm.bfb(packed, matrix, threshold=offset), value - offset)


def test_duplicate_edges_count_and_turn_frdc_into_csr(device):
    edge_index = torch.tensor([[0, 0, 1], [2, 2, 2]])
    adjacency = BitAdjacency.from_edge_index(edge_index, 3).to(device)
    x = BitTensor.from_float(torch.tensor([[1.0], [-1.0], [-1.0]], device=device))
    for layout in (None, "sliced"):
        assert bspmm.bbf(x, adjacency, layout=layout).tolist() == [[0.0], [0.0], [1.0]]
    with pytest.warns(UserWarning, match="bspmm.bbf: layout 'frdc' cannot hold duplicate edges"):
        assert bspmm.bbf(x, adjacency, layout="frdc").tolist() == [[0.0], [0.0], [1.0]]
    with pytest.warns(UserWarning, match="coalesce=True"):
        assert bspmm.bbb(x, adjacency, layout="frdc").to_float().tolist() == [[1.0]] * 3


@pytest.mark.parametrize("layout", ["csr", "sliced", "frdc"])
def test_empty_graphs(layout, device):
    for m, n, k in [(0, 3, 5), (3, 0, 5), (3, 3, 0), (4, 3, 5)]:
        none = torch.zeros(2, 0, dtype=torch.int64)
        adjacency = BitAdjacency.from_edge_index(none, (m, n)).to(device)
        x = BitTensor.from_float(torch.randn(n, k, device=device))
        assert torch.equal(bspmm.bbf(x, adjacency, layout=layout), torch.zeros(m, k, device=device))
        bits = bspmm.bbb(x, adjacency, layout=layout).validate().to_float()
        assert torch.equal(bits, torch.ones(m, k, device=device))


@pytest.mark.parametrize("scaled", [False, True])
def test_add_and_concat(scaled, device):
    torch.manual_seed(1)
    a, b = torch.randn(9, 70, device=device), torch.randn(9, 70, device=device)
    scale = "mean" if scaled else None
    left, right = (BitTensor.from_float(t, scale=scale) for t in (a, b))
    value = left.to_float().double() + right.to_float().double()
    threshold = torch.randn(140, device=device)
    close(add.bbf(left, right), value)
    # +1 and -1 of equal scales tie; the scales of random rows do not.
    assert torch.equal(add.bbb(left, right).to_float(), sgn(value).float())
    bits_agree(add.bbb(left, right, threshold=threshold[:70]), value - threshold[:70])
    bits_agree(add.ffb(a, b, threshold=threshold[:70]), a + b - threshold[:70])
    assert torch.equal(add.fff(a, b), a + b)
    joined = torch.cat([left.to_float(), right.to_float()], dim=1)
    assert torch.equal(concat.bbf(left, right), joined)
    assert torch.equal(concat.bbb(left, right).validate().to_float(), sgn(joined).float())
    value = torch.cat([a, b], dim=1)
    assert torch.equal(concat.ffb(a, b).to_float(), sgn(value).float())
    bits_agree(concat.ffb(a, b, threshold=threshold), value - threshold)
    assert torch.equal(concat.fff(a, b), value)


needs_operator = pytest.mark.skipif(
    not hasattr(torch.ops.bitgnn, "suits_slices"), reason="compiled operators choose the layout"
)
SLICE = 14_000
"""Columns of a slice."""


@needs_operator
@pytest.mark.parametrize(
    ("rows", "slices", "edges", "words", "sliced_wins"),
    [
        (2_708, 1, 13_000, 4, False),  # Cora: too small
        (89_250, 7, 900_000, 4, False),  # Flickr: too sparse
        (232_965, 17, 114_500_000, 4, True),  # Reddit
        (232_965, 17, 114_500_000, 8, True),
        (232_965, 17, 13_300_000, 4, False),  # few neighbours in a slice
        (60_000, 5, 8_500_000, 4, True),
        (60_000, 5, 8_500_000, 2, True),
        (100_000, 8, 40_000_000, 1, True),
        (2**27, 17, 2**40, 4, False),  # items beyond 32-bit places
        (0, 1, 0, 4, False),
    ],
)
def test_default_layout_follows_density_and_width(rows, slices, edges, words, sliced_wins):
    columns = slices * SLICE
    found = torch.ops.bitgnn.suits_slices(rows, columns, edges, words, 132, SLICE)
    assert found == sliced_wins


@needs_operator
def test_fewer_multiprocessors_gain_from_slices_sooner():
    graph = (20_000, 2 * SLICE, 2_000_000, 4)
    found = [torch.ops.bitgnn.suits_slices(*graph, n, SLICE) for n in (132, 66, 20)]
    assert found == [False, True, True]
