"""BSpMM.BBB with thresholds where rows share degree and factor, as under normalisation."""

import pytest
import torch

from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.ops import bspmm, reference

ROWS, COLUMNS = 300, 90


def graph(device: torch.device, factors: str) -> BitAdjacency:
    """Few distinct degrees, empty rows, and rows on both sides of 64 neighbours."""
    generator = torch.Generator().manual_seed(5)
    choice = torch.tensor([0, 1, 2, 5, 5, 5, 8, 63, 64, 200])
    degrees = choice[torch.randint(len(choice), (ROWS,), generator=generator)]
    rowptr = torch.zeros(ROWS + 1, dtype=torch.int32)
    rowptr[1:] = degrees.cumsum(0)
    indices = torch.randint(COLUMNS, (int(rowptr[-1]),), generator=generator, dtype=torch.int32)
    by_degree = (degrees + 1).float().rsqrt()
    odd = torch.tensor([0.5, -0.5, 0.0, float("inf"), float("nan"), 1e-30])
    row = {
        "none": None,
        "by degree": by_degree,
        "of their own": torch.rand(ROWS, generator=generator),
        "alternating": by_degree * (1 + torch.arange(ROWS) % 3),
        "odd": odd[torch.arange(ROWS) % len(odd)],
    }[factors]
    return BitAdjacency(rowptr, indices, COLUMNS, row).to(device)


@pytest.mark.parametrize("factors", ["none", "by degree", "of their own", "alternating", "odd"])
@pytest.mark.parametrize("size", [1, 33, 64, 128, 200, 600])
def test_equals_the_reference(device: torch.device, factors: str, size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    adjacency = graph(device, factors)
    x = BitTensor.from_float(torch.randn(COLUMNS, size, generator=generator).to(device))
    threshold = 4 * torch.randn(size, generator=generator)
    special = [0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 5.0, 0.5]
    threshold[: len(special)] = torch.tensor(special[:size])
    threshold = threshold[torch.randperm(size, generator=generator)].to(device)
    parts = (adjacency.rowptr, adjacency.indices, adjacency.row_scale, threshold)
    expected = reference.bspmm.bspmm_bbb(x.words, size, *parts)
    for layout in ("csr", "sliced"):
        found = bspmm.bbb(x, adjacency, threshold=threshold, layout=layout)
        assert torch.equal(found.words, expected), layout
