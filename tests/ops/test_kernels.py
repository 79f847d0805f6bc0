"""Every operator equals its reference, over sizes, dtypes, strides and optional arguments."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitgnn.ops.reference import OPERATORS

SIZES = [0, 1, 31, 32, 64, 65, 127, 128, 129, 200, 500, 1433]
# "pack" itself, and every operator with an F among its operands' letters.
FLOAT_OPERANDS = [
    name
    for name in OPERATORS
    if name != "unpack"
    and (
        name.startswith(("pack", "linear_t", "bmm_add", "bmm_bspmm"))
        or "f" in name.split("_")[1][:2]
    )
]
# What an F operand may hold; ADD and CONCAT take float32 only, their Python functions convert.
PACKABLE = [torch.float16, torch.bfloat16, torch.float64, torch.uint8]
HALVES = [torch.float16, torch.bfloat16]
TERNARY = ("pack_ternary", "pack_bool", "pack_ternary_columns", "linear_ternary")
TO_CODES = ("pack_int8", "bmm_fif", "bmm_fib")
DTYPES = {name: PACKABLE for name in FLOAT_OPERANDS if name.startswith(("pack", "bmm"))}
DTYPES |= dict.fromkeys((*TERNARY, *TO_CODES, "bspmm_ffb", "bspmm_fff"), HALVES)
DTYPES |= {name: [*HALVES, torch.int8, torch.int16] for name in ("bspmm_fbb", "bspmm_fbf")}


@pytest.mark.parametrize("sizes", [[33], SIZES], ids=["ragged", "others"])
@pytest.mark.parametrize("name", OPERATORS)
def test_sizes(name, sizes, device, sampler, assert_kernel_equals_reference):
    for size in sizes:
        draw = sampler(seed=size)
        for n, m in [(5, 7), (33, 70)]:
            for optional in (False, True, None):
                arguments = draw.arguments(name, n, size, m, optional)
                assert_kernel_equals_reference(name, arguments, device)


@pytest.mark.parametrize("name", OPERATORS)
def test_rows(name, device, sampler, assert_kernel_equals_reference):
    for n, m in [(1, 0), (1, 1), (0, 0), (0, 3), (129, 65), (3, 200)]:
        for seed in range(4):
            arguments = sampler(seed=seed).arguments(name, n, 70, m)
            assert_kernel_equals_reference(name, arguments, device)


@pytest.mark.parametrize("name", FLOAT_OPERANDS)
def test_nan_and_infinity(name, device, sampler, assert_kernel_equals_reference):
    for seed in range(6):
        arguments = sampler(seed=seed, special=True).arguments(name, 9, 100, 12)
        assert_kernel_equals_reference(name, arguments, device)


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes(name, device, sampler, assert_kernel_equals_reference):
    for dtype in DTYPES[name]:
        for seed, size in enumerate([1, 31, 64, 100, 257]):
            arguments = sampler(seed=seed, dtype=dtype).arguments(name, 8, size, 11)
            assert_kernel_equals_reference(name, arguments, device)


@pytest.mark.parametrize("name", OPERATORS)
@given(
    n=st.integers(1, 70),
    k=st.integers(0, 300),
    m=st.integers(0, 70),
    seed=st.integers(0, 10**6),
    special=st.booleans(),
)
def test_property(name, n, k, m, seed, special, sampler, assert_kernel_equals_reference):
    arguments = sampler(seed=seed, special=special).arguments(name, n, k, m)
    assert_kernel_equals_reference(name, arguments, torch.device("cpu"))


def test_float64_compares_beyond_float32(device):
    x = torch.tensor([[-1e-60, 1e-60, 0.1, 0.1 + 1e-12]], dtype=torch.float64, device=device)
    zero = torch.ops.bitgnn.unpack(torch.ops.bitgnn.pack(x), 4)
    assert zero.tolist() == [[-1.0, 1.0, 1.0, 1.0]]
    # float32(0.1) lies above the double 0.1 by 1.5e-9, so neither 0.1 reaches it.
    threshold = torch.full((4,), 0.1, device=device)
    bits = torch.ops.bitgnn.unpack(torch.ops.bitgnn.pack(x, threshold), 4)
    assert bits.tolist() == [[-1.0, -1.0, -1.0, -1.0]]


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_row_pointer_dtypes(kind, device, sampler, assert_kernel_equals_reference):
    pointers = ("rowptr", "tile_rowptr")
    for name in OPERATORS:
        if name.startswith("bspmm"):
            arguments = sampler(seed=3).arguments(name, 40, 65, 30)
            for pointer in pointers:
                if pointer in arguments:
                    arguments[pointer] = arguments[pointer].to(getattr(torch, kind))
            assert_kernel_equals_reference(name, arguments, device)


def test_row_lengths_of_products(device, sampler, assert_kernel_equals_reference):
    lengths = [1, 2, 3, 4, 5, 14, 15, 16, 17, 18, 19, 20, 31, 32, 33, 62, 63, 70]
    for size in (size for words in lengths for size in (32 * words - 31, 32 * words)):
        draw = sampler(seed=size)
        for name in ("bmm_bbf", "bmm_bbb", "bmm_fbf"):
            arguments = draw.arguments(name, 101, size, 45)
            assert_kernel_equals_reference(name, arguments, device)
        opposite = draw.bits(5, size)
        ones = torch.full_like(opposite, -1)
        if size % 32:
            ones[:, -1] = (1 << size % 32) - 1
        for x, w in ((ones, torch.zeros_like(ones)), (ones, ones), (opposite, opposite)):
            arguments = {"x": x, "w": w, "size": size}
            assert_kernel_equals_reference("bmm_bbf", arguments, device)
