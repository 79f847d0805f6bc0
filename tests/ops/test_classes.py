"""Classes of summed neighbours, and sums of tables beyond a GPU's cache; rows of every length."""

import pytest
import torch

DEGREES = [
    *range(40), 63, 64, 65, 127, 128, 129, 255, 256, 257, 260, 511, 512, 513, 600, 1025, 9000,
    0, 3,
]  # fmt: skip
SIZES = [1, 2, 31, 32, 33, 64, 100, 128, 129, 172, 256, 257, 300, 600]


def bits(rows, size, generator):
    shape, device = (rows, -(-size // 32)), generator.device
    words = torch.randint(-(2**31), 2**31, shape, generator=generator, device=device)
    if size % 32:
        words[:, -1] &= (1 << size % 32) - 1
    return words.int()


def drawn(size, dtype, nodes=500, seed=0):
    """Rows of all degrees, in any order, of packed rows."""
    generator = torch.Generator().manual_seed(seed)
    degrees = torch.tensor(DEGREES)[torch.randperm(len(DEGREES), generator=generator)]
    rowptr = torch.cat([torch.zeros(1), degrees.cumsum(0)]).to(dtype)
    indices = torch.randint(nodes, (int(rowptr[-1]),), generator=generator, dtype=torch.int32)
    return bits(nodes, size, generator), rowptr, indices


def factors(kind, rows, size):
    """Factors of the rows and a bias, such that ties, NaN and infinities decide."""
    generator = torch.Generator().manual_seed(size)
    row = torch.randn(rows, generator=generator)
    bias = torch.randn(size, generator=generator)
    if kind == "none":
        return None, None
    if kind == "rows":
        return row, None
    if kind == "special":
        row[::5], row[1::5] = torch.nan, 0.0
        row[2::5], row[3::5] = torch.inf, -torch.inf
        bias[torch.rand(size, generator=generator) < 0.1] = torch.nan
    if kind == "infinite":
        row, bias = None, torch.full((size,), -torch.inf)
    if kind == "ties":
        row, bias = None, torch.randint(-2, 3, (size,), generator=generator).float()
    return row, bias


def classes_of(x, size, rowptr, indices, row, bias):
    """By dense rows of the signs."""
    held = (x.unsqueeze(2) >> torch.arange(32)) & 1
    signs = 2 * held.flatten(1)[:, :size] - 1
    rows = torch.arange(len(rowptr) - 1).repeat_interleave(rowptr.diff().long())
    sums = torch.zeros(len(rowptr) - 1, size, dtype=torch.int32)
    scores = sums.index_add_(0, rows, signs[indices.long()].int()).float()
    scores = scores if row is None else row.unsqueeze(1) * scores
    return (scores if bias is None else scores + bias).argmax(-1)


@pytest.mark.parametrize("kind", ["none", "rows", "both", "special", "infinite", "ties"])
@pytest.mark.parametrize("size", SIZES)
def test_classes_of_every_degree(size, kind, device):
    for dtype in (torch.int32, torch.int64):
        x, rowptr, indices = drawn(size, dtype)
        given = x, size, rowptr, indices, *factors(kind, len(rowptr) - 1, size)
        moved = (t.to(device) if isinstance(t, torch.Tensor) else t for t in given)
        found = torch.ops.bitgnn.bspmm_classes(*moved)
        assert torch.equal(found.cpu(), classes_of(*given))


@pytest.mark.parametrize("name", ["bspmm_bbb", "bspmm_bbf", "bspmm_classes"])
@pytest.mark.parametrize("pad", [1, 2, 3, 4])
def test_rows_may_lie_apart(name, pad, device):
    for size in (20, 64, 100, 172):
        x, rowptr, indices = drawn(size, torch.int32)
        wide = torch.full((len(x), x.size(1) + pad), -1, dtype=torch.int32, device=device)
        wide[:, : x.size(1)] = x.to(device)
        pattern = rowptr.to(device), indices.to(device)
        operator = getattr(torch.ops.bitgnn, name)
        expected = operator(x.to(device), size, *pattern)
        assert torch.equal(operator(wide[:, : x.size(1)], size, *pattern), expected)
        # What follows the last row need not be there.
        whole = wide.flatten()[: wide.numel() - pad].clone()
        apart = whole.as_strided(x.shape, (wide.size(1), 1))
        assert torch.equal(operator(apart, size, *pattern), expected)


def test_rows_without_neighbours_and_no_rows(device):
    x, none = torch.zeros(3, 1, dtype=torch.int32, device=device), torch.empty(0, device=device)
    bias = torch.tensor([0.0, 2.0, 2.0], device=device)
    for rows in (0, 1, 1000):
        rowptr = torch.zeros(rows + 1, dtype=torch.int64, device=device)
        found = torch.ops.bitgnn.bspmm_classes(x, 3, rowptr, none.int(), None, bias)
        assert torch.equal(found, torch.ones(rows, dtype=torch.int64, device=device))
    with pytest.raises((RuntimeError, ValueError), match="bspmm_classes: size must be at least 1"):
        torch.ops.bitgnn.bspmm_classes(x[:, :0], 0, rowptr, none.int())


@pytest.mark.cuda
@pytest.mark.parametrize("size", [70, 128, 172, 256])
@pytest.mark.parametrize("name", ["bspmm_bbb", "bspmm_bbf", "bspmm_classes"])
def test_tables_beyond_the_cache(name, size):
    """The same as of a table that has the rows that are read, and lies in the cache."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    nodes = cache // (4 * (-(-size // 32))) + 1000
    generator = torch.Generator("cuda").manual_seed(size)
    x = bits(nodes, size, generator)
    _, rowptr, _ = drawn(size, torch.int64)
    more = torch.randint(0, 30, (20_000,), generator=generator, device="cuda").cumsum(0)
    rowptr = torch.cat([rowptr.cuda(), more + rowptr[-1].item()])
    shape, rows = (int(rowptr[-1]),), len(rowptr) - 1
    indices = torch.randint(nodes, shape, generator=generator, device="cuda", dtype=torch.int32)
    row = torch.randn(rows, generator=generator, device="cuda")
    last = torch.randn(size, generator=generator, device="cuda")
    read, places = indices.unique(return_inverse=True)
    small = x[read.long()].contiguous(), size, rowptr, places.int()
    for factors in ((None, None), (row, None), (None, last), (row, last)):
        found = getattr(torch.ops.bitgnn, name)(x, size, rowptr, indices, *factors)
        if name == "bspmm_classes":
            expected = torch.ops.bitgnn.bspmm_bbf(*small, *factors).argmax(-1)
        else:
            expected = getattr(torch.ops.bitgnn, name)(*small, *factors)
        assert torch.equal(found, expected)


@pytest.mark.cuda
def test_classes_are_captured():
    x, rowptr, indices = (t.cuda() for t in drawn(172, torch.int64))
    given = x, 172, rowptr, indices, None, None, True
    expected = torch.ops.bitgnn.bspmm_classes(*given)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        found = torch.ops.bitgnn.bspmm_classes(*given)
    found.zero_()
    graph.replay()
    assert torch.equal(found, expected)
