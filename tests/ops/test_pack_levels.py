"""Bits of thermometers against the reference: any columns, thresholds, dtypes and shapes."""

import pytest
import torch

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8]
# Thresholds of one feature: none, few, a group, more than one, more than a word.
COUNTS = [[], [0], [1], [15], [16], [17], [31], [32], [33], [0, 3, 0], [16, 16], [40, 1, 1, 7, 0]]


def case(rows, counts, dtype=torch.float32, seed=0):
    """Rows, some of whose values are thresholds, with the thresholds of each feature."""
    torch.manual_seed(seed)
    columns = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts).long())
    thresholds = torch.randn(columns.numel()) * 3
    if dtype == torch.uint8:
        x = torch.randint(0, 6, (rows, len(counts)), dtype=dtype)
        thresholds = thresholds.abs().round()
    else:
        x = (torch.randn(rows, len(counts), dtype=torch.float64) * 3).to(dtype)
        equal = torch.rand(rows, len(counts)) < 0.3
        for column in range(len(counts)):
            own = thresholds[columns == column]
            if own.numel():
                drawn = own[torch.randint(own.numel(), (rows,))].to(dtype)
                x[:, column] = torch.where(equal[:, column], drawn, x[:, column])
    return {"x": x, "columns": columns, "thresholds": thresholds}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 33])
def test_equals_reference(rows, counts, dtype, device, assert_kernel_equals_reference):
    assert_kernel_equals_reference("pack_levels", case(rows, counts, dtype), device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_many_features_of_many_rows(dtype, device, assert_kernel_equals_reference):
    counts = torch.randint(0, 20, (300,), generator=torch.Generator().manual_seed(1)).tolist()
    assert_kernel_equals_reference("pack_levels", case(3003, counts, dtype), device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("features", [1, 2, 3, 31, 64, 130])
def test_sixteen_bits_a_feature(features, dtype, device, assert_kernel_equals_reference):
    generator = torch.Generator().manual_seed(features)
    for rows in (0, 1, 9, 300):
        arguments = case(rows, [15] * features, dtype, rows) | {"columns": None}
        # Not all of the last feature's bits need be there.
        size = 16 * features - features % 3
        thresholds = torch.randn(size, generator=generator)
        thresholds[torch.rand(size, generator=generator) < 0.2] = torch.nan
        thresholds[0] = (0.0, torch.inf, -torch.inf)[features % 3]
        if dtype.is_floating_point and rows:
            chosen = torch.randint(size, (features,), generator=generator)
            arguments["x"][-1] = thresholds[chosen].to(dtype)
            arguments["x"][0, 0] = -torch.inf if rows > 1 else torch.nan
        arguments["thresholds"] = thresholds
        assert_kernel_equals_reference("pack_levels", arguments, device)


def test_columns_in_any_order(device, assert_kernel_equals_reference):
    arguments = case(50, [5, 9, 1, 30])
    order = torch.randperm(45, generator=torch.Generator().manual_seed(2))
    arguments["columns"] = arguments["columns"][order]
    arguments["thresholds"] = arguments["thresholds"][order]
    assert_kernel_equals_reference("pack_levels", arguments, device)


def test_float64_is_compared_in_float64(device):
    above = torch.tensor([[0.1]], dtype=torch.float64, device=device)
    columns = torch.zeros(1, dtype=torch.int64, device=device)
    threshold = torch.tensor([0.1], device=device)  # 0.1 of float32 is above that of float64
    assert torch.ops.bitgnn.pack_levels(above, columns, threshold).tolist() == [[0]]
    assert torch.ops.bitgnn.pack_levels(above.float(), columns, threshold).tolist() == [[1]]


def test_values_that_are_no_numbers(device, assert_kernel_equals_reference):
    arguments = case(7, [15, 15])
    arguments["x"][0, 0], arguments["x"][3, 1], arguments["x"][4, 0] = torch.nan, torch.inf, -0.0
    arguments["x"][5, 1], arguments["thresholds"][3] = -torch.inf, 0.0
    arguments["thresholds"][17], arguments["thresholds"][20] = torch.inf, torch.nan
    assert_kernel_equals_reference("pack_levels", arguments, device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_rows_and_columns_with_strides(dtype, device):
    arguments = case(20, [15] * 12, dtype)
    x, columns, thresholds = (value.to(device) for value in arguments.values())
    expected = torch.ops.bitgnn.pack_levels(x, columns, thresholds)
    for view in (
        x.t().contiguous().t(),
        torch.cat([x, x], 1)[:, :12],
        x.repeat_interleave(2, 0)[::2],
    ):
        assert torch.equal(torch.ops.bitgnn.pack_levels(view, columns, thresholds), expected)
    spread = torch.stack([thresholds, thresholds], 1)[:, 0]
    assert torch.equal(torch.ops.bitgnn.pack_levels(x, columns, spread), expected)


BAD = {
    "x of integers": ({"x": torch.ones(2, 2, dtype=torch.int32)}, "x"),
    "x of one dimension": ({"x": torch.ones(2)}, "x"),
    "columns of int32": ({"columns": torch.zeros(3, dtype=torch.int32)}, "columns"),
    "columns of two dimensions": ({"columns": torch.zeros(3, 1, dtype=torch.int64)}, "columns"),
    "a column too many": ({"columns": torch.tensor([0, 1, 2])}, r"columns must lie in \[0, 2\)"),
    "a negative column": ({"columns": torch.tensor([0, -1, 1])}, r"columns must lie .*got -1"),
    "thresholds of float64": ({"thresholds": torch.ones(3).double()}, "thresholds"),
    "thresholds of more features than there are": (
        {"columns": None, "thresholds": torch.ones(33)},
        "thresholds must be at most 16 a feature without columns, got 33 for 2 features",
    ),
    "too few thresholds": ({"thresholds": torch.ones(2)}, "thresholds must have 3 entries, got 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    changed, message = BAD[name]
    if not torch._C._dispatch_has_kernel_for_dispatch_key("bitgnn::pack_levels", "CPU"):
        pytest.skip("the reference's own errors serve where nothing is compiled")
    good = {"x": torch.ones(2, 2), "columns": torch.tensor([0, 1, 1]), "thresholds": torch.ones(3)}
    with pytest.raises(RuntimeError, match=f"pack_levels: {message}"):
        torch.ops.bitgnn.pack_levels(**(good | changed))
