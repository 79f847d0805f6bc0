"""Pairs of operators equal the two operators one after the other."""

import pytest
import torch
from wrong_calls import check_wrong_calls

from bitgnn import BitAdjacency, BitTensor
from bitgnn.ops import add, bmm, bspmm, fused
from bitgnn.ops.fused import bspmm_bmm_bits

CUDA = torch.device("cuda")


def star(num_nodes, hub_edges, edges):
    """A random graph with one node that ``hub_edges`` edges enter."""
    generator = torch.Generator().manual_seed(edges)
    edge_index = torch.randint(num_nodes, (2, edges + hub_edges), generator=generator)
    edge_index[1, :hub_edges] = num_nodes // 3
    return BitAdjacency.from_edge_index(edge_index, num_nodes, normalize="mean")


def operands(nodes, size, outputs):
    generator = torch.Generator().manual_seed(size)
    x, w, h = (
        BitTensor.from_float(torch.randn(shape, generator=generator), scale="mean")
        for shape in ((nodes, size), (outputs, size), (nodes, outputs))
    )
    vectors = torch.randn(3, outputs, generator=generator)
    return x, w, h, vectors


# Rows, features and outputs of every way to multiply them.
@pytest.mark.parametrize(
    ("n", "k", "m"),
    [(3, 1, 1), (40, 70, 37), (300, 257, 300), (2100, 1024, 1030), (33000, 100, 20),
     (33000, 64, 129)],
)  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_bmm_add(n, k, m, packed, scale, device):
    generator = torch.Generator().manual_seed(k)
    x, w, other = (torch.randn(s, generator=generator) for s in ((n, k), (m, k), (n, m)))
    w, other = BitTensor.from_float(w, scale="mean").to(device), (other * 10).to(device)
    x = BitTensor.from_float(x, scale="mean").to(device) if packed else x.to(device)
    vector = torch.randn(m, generator=generator).to(device)
    multiply, flip = bmm.bbf if packed else bmm.fbf, vector > 0.5
    product = multiply(x, w, scale=scale, bias=vector)
    given = {"scale": scale, "bias": vector}
    assert torch.equal(fused.bmm_add(x, w, other, **given), product + other)
    found = fused.bmm_add_bits(x, w, other, **given, threshold=vector, flip=flip)
    expected = add.ffb(product, other, threshold=vector).to_float() > 0
    assert torch.equal(found.to_float() > 0, expected ^ flip)
    plain = fused.bmm_add_bits(x, w, other, scale=scale)
    total = multiply(x, w, scale=scale) + other
    assert torch.equal(plain.to_float() > 0, total >= 0)


@pytest.mark.parametrize("packed", [False, True])
def test_bmm_bspmm(packed, device):
    x, w, _, (vector, *_) = operands(40, 70, 37)
    edge_index = torch.randint(40, (2, 200), generator=torch.Generator().manual_seed(0))
    adjacency = BitAdjacency.from_edge_index(edge_index, 40, normalize="sym").to(device)
    x, w, vector = (x if packed else x.to_float() * 3).to(device), w.to(device), vector.to(device)
    bits = bmm.bbb(x, w) if packed else bmm.fbb(x, w)
    floats = bmm.bbf(x, w) if packed else bmm.fbf(x, w)
    for hidden, held, to_float, to_bits in (
        ("B", bits, bspmm.bbf, bspmm.bbb),
        ("F", floats, bspmm.fbf, bspmm.fbb),
    ):
        found = fused.bmm_bspmm(x, w, adjacency, hidden=hidden, bias=vector)
        assert torch.equal(found, to_float(held, adjacency, bias=vector))
        found = fused.bmm_bspmm_bits(x, w, adjacency, hidden=hidden, threshold=vector)
        assert found.equal(to_bits(held, adjacency, threshold=vector))


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize(("nodes", "size", "outputs"), [(40, 70, 37), (200, 500, 128), (7, 1, 1)])
def test_bits_of_the_sum(nodes, size, outputs, scale, device):
    x, w, h, (sum_bias, bias, threshold) = operands(nodes, size, outputs)
    adjacency = star(nodes, nodes // 2, 3 * nodes)
    total = bmm.bbf(x, w, scale=scale, bias=bias) + bspmm.bbf(h, adjacency, bias=sum_bias)
    flip = bias > 0
    found = bspmm_bmm_bits(
        h.to(device), adjacency.to(device), x.to(device), w.to(device), scale=scale,
        sum_bias=sum_bias.to(device), bias=bias.to(device), threshold=threshold.to(device),
        flip=flip.to(device),
    )  # fmt: skip
    assert torch.equal(found.to_float().cpu() > 0, (total >= threshold) ^ flip)
    plain = bspmm_bmm_bits(h.to(device), adjacency.to(device), x.to(device), w.to(device))
    total = bmm.bbf(x, w) + bspmm.bbf(h, adjacency)
    assert torch.equal(plain.to_float().cpu() > 0, total >= 0)


# Few, some and many neighbours a row; hubs around what a byte, a lane, a warp or a block counts.
PATTERNS = [
    *(
        (hub, outputs, 150_000)
        for hub in (0, 31, 255, 256, 300, 1025, 70000)
        for outputs in (64, 300)
    ),
    *((hub, outputs, 700_000) for hub in (0, 5425) for outputs in (100, 128, 256)),
    # Rows of outputs longer than a block does at once.
    (300, 384, 150_000),
    (700, 256, 3_000_000),
]


# Rows of the nodes' own: of one or two steps of the kernels, of odd many words, and too long for
# some.
@pytest.mark.parametrize("size", [100, 200, 500, 601])
@pytest.mark.parametrize(("hub_edges", "outputs", "edges"), PATTERNS)
@pytest.mark.cuda
def test_hubs_and_degrees_on_a_gpu(hub_edges, outputs, edges, size):
    adjacency = star(40000, hub_edges, edges)
    x, w, h, (sum_bias, bias, threshold) = operands(40000, size, outputs)
    vectors = {"sum_bias": sum_bias, "bias": bias, "threshold": threshold}
    expected = bspmm_bmm_bits(h, adjacency, x, w, **vectors)
    moved = {name: vector.to(CUDA) for name, vector in vectors.items()}
    on_gpu = adjacency.to(CUDA)
    found = bspmm_bmm_bits(h.to(CUDA), on_gpu, x.to(CUDA), w.to(CUDA), **moved)
    assert found.to(torch.device("cpu")).equal(expected)
    sliced = torch.ops.bitgnn.bspmm_bmm_sliced(
        h.words.to(CUDA), *on_gpu.sliced().arguments, x.words.to(CUDA), w.words.to(CUDA), size,
        on_gpu.row_scale, moved["sum_bias"], x.scale.to(CUDA), w.scale.to(CUDA), moved["bias"],
        moved["threshold"],
    )  # fmt: skip
    assert torch.equal(sliced.cpu(), expected.words)


@pytest.mark.parametrize(("nodes", "outputs", "size"), [(32769, 256, 512), (32783, 100, 256)])
@pytest.mark.cuda
def test_values_without_order_on_a_gpu(nodes, outputs, size):
    """NaN and infinities in every factor, rows of every degree up to what a byte counts and on."""
    generator = torch.Generator().manual_seed(nodes)
    degrees = torch.zeros(nodes, dtype=torch.int64)
    degrees[:600] = torch.arange(600)
    destinations = torch.repeat_interleave(torch.arange(nodes), degrees)
    sources = torch.randint(nodes, destinations.shape, generator=generator)
    sources[:5000] = 3  # the same neighbour again and again
    rowptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    x, w, h, vectors = operands(nodes, size, outputs)
    row = torch.rand(nodes, generator=generator)
    x_scale, w_scale = x.scale.clone(), w.scale.clone()
    for values in (row, x_scale, w_scale, *vectors):
        values[1:5] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.5])
    sum_bias, bias, threshold = vectors
    flip = torch.rand(outputs, generator=generator) > 0.5
    for given in (
        (row, sum_bias, x_scale, w_scale, bias, threshold, flip),
        (row, sum_bias, x_scale, w_scale, None, threshold, None),
        (None,) * 7,
    ):
        arguments = (h.words, rowptr, sources.int(), x.words, w.words, size, *given)
        moved = [a.to(CUDA) if isinstance(a, torch.Tensor) else a for a in arguments]
        found = torch.ops.bitgnn.bspmm_bmm(*moved)
        assert torch.equal(found.cpu(), torch.ops.bitgnn.bspmm_bmm(*arguments))
        moved[1] = moved[1].int()
        assert torch.equal(torch.ops.bitgnn.bspmm_bmm(*moved), found)


@pytest.mark.parametrize("columns", [1, 3, 7, 8, 9, 16, 30, 41, 64, 100])
@pytest.mark.parametrize("hub_edges", [0, 300, 5425])
@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.cuda
def test_slots_on_a_gpu_equal_the_cpu(columns, hub_edges, padding):
    adjacency = star(9000, hub_edges, 90_000)
    generator = torch.Generator().manual_seed(columns)
    wide = torch.randn(9000, (columns + 3) // 4 * 4 + padding, generator=generator)
    bias, addend = torch.randn(columns, generator=generator), torch.randn_like(wide)
    arguments = (adjacency.rowptr, adjacency.indices, adjacency.row_scale, bias)
    expected = torch.ops.bitgnn.bspmm_slots(wide[:, :columns], *arguments, addend[:, :columns])
    moved = [argument.to(CUDA) for argument in arguments]
    x, added = wide.to(CUDA)[:, :columns], addend.to(CUDA)[:, :columns]
    assert torch.equal(torch.ops.bitgnn.bspmm_slots(x, *moved, added).cpu(), expected)


X, W, H, _ = operands(6, 40, 5)
GRAPH = star(6, 0, 10)
WRONG = r"""
bspmm_bmm_bits(X, GRAPH, X, W) -> ValueError: neighbours must hold 5 features like w, got 40
bspmm_bmm_bits(H, GRAPH, BitTensor(X.words[:4], 40), W) -> ValueError: x must have 6 rows, got 4
bspmm_bmm_bits(torch.ones(6, 5), GRAPH, X, W) -> TypeError: neighbours must be a BitTensor
bspmm_bmm_bits(H, GRAPH, X, W, sum_bias=torch.ones(4))
    -> ValueError: sum_bias must have shape \[5\], got \[4\]
"""


def test_errors():
    check_wrong_calls(WRONG, globals())
