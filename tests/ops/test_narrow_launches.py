"""Sums over narrow integers where the kernels choose by the size of a graph: the same bits."""

import pytest
import torch

from bitgnn import BitAdjacency, BitTensor

pytestmark = pytest.mark.cuda

NODES = 500


def pattern(degrees: torch.Tensor) -> BitAdjacency:
    """Rows of these degrees with their columns in order."""
    generator = torch.Generator("cuda").manual_seed(0)
    rows = torch.repeat_interleave(torch.arange(len(degrees), device="cuda"), degrees.cuda())
    columns = torch.randint(NODES, rows.shape, generator=generator, device="cuda")
    columns = torch.sort(rows * NODES + columns).values % NODES
    rowptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)]).cuda()
    row, col = (torch.rand(n, device="cuda") ** 4 for n in (len(degrees), NODES))
    return BitAdjacency(rowptr, columns.int(), NODES, row, col)


def many_edges() -> torch.Tensor:
    """Over 2 ** 23 edges, from 32 a row on: rows are ordered by degree. Some are whole blocks'."""
    degrees = torch.randint(440, (40_000,), generator=torch.Generator().manual_seed(1))
    degrees[::1000] = 0
    degrees[[5, 777, 39_999]] = torch.tensor([9_000, 20_001, 513])
    assert int(degrees.sum()) >= max(1 << 23, 32 * len(degrees))
    return degrees


def many_short_rows() -> torch.Tensor:
    """Over 2 ** 15 rows of up to 16 edges on the mean: the first blocks look for long ones."""
    degrees = torch.randint(20, (33_001,), generator=torch.Generator().manual_seed(1))
    degrees[[0, 4_321, 33_000]] = torch.tensor([300, 2_345, 5_000])
    assert int(degrees.sum()) <= 16 * len(degrees)
    return degrees


def few_rows() -> torch.Tensor:
    """Rows about as long as those that whole blocks take of a given order, from 512 edges on."""
    degrees = torch.arange(470, 560).repeat(3)
    degrees[[0, 100, 269]] = torch.tensor([0, 511, 4_000])
    return degrees


@pytest.mark.parametrize("degrees", [many_edges, many_short_rows, few_rows])
@pytest.mark.parametrize(
    ("size", "classes"),
    [(64, 3), (127, 7), (256, 7), (200, 20), (128, 41), (127, 41), (501, 45), (300, 60)],
)
def test_rows_have_the_bits_of_the_cpu(degrees, size, classes):
    adjacency = pattern(degrees())
    generator = torch.Generator().manual_seed(size)
    x = BitTensor.from_float(torch.randn(NODES, size, generator=generator), scale="mean").to("cuda")
    w = BitTensor.from_float(torch.randn(classes, size, generator=generator), scale="mean")
    w = w.to("cuda")
    for factors in ({"x_scale": x.scale, "col": adjacency.col_scale}, {}):
        given = {"x": x.words, "w": w.words, "size": size, "row": adjacency.row_scale, **factors}
        over_csr = {**given, "rowptr": adjacency.rowptr, "indices": adjacency.indices}
        here = {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in over_csr.items()}
        expected = torch.ops.bitgnn.bmm_bspmm_narrow(**here).cuda()
        for order in (None, adjacency.row_order()):
            found = torch.ops.bitgnn.bmm_bspmm_narrow(**over_csr, order=order)
            assert torch.equal(found, expected)
            assert torch.equal(torch.ops.bitgnn.bmm_bspmm_narrow(**over_csr, order=order), found)
            if factors:  # without them there are ties
                highest = torch.ops.bitgnn.bmm_bspmm_narrow(**over_csr, head=3, order=order)
                assert torch.equal(highest, found.argmax(-1))
