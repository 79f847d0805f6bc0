"""Which rows are ordered by degree, and their memory, predicted as it is measured."""

import pytest
import torch

from bitgnn import BitAdjacency, freeze, models
from bitgnn.inference import memory_report
from bitgnn.inference.fusions.products import is_wide, row_order_of

NODES, FEATURES, EDGES = 20_000, 64, 9_000_000
SMALL = 20_000
"""Bytes that the allocator rounds up to, and that small results take beside the large ones."""


@pytest.mark.cuda
def test_order_of_many_edges_is_counted():
    torch.manual_seed(0)
    edge_index = torch.randint(NODES, (2, EDGES), device="cuda")
    x = torch.randn(NODES, FEATURES, device="cuda")
    model = models.GCN(FEATURES, 40, 7, precision="full").cuda().eval()
    report = memory_report(freeze(model), (x, edge_index))
    forward = report.predicted.activations + report.predicted.workspace
    assert forward == pytest.approx(report.measured.forward, rel=0.03, abs=SMALL)


# Batches of sampled neighbours have many rows of hardly more than one edge: an order each would
# take longer than it saves.
@pytest.mark.parametrize(
    ("rows", "degree", "is_ordered"),
    [(1 << 15, 4, True), (1 << 15, 3, False), ((1 << 15) - 1, 9, False), (100, 90_000, True)],
)
def test_graphs_that_are_ordered(rows, degree, is_ordered):
    rowptr = torch.arange(rows + 1) * degree
    adjacency = BitAdjacency(rowptr, torch.zeros(rows * degree, dtype=torch.int32), rows)
    assert (row_order_of(adjacency) is not None) == is_ordered


@pytest.mark.parametrize(
    ("columns", "size", "often", "expected"),
    [
        (48, 2000, False, False),
        (49, 64, False, True),
        (49, 1023, True, False),
        (49, 1024, True, True),
    ],
)
def test_rows_that_are_wide(columns, size, often, expected):
    assert is_wide(columns, size, often) == expected
