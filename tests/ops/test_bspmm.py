"""Sums of packed rows where kernels change their way: byte counts, thresholds, long rows."""

import pytest
import torch

from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.ops import bspmm, reference

CUDA = torch.device("cuda")
NAN, INF = float("nan"), float("inf")
# Blocks of eight, sums of bytes, planes of bits, and what bytes count.
DEGREES = [*range(18), 31, 32, 33, 63, 64, 65, *range(125, 130), *range(254, 258), 300, 700]
# Rows around what a lane, two lanes, a warp and a block of a GPU take.
LANES = [0, 1, 4, 5, 15, 16, 30, 31, 32, 33, 60, 61, 62, 63, 64, 65]
LANES += [255, 256, 257, 511, 512, 513, 1025, 5425]


def pattern(nodes, most, lengths, steps, dtype):
    """Row pointers and columns: up to ``most`` neighbours a row, and rows of some lengths."""
    generator = torch.Generator().manual_seed(nodes)
    degrees = torch.randint(most, (nodes,), generator=generator)
    for step in steps:
        degrees[torch.arange(len(lengths)) * step + step] = torch.tensor(lengths)
    degrees[-1] = lengths[-1]
    rowptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    columns = torch.randint(nodes, (int(rowptr[-1]),), generator=generator, dtype=torch.int32)
    return rowptr.to(dtype), columns


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("size", [1, 31, 32, 33, 64, 96, 100, 128, 130, 160, 256, 300, 520, 576])
@pytest.mark.parametrize("name", ["bspmm_bbb", "bspmm_bbf"])
def test_every_degree(name, size, dtype, device, sampler, assert_kernel_equals_reference):
    draw = sampler(seed=size)
    # Each degree several times, as bounds are made from its second row on.
    degrees = torch.tensor(DEGREES * 4)[torch.randperm(4 * len(DEGREES), generator=draw.generator)]
    x, given = draw.bits(90, size), draw.rows(degrees, 90)
    given = given | {"rowptr": given["rowptr"].to(dtype), "size": size}
    x[:3] = torch.ops.bitgnn.pack(torch.tensor([[1.0], [-1.0], [1.0]]).expand(3, size))
    given["x"], given["indices"][::2] = x, given["indices"][::2] % 3  # sums of 127 and -127 occur
    # A factor that all rows of a degree share, as normalisation gives them, and odd ones.
    row, last = degrees.clamp(min=1).float().rsqrt(), draw.floats(size)
    odd = row.clone()
    odd[:6] = torch.tensor([0.0, -1.0, NAN, INF, -INF, 1e-40])
    special = [127.0, 126.5, -127.0, -127.5, -128.0, 128.0, 1e9, -1e9, INF, -INF, NAN, 0.0, -0.0]
    hard = 6 * draw.floats(size)
    hard[: len(special)] = torch.tensor(special[:size])
    vector = "threshold" if name == "bspmm_bbb" else "bias"
    everywhere = {"indices": torch.full_like(given["indices"], 2)}  # the largest sums
    for more in ({}, {"row": row, vector: last}, everywhere, {"row": odd}, {vector: hard}):
        assert_kernel_equals_reference(name, given | more, device)


@pytest.mark.parametrize(("nodes", "size"), [(3000, 65), (70_000, 33), (70_000, 64), (70_000, 96)])
@pytest.mark.parametrize("name", ["bspmm_bbb", "bspmm_bbf"])
def test_many_rows(name, nodes, size, device, sampler, assert_kernel_equals_reference):
    """Enough of them to be split over threads."""
    draw, degrees = sampler(seed=size), torch.arange(nodes) % 5
    degrees[torch.arange(len(DEGREES)) * 37] = torch.tensor(DEGREES)
    given = draw.rows(degrees, nodes) | {"x": draw.bits(nodes, size), "size": size}
    assert_kernel_equals_reference(name, given, device)
    vector = "threshold" if name == "bspmm_bbb" else "bias"
    more = {"row": draw.floats(nodes), vector: draw.floats(size)}
    assert_kernel_equals_reference(name, given | more, device)


@pytest.mark.parametrize("factors", ["none", "by degree", "of their own", "alternating", "odd"])
@pytest.mark.parametrize("size", [1, 33, 64, 128, 200, 600])
def test_thresholds_where_rows_share_degree_and_factor(device, factors, size):
    """As under normalisation; few distinct degrees, empty rows, both sides of 64 neighbours."""
    generator = torch.Generator().manual_seed(size)
    rows, columns = 300, 90
    choice = torch.tensor([0, 1, 2, 5, 5, 5, 8, 63, 64, 200])
    degrees = choice[torch.randint(len(choice), (rows,), generator=generator)]
    rowptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)]).int()
    indices = torch.randint(columns, (int(rowptr[-1]),), generator=generator, dtype=torch.int32)
    by_degree = (degrees + 1).float().rsqrt()
    odd = torch.tensor([0.5, -0.5, 0.0, INF, NAN, 1e-30])
    row = {
        "none": None,
        "by degree": by_degree,
        "of their own": torch.rand(rows, generator=generator),
        "alternating": by_degree * (1 + torch.arange(rows) % 3),
        "odd": odd[torch.arange(rows) % len(odd)],
    }[factors]
    adjacency = BitAdjacency(rowptr, indices, columns, row).to(device)
    x = BitTensor.from_float(torch.randn(columns, size, generator=generator).to(device))
    threshold = 4 * torch.randn(size, generator=generator)
    special = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 5.0, 0.5]
    threshold[: len(special)] = torch.tensor(special[:size])
    threshold = threshold[torch.randperm(size, generator=generator)].to(device)
    parts = (adjacency.rowptr, adjacency.indices, adjacency.row_scale, threshold)
    expected = reference.bspmm.bspmm_bbb(x.words, size, *parts)
    for layout in ("csr", "sliced"):
        found = bspmm.bbb(x, adjacency, threshold=threshold, layout=layout)
        assert torch.equal(found.words, expected), layout


@pytest.mark.cuda
@pytest.mark.parametrize("features", [1, 97, 128, 200, 256, 384])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("letter", ["b", "t"])
def test_every_length_of_a_row(letter, features, dtype):
    generator, nodes = torch.Generator().manual_seed(features), 33_000
    rowptr, columns = pattern(nodes, 9, LANES, (1, 132, 1373), dtype)
    x = torch.randn(nodes, features, generator=generator)
    if letter == "b":
        x = torch.ops.bitgnn.pack(x)
    else:
        x, _ = torch.ops.bitgnn.pack_ternary(x, torch.tensor(0.9))
    row, vector = (torch.randn(n, generator=generator) for n in (nodes, features))
    row[:4] = torch.tensor([0.0, -1.0, NAN, INF])
    for name, more in (
        ("bb", {}),
        ("bb", {"row": row}),
        ("bb", {"row": row, "threshold": vector}),
        ("bf", {"row": row, "bias": vector}),
        ("bf", {"integer": True}),
    ):
        operator = getattr(torch.ops.bitgnn, f"bspmm_{letter}{name}")
        expected = operator(x, features, rowptr, columns, **more)
        moved = {k: v.to(CUDA) if isinstance(v, torch.Tensor) else v for k, v in more.items()}
        arguments = (x.to(CUDA), features, rowptr.to(CUDA), columns.to(CUDA))
        for _ in range(2):
            found = operator(*arguments, **moved).cpu()
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.cuda
@pytest.mark.parametrize("features", [1, 31, 33, 129, 256, 300])
@pytest.mark.parametrize("factors", ["none", "mean", "root", "most", "odd"])
@pytest.mark.parametrize("length", [9, 40])
def test_thresholds_where_degrees_decide(length, factors, features):
    """A table of least counts serves rows whose factor is that of their degree, and no others."""
    generator, nodes = torch.Generator().manual_seed(features), 33_000
    rowptr, columns = pattern(nodes, length, LANES, (1, 132, 1373), torch.int32)
    degrees = rowptr.diff()
    mean = torch.where(degrees > 0, 1 / degrees.float(), 0.0)
    # Products that overflow, and factors for which a bit is no step of the count.
    odd = torch.tensor([-0.5, 0.0, NAN, INF, -INF, 3e38, 1e-40, 1.0])
    row = {
        "none": None,
        "mean": mean,
        "root": degrees.float().rsqrt().nan_to_num(posinf=0.0),
        "most": torch.where(torch.arange(nodes) % 7 == 0, -3 * mean, mean),
        "odd": odd[degrees % len(odd)],
    }[factors]
    threshold = torch.randn(features, generator=generator)
    special = [INF, -INF, NAN, 0.0, -0.0, 1.0, -1.0, 3e38]
    threshold[: len(special)] = torch.tensor(special[:features])
    threshold = threshold[torch.randperm(features, generator=generator)]
    x = torch.ops.bitgnn.pack(torch.randn(nodes, features, generator=generator))
    expected = torch.ops.bitgnn.bspmm_bbb(x, features, rowptr, columns, row, threshold)
    arguments = (x.to(CUDA), features, rowptr.to(CUDA), columns.to(CUDA))
    row = None if row is None else row.to(CUDA)
    for _ in range(2):
        found = torch.ops.bitgnn.bspmm_bbb(*arguments, row, threshold.to(CUDA)).cpu()
        assert torch.equal(found, expected)
