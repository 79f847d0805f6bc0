"""Signs of neighbour sums around what bytes can count, in tables that are fetched ahead or not."""

import pytest
import torch

from bitgnn.ops import reference

LENGTHS = [0, 1, 2, 125, 126, 127, 128, 129, 254, 255, 256, 257, 700]


def pattern(nodes: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Row pointers and columns: few neighbours a row, and rows around 128 and 256 of them."""
    generator = torch.Generator().manual_seed(nodes)
    degrees = torch.randint(5, (nodes,), generator=generator)
    for step in (1, 37):
        degrees[torch.arange(len(LENGTHS)) * step + step] = torch.tensor(LENGTHS)
    degrees[-1] = LENGTHS[-1]
    rowptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    # Half of the edges lead to the first rows, so that sums of 127 and -127 occur.
    columns = torch.randint(nodes, (int(rowptr[-1]),), generator=generator, dtype=torch.int32)
    columns[::2] %= 3
    return rowptr.to(dtype), columns


# Wide rows of many nodes would take the reference gigabytes.
CASES = [(600, f, t) for f in (1, 31, 32, 33, 64, 96, 130, 576) for t in (torch.int32, torch.int64)]
CASES += [(70_000, f, torch.int32) for f in (1, 32, 64)]
CASES += [(70_000, f, torch.int64) for f in (31, 33, 96)]


@pytest.mark.parametrize(("nodes", "features", "dtype"), CASES)
def test_bits_of_sums(nodes: int, features: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(features)
    rowptr, columns = pattern(nodes, dtype)
    signs = torch.randn(nodes, features, generator=generator)
    signs[:3] = torch.tensor([[1.0], [-1.0], [1.0]])
    x = torch.ops.bitgnn.pack(signs)
    factors = torch.rand(nodes, generator=generator) + 0.1
    odd = factors.clone()
    odd[:6] = torch.tensor([0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e-40])
    special = [127.0, 126.5, -127.0, -127.5, -128.0, 128.0, 1e9, -1e9, float("inf")]
    special += [-float("inf"), float("nan"), 0.0, -0.0, 0.5, -0.5]
    threshold = 6 * torch.randn(features, generator=generator)
    threshold[: len(special)] = torch.tensor(special[:features])
    for row, limit in [(None, None), (factors, None), (odd, None), (None, threshold)]:
        found = torch.ops.bitgnn.bspmm_bbb(x, features, rowptr, columns, row, limit)
        expected = reference.bspmm.bspmm_bbb(x, features, rowptr, columns, row, limit)
        assert torch.equal(found, expected)
