"""Factors: normalisation rounded the same everywhere, and edge weights as row times column."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitgnn import BitAdjacency
from bitgnn.bits import layouts
from bitgnn.bits.factors import factorize, symmetric_factor


def test_roots_are_rounded_correctly():
    degree = torch.arange(1, 5001)
    # torch's own float32 root is an ulp off for many of these on a CPU.
    root = torch.tensor([math.sqrt(d) for d in degree.tolist()], dtype=torch.float64).float()
    assert torch.equal(symmetric_factor(degree), (1 / root.double()).float())
    assert torch.equal(symmetric_factor(torch.tensor([0, 4])), torch.tensor([0.0, 0.5]))


def check_exact(row, column, left, right, shape, **tolerance):
    """Weights of rank one are found again; the factors."""
    weight = left[row] * right[column]
    factors = factorize(row, column, weight, shape)
    assert factors.error == 0
    col = 1 if factors.col_scale is None else factors.col_scale[column]
    torch.testing.assert_close(factors.row_scale[row] * col, weight, **tolerance)
    return factors


@given(
    rows=st.integers(1, 60),
    columns=st.integers(1, 60),
    count=st.integers(0, 150),
    seed=st.integers(0, 1000),
)
def test_rank_one_is_exact(rows, columns, count, seed):
    generator = torch.Generator().manual_seed(seed)
    row = torch.randint(rows, (count,), generator=generator)
    column = torch.randint(columns, (count,), generator=generator)
    left = torch.rand(rows, generator=generator) + 0.1
    right = torch.randn(columns, generator=generator)
    check_exact(row, column, left, (right.abs() + 0.1) * right.sign(), (rows, columns))
    factors = check_exact(
        row, column, right.new_ones(rows) * left, torch.ones(columns), (rows, columns)
    )
    assert factors.col_scale is None  # row factors alone suffice


@pytest.mark.parametrize("least", [0.5, 1e-3], ids=["path", "large graph"])
def test_errors_do_not_add_up(least):
    generator = torch.Generator().manual_seed(0)
    place, tolerance = torch.arange(20000), {}
    # Each edge is known through its neighbours only, over a path of 40000 edges.
    row, column = torch.cat([place, place[1:]]), torch.cat([place, place[:-1]])
    if least == 1e-3:
        # Rounding adds up along the spanning forest; averaging takes it out again.
        row, column = torch.randint(20000, (2, 400000), generator=generator)
        tolerance = {"rtol": 1e-6, "atol": 0}
    left, right = torch.rand(2, 20000, generator=generator) + least
    check_exact(row, column, left, right, (20000, 20000), **tolerance)


def test_column_factors_have_mean_one_and_deviations_are_reported():
    left, right = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0, 9.0])
    matrix = left.unsqueeze(1) * right
    adjacency = BitAdjacency.from_edge_index(matrix.to_sparse_coo())
    torch.testing.assert_close(adjacency.col_scale, right / 6)
    torch.testing.assert_close(adjacency.row_scale, left * 6)
    matrix[1, 1] *= 1.0005
    assert BitAdjacency.from_edge_index(matrix.to_sparse_coo()).factorization_error > 0


@pytest.mark.parametrize("last", [0.25, 2.0])
def test_general_weights_become_row_means(last):
    edge_index = torch.tensor([[0, 1, 0, 1], [0, 0, 1, 1]])
    weight = torch.tensor([1.0, 3.0, 5.0, last])
    adjacency = BitAdjacency.from_edge_index(edge_index, 2, weight)
    means = torch.tensor([2.0, weight[2:].mean()])
    assert torch.equal(adjacency.row_scale, means)
    assert adjacency.col_scale is None
    residual = weight - means[edge_index[1]]
    expected = float(residual.norm() / weight.norm())
    assert adjacency.factorization_error == pytest.approx(expected)
    normalised = BitAdjacency.from_edge_index(edge_index, 2, weight, normalize="mean")
    assert torch.equal(normalised.row_scale, means / 2)


def test_pointers_grow_to_int64():
    assert layouts.pointer_dtype(2**31 - 1) == torch.int32
    assert layouts.pointer_dtype(2**31) == torch.int64
