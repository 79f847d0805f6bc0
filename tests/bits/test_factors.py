"""Edge weights as row times column factors: exact where rank one, row means elsewhere."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitgnn import BitAdjacency
from bitgnn.bits import layouts
from bitgnn.bits.factors import factorize


def edges(rows, columns, count, seed):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randint(rows, (count,), generator=generator),
        torch.randint(columns, (count,), generator=generator),
        generator,
    )


@given(
    rows=st.integers(1, 60),
    columns=st.integers(1, 60),
    count=st.integers(0, 150),
    seed=st.integers(0, 1000),
)
def test_rank_one_is_exact(rows, columns, count, seed):
    row, column, generator = edges(rows, columns, count, seed)
    left = torch.rand(rows, generator=generator) + 0.1
    right = torch.randn(columns, generator=generator)
    weight = left[row] * (right.abs() + 0.1)[column] * right.sign()[column]
    factors = factorize(row, column, weight, (rows, columns))
    assert factors.error == 0
    product = factors.row_scale[row] * (
        1 if factors.col_scale is None else factors.col_scale[column]
    )
    torch.testing.assert_close(product, weight)


def test_long_path_is_exact():
    # Each edge is known through its neighbours only, over a path of 40000 edges.
    place = torch.arange(20000)
    row = torch.cat([place, place[1:]])
    column = torch.cat([place, place[:-1]])
    left = torch.rand(20000, generator=torch.Generator().manual_seed(0)) + 0.5
    right = torch.rand(20000, generator=torch.Generator().manual_seed(1)) + 0.5
    weight = left[row] * right[column]
    factors = factorize(row, column, weight, (20000, 20000))
    assert factors.error == 0
    torch.testing.assert_close(factors.row_scale[row] * factors.col_scale[column], weight)


def test_large_graph_is_exact():
    # Rounding of the weights adds up along the spanning forest; averaging takes it out again.
    row, column, generator = edges(20000, 20000, 400000, 0)
    left = torch.rand(20000, generator=generator) + 1e-3
    right = torch.rand(20000, generator=generator) + 1e-3
    weight = left[row] * right[column]
    factors = factorize(row, column, weight, (20000, 20000))
    assert factors.error == 0
    torch.testing.assert_close(
        factors.row_scale[row] * factors.col_scale[column], weight, rtol=1e-6, atol=0
    )


def test_almost_rank_one_is_reported():
    left, right = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0])
    matrix = left.unsqueeze(1) * right
    matrix[1, 1] *= 1.0005
    assert BitAdjacency.from_edge_index(matrix.to_sparse_coo()).factorization_error > 0


def test_row_factors_alone_suffice():
    row, column, generator = edges(20, 30, 100, 0)
    weight = torch.randn(20, generator=generator)[row]
    factors = factorize(row, column, weight, (20, 30))
    assert factors.col_scale is None
    assert factors.error == 0
    assert torch.equal(factors.row_scale[row], weight)


def test_column_factors_have_mean_one():
    left, right = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0, 9.0])
    adjacency = BitAdjacency.from_edge_index((left.unsqueeze(1) * right).to_sparse_coo())
    torch.testing.assert_close(adjacency.col_scale, right / 6)
    torch.testing.assert_close(adjacency.row_scale, left * 6)


@pytest.mark.parametrize("zero", [False, True])
def test_general_weights_become_row_means(zero):
    edge_index = torch.tensor([[0, 1, 0, 1], [0, 0, 1, 1]])
    weight = torch.tensor([1.0, 3.0, 5.0, 0.0 if zero else 2.0])
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
