"""Thermometers and standardised rows: the reference, the float path, ugly values and strides."""

import pytest
import torch

from bitgnn.nn import NodeStandardize
from bitgnn.ops import reference
from bitgnn.ops.pack import pack, pack_standardized
from bitgnn.quantize import sgn

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8]
# Thresholds of one feature: none, few, a group, more than one, more than a word.
COUNTS = [[], [0], [1], [15], [16], [17], [31], [32], [33], [0, 3, 0], [16, 16], [40, 1, 1, 7, 0]]
# Each length a kernel treats in its own way, and their neighbours.
SIZES = [1, 2, 31, 32, 33, 64, 65, 128, 129, 250, 256, 300, 500, 512, 513, 602, 640, 700, 1024,
         1025, 1433, 1536, 1537, 3703, 4096, 4097, 9000]  # fmt: skip


def levels(rows, counts, dtype=torch.float32, seed=0):
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
def test_levels(dtype, device, assert_kernel_equals_reference):
    for rows in (0, 1, 3, 4, 5, 33):
        for counts in COUNTS:
            arguments = levels(rows, counts, dtype)
            assert_kernel_equals_reference("pack_levels", arguments, device)
    if dtype in (torch.float32, torch.float64):
        counts = torch.randint(0, 20, (300,), generator=torch.Generator().manual_seed(1)).tolist()
        assert_kernel_equals_reference("pack_levels", levels(3003, counts, dtype), device)
    arguments, order = levels(50, [5, 9, 1, 30], dtype), torch.randperm(45)
    arguments |= {name: arguments[name][order] for name in ("columns", "thresholds")}
    assert_kernel_equals_reference("pack_levels", arguments, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("features", [1, 2, 3, 31, 64, 130])
def test_sixteen_bits_a_feature(features, dtype, device, assert_kernel_equals_reference):
    generator = torch.Generator().manual_seed(features)
    for rows in (0, 1, 9, 300):
        arguments = levels(rows, [15] * features, dtype, rows) | {"columns": None}
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


def test_levels_of_float64_and_of_what_are_no_numbers(device, assert_kernel_equals_reference):
    above = torch.tensor([[0.1]], dtype=torch.float64, device=device)
    columns = torch.zeros(1, dtype=torch.int64, device=device)
    threshold = torch.tensor([0.1], device=device)  # 0.1 of float32 is above that of float64
    assert torch.ops.bitgnn.pack_levels(above, columns, threshold).tolist() == [[0]]
    assert torch.ops.bitgnn.pack_levels(above.float(), columns, threshold).tolist() == [[1]]
    arguments = levels(7, [15, 15])
    arguments["x"][0, 0], arguments["x"][3, 1], arguments["x"][4, 0] = torch.nan, torch.inf, -0.0
    arguments["x"][5, 1], arguments["thresholds"][3] = -torch.inf, 0.0
    arguments["thresholds"][17], arguments["thresholds"][20] = torch.inf, torch.nan
    assert_kernel_equals_reference("pack_levels", arguments, device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_levels_of_rows_and_columns_with_strides(dtype, device):
    x, columns, thresholds = (v.to(device) for v in levels(20, [15] * 12, dtype).values())
    expected = torch.ops.bitgnn.pack_levels(x, columns, thresholds)
    wide, twice = torch.cat([x, x], 1), x.repeat_interleave(2, 0)
    for view in (x.t().contiguous().t(), wide[:, :12], twice[::2]):
        assert torch.equal(torch.ops.bitgnn.pack_levels(view, columns, thresholds), expected)
    spread = torch.stack([thresholds, thresholds], 1)[:, 0]
    assert torch.equal(torch.ops.bitgnn.pack_levels(x, columns, spread), expected)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_standardised_rows_are_sign_and_scale_of_the_float_path(size, relu, device):
    torch.manual_seed(size)
    # Random rows, then constants, values on a grid, zeros, NaN and infinities.
    x = torch.randn(12, size) * torch.logspace(-3, 3, 12).unsqueeze(1) + 1
    x[1], x[2], x[5] = 0.1, -7.3, 0
    x[3] = (x[3] * 2).round() / 2
    x[4] = (torch.rand(size) < 0.01).float()
    x[6:9, size // 2] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    x = x.to(device)
    standardized = NodeStandardize()(x.relu() if relu else x)
    found = pack_standardized(x, relu=relu, scale="mean").validate()
    expected = pack(standardized, scale="mean")
    assert torch.equal(found.words, expected.words)
    torch.testing.assert_close(found.scale, expected.scale, rtol=1e-5, atol=1e-6, equal_nan=True)
    bits = pack_standardized(x, relu=relu)
    assert bits.scale is None
    assert torch.equal(bits.words, found.words)
    assert torch.equal(bits.to_float(), sgn(standardized))


@pytest.mark.parametrize("size", [40, 300, 1433, 5000])
def test_squares_beyond_float32(size, device):
    x = torch.randn(20, size, generator=torch.Generator().manual_seed(0))
    x[:10] *= 1e25
    words, scale = torch.ops.bitgnn.pack_standardized(x.to(device), False, True)
    expected_words, expected_scale = reference.pack.pack_standardized(x, False, True)
    assert torch.equal(words.cpu(), expected_words)
    torch.testing.assert_close(scale.cpu(), expected_scale, rtol=1e-5, atol=0)
    assert scale.min() > 0.7


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 1000])
def test_standardised_rows(rows, device, sampler, assert_kernel_equals_reference):
    for size in (20, 100, 200, 400, 602, 1000, 1433):
        arguments = {"x": sampler(seed=rows).matrix(rows, size), "scaled": True}
        assert_kernel_equals_reference("pack_standardized", arguments, device)
