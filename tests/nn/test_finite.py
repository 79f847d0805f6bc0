"""What a sign would hide of features, and features that are no floats."""

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import bitgnn.nn
from bitgnn.nn.adjacency import gcn_adjacency, neighbour_adjacency
from bitgnn.nn.finite import check_features, nonfinite_neighbours, nonfinite_rows

EDGES = torch.tensor([[0, 1, 2, 3, 3], [1, 2, 3, 4, 0]])
SPOILT = (float("nan"), float("inf"), -float("inf"))


def _features(value, dtype=torch.float32):
    x = torch.randn(6, 7, generator=torch.Generator().manual_seed(1)).to(dtype)
    x[2, 4] = value
    return x


@pytest.mark.parametrize("value", SPOILT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_rows_with_nan_or_infinity_are_nan_and_the_others_zero(value, dtype, device):
    x = _features(value, dtype).to(device)
    rows = nonfinite_rows(x)
    assert (rows.shape, rows.dtype) == ((6, 1), dtype)
    assert rows.isnan().flatten().tolist() == [False, False, True, False, False, False]
    assert bool((rows.nan_to_num(0.0) == 0).all())
    assert torch.equal(nonfinite_rows(x[:2]), torch.zeros_like(rows[:2]))


def test_large_values_both_infinities_and_empty_rows():
    largest = torch.finfo(torch.float32).max
    assert nonfinite_rows(torch.tensor([[largest, -largest]])).item() == 0
    assert bool(nonfinite_rows(torch.tensor([[torch.inf, -torch.inf]])).isnan())
    assert nonfinite_rows(torch.empty(3, 0)).tolist() == [[0.0]] * 3
    assert nonfinite_rows(torch.empty(0, 4)).shape == (0, 1)
    assert nonfinite_rows(torch.zeros(2, 3, 4)).shape == (2, 3, 1)
    assert not nonfinite_rows(torch.ones(2, 2, requires_grad=True)).requires_grad


@pytest.mark.parametrize("value", SPOILT)
def test_the_same_nodes_as_in_pyg_become_nan(value):
    x = _features(value)
    rows = nonfinite_rows(x)
    adjacency = gcn_adjacency(EDGES, 6)
    expected = ~pyg.GCNConv(7, 3)(x, EDGES).isfinite().all(1)
    layer = bitgnn.nn.GCNConv(7, 3, precision="FBB+BBF")
    found = layer(x, EDGES) + nonfinite_neighbours(rows, adjacency)
    assert torch.equal(found.isnan().all(1), expected)
    assert torch.equal(found.isnan().any(1), expected)
    for precision in ("bin", "full"):
        layer = bitgnn.nn.GCNConv(7, 3, precision=precision)
        with pytest.raises(ValueError, match=r"GCNConv: x must be finite .* in columns 4$"):
            layer(x, EDGES)
        layer(_features(0.5), EDGES)
        found = layer(x, EDGES)
        assert torch.equal(found.isnan().all(1), expected)
        assert torch.equal(found.isnan().any(1), expected)
    pattern = neighbour_adjacency(EDGES, 6, 6, reduction="mean")
    sage = ~pyg.SAGEConv(7, 3)(x, EDGES).isfinite().all(1)
    found = nonfinite_neighbours(rows, pattern) + rows
    assert torch.equal(found.isnan().flatten(), sage)


def test_gradients_of_finite_rows_are_untouched():
    x = _features(1.0).requires_grad_()
    layer = bitgnn.nn.Linear(7, 3, precision="BBF")
    (layer(x) + nonfinite_rows(x)).sum().backward()
    with_rows, x.grad = x.grad, None
    layer(x).sum().backward()
    assert torch.equal(x.grad, with_rows)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (
            np.ones((2, 3)),
            r"L: x must be a tensor of floats, got float64 ndarray, which torch.from",
        ),
        ([[1.0]], "L: x must be a tensor of floats, got list$"),
        (
            torch.ones(2, 3, dtype=torch.int64),
            r"L: x must hold floats, got torch.int64, which x",
        ),
        (torch.ones(2, 3, dtype=torch.bool), "L: x must hold floats, got torch.bool"),
        (torch.ones(2, 3, dtype=torch.int32).to_sparse(), "L: x must hold floats, got torch.int32"),
    ],
    ids=["numpy", "list", "integers", "booleans", "sparse integers"],
)
def test_what_is_no_float_tensor_is_named(x, message):
    with pytest.raises(TypeError, match=message):
        check_features("L", x)


def test_scipy_matrices_are_named_and_float_tensors_pass():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(
        TypeError, match=r"got float64 csr_matrix, whose x.toarray\(\) torch.from_numpy"
    ):
        check_features("L", sparse.csr_matrix(np.eye(3)))
    check_features("L", torch.ones(2, 3))
    check_features("L", torch.ones(2, 3, dtype=torch.float16).to_sparse())
