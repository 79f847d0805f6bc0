"""The order of rows by degree: every row once, the longest first, never that of another pattern."""

import pytest
import torch

from bitgnn import BitAdjacency

CUDA = pytest.param("cuda", marks=pytest.mark.cuda)
DEGREES = {
    "no rows": [],
    "one empty row": [0],
    "one row": [5],
    "empty rows alone": [0] * 33,
    "hub": [1, 0, 2, 300, 1, 31, 32, 33, 0, 63, 64, 65],
    "all equal": [2] * 31,
}


def with_degrees(degrees, dtype=torch.int32, device="cpu"):
    rowptr = torch.tensor([0, *degrees], dtype=torch.int64).cumsum(0).to(dtype)
    indices = torch.zeros(int(rowptr[-1]), dtype=torch.int32)  # duplicate edges
    return BitAdjacency(rowptr.to(device), indices.to(device), 3)


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("degrees", DEGREES.values(), ids=DEGREES)
def test_rows_by_descending_steps(degrees, dtype, device):
    adjacency = with_degrees(degrees, dtype, device)
    order = adjacency.row_order()
    assert order.shape == (len(degrees), 2)
    assert order.dtype == torch.int64
    assert order.device == adjacency.device
    expected = sorted(range(len(degrees)), key=lambda row: -(degrees[row] // 32))
    assert (order[:, 1] >> 32).tolist() == expected
    assert (order[:, 1] & 0xFFFFFFFF).tolist() == [degrees[row] for row in expected]
    assert order[:, 0].tolist() == [sum(degrees[:row]) for row in expected]


def test_found_once_and_counted():
    adjacency = with_degrees([1, 40, 0])
    assert adjacency.derived_nbytes == 0
    order = adjacency.row_order()
    assert adjacency.row_order() is order
    assert adjacency.derived_nbytes == order.nbytes == 3 * 16


CHANGES = {
    "written": lambda a: a.rowptr.copy_(torch.tensor([0, 1, 2, 100])),
    "replaced": lambda a: setattr(a, "rowptr", torch.tensor([0, 1, 2, 100]).int()),
    "moved": lambda a: setattr(a.rowptr, "data", torch.tensor([0, 1, 2, 100]).int()),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_another_order_for_another_pattern(change, inference):
    with torch.inference_mode(inference):
        adjacency = with_degrees([1, 99, 0])
        assert (adjacency.row_order()[:, 1] >> 32).tolist() == [1, 0, 2]
        change(adjacency)
        assert (adjacency.row_order()[:, 1] >> 32).tolist() == [2, 0, 1]


@pytest.mark.cuda
def test_nothing_of_a_capture_is_kept():
    adjacency = with_degrees([1, 4, 0], device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        adjacency.indices.clone()
        found = adjacency.row_order()
    assert found is None
    order = adjacency.row_order()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        adjacency.indices.clone()
        found = adjacency.row_order()
    assert found is order
