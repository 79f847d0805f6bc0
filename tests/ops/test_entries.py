"""Sums over the entries of a sparse matrix, against the reference on ugly ones."""

import pytest
import torch

from bitgnn.ops.reference.bspmm import bspmm_entries

OP = torch.ops.bitgnn.bspmm_entries
ROWS, COLUMNS = 50, 300


def words(rows, size, generator):
    bits = torch.rand(rows, size, generator=generator) < 0.5
    return torch.ops.bitgnn.pack(bits.float() - 0.5)


def entries(density, generator, rows=ROWS, columns=COLUMNS):
    x = torch.rand(rows, columns, generator=generator) + 0.1
    x *= torch.rand(rows, columns, generator=generator) < density
    x[:, 3:5] *= -1
    csr = x.to_sparse_csr()
    return [part.clone() for part in (csr.crow_indices(), csr.col_indices(), csr.values())]


def disordered(rowptr, indices, values, generator):
    """Every entry twice, in any order of the columns of a row."""
    row = torch.arange(len(rowptr) - 1).repeat_interleave(rowptr.diff()).repeat(2)
    order = torch.argsort(row + torch.rand(len(row), generator=generator).double() * 0.9)
    return [2 * rowptr, indices.repeat(2)[order], (values.repeat(2) / 2)[order]]


@pytest.mark.parametrize("size", [1, 31, 32, 33, 64, 65, 96, 130])
@pytest.mark.parametrize("density", [0.0, 0.02, 0.3, 0.9])
def test_against_the_reference(size, density):
    generator = torch.Generator().manual_seed(size)
    x = words(COLUMNS, size, generator)
    uniform = torch.full((COLUMNS,), 0.3)
    ragged = torch.randn(COLUMNS, generator=generator)
    sums = torch.randint(-3, 3, (size,), generator=generator).float()
    sums[:: size // 3 + 1] = torch.tensor(torch.nan)
    sums[1::7] = -torch.inf
    plain = entries(density, generator)
    negative = [*plain[:2], -plain[2]]
    broken = [part.clone() for part in plain]
    broken[2][::9] = torch.nan
    for given in (plain, negative, broken, disordered(*plain, generator)):
        rowptr, indices, values = given
        for entry_threshold in (None, uniform, uniform - 1, ragged, uniform * torch.nan):
            for threshold in (None, sums):
                expected = bspmm_entries(x, size, *given, entry_threshold, threshold)
                forms = (
                    given,
                    (rowptr.int(), indices.int(), values),
                    (rowptr, indices.repeat_interleave(2)[::2], values.repeat_interleave(2)[::2]),
                )
                for form in forms:
                    assert torch.equal(OP(x, size, *form, entry_threshold, threshold), expected)
        for dtype in (torch.float64, torch.float16, torch.bfloat16):
            form = rowptr, indices, values.to(dtype)
            expected = bspmm_entries(x, size, *form, uniform, sums)
            assert torch.equal(OP(x, size, *form, uniform, sums), expected)


def test_many_rows_on_threads():
    generator = torch.Generator().manual_seed(0)
    x, columns = words(40, 64, generator), 40
    given = entries(0.2, generator, 30_000, columns)
    given[2].abs_()
    mixed = [part.clone() for part in given]
    mixed[1][: int(mixed[0][9])] = mixed[1][: int(mixed[0][9])].flip(0) % columns
    threshold = torch.full((columns,), 0.05)
    for form in (given, mixed):
        assert torch.equal(OP(x, 64, *form, threshold), bspmm_entries(x, 64, *form, threshold))


@pytest.mark.parametrize("sizes", [(0, 5, 7), (3, 0, 7), (3, 5, 0), (1, 1, 1)])
def test_empty_sizes(sizes):
    rows, columns, size = sizes
    x = torch.zeros(columns, (size + 31) // 32, dtype=torch.int32)
    rowptr, none = torch.zeros(rows + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    given = x, size, rowptr, none, torch.zeros(0), torch.ones(columns), torch.ones(size) * -1
    assert torch.equal(OP(*given), bspmm_entries(*given))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("column", [-1, COLUMNS, -(2**31), 2**31 - 1, 2**32 + 1])
@pytest.mark.parametrize("row", [0, 9])
def test_columns_outside(column, row, dtype):
    generator = torch.Generator().manual_seed(0)
    x = words(COLUMNS, 64, generator)
    rowptr, indices, values = entries(0.1, generator)
    if dtype == torch.int32 and not -(2**31) <= column < 2**31:
        pytest.skip("no int32")
    wrong = indices.to(dtype)
    wrong[rowptr[row] + 2] = column
    for threshold in (None, torch.full((COLUMNS,), 0.05), torch.rand(COLUMNS)):
        with pytest.raises(RuntimeError, match=rf"indices must lie in \[0, 300\), got {column} at"):
            OP(x, 64, rowptr, wrong, values, threshold)


def test_wrong_arguments():
    x, one = torch.zeros(4, 2, dtype=torch.int32), torch.zeros(1, dtype=torch.int64)
    rowptr, values = torch.tensor([0, 1]), torch.ones(1)
    for given, message in (
        ((x, 65, rowptr, one, values), "x must hold 3 words a row for 65 features, got 2"),
        ((x, 64, torch.tensor([1, 1]), one, values), "rowptr must begin with 0 and never descend"),
        ((x, 64, torch.tensor([0, 2]), one, values), "the last entry of rowptr must be 1, got 2"),
        ((x, 64, rowptr[:0], one, values), "rowptr must have at least one entry"),
        ((x, 64, rowptr, one.float(), values), "indices must be int32 or int64, got Float"),
        ((x, 64, rowptr, one, values.int()), "values must be float"),
        ((x, 64, rowptr, one, torch.ones(2)), "entries of values"),
        ((x, 64, rowptr, one, values, torch.ones(5)), "entry_threshold must have"),
        ((x, 64, rowptr, one, values, None, torch.ones(63)), "threshold must have"),
    ):
        with pytest.raises(RuntimeError, match=message):
            OP(*given)


def test_opcheck():
    generator = torch.Generator().manual_seed(0)
    x, given = words(COLUMNS, 64, generator), entries(0.1, generator)
    torch.library.opcheck(OP.default, (x, 64, *given, None, torch.zeros(64)))
