"""Front ends of 8-bit rows: quantised weights, floats and bits, wrong arguments."""

import math

import pytest
import torch
from wrong_calls import check_wrong_calls

from bitgnn import ops
from bitgnn.bits import Int8Tensor
from bitgnn.bits.int8 import MOST_FEATURES, inverse_step
from bitgnn.ops import bmm, int8
from bitgnn.ops.reference.int8 import SOURCES

OPS = torch.ops.bitgnn


def rows_of(x):
    """Rows whose codes are the numbers themselves."""
    return Int8Tensor.from_float(x, torch.zeros(x.size(1)), torch.ones(x.size(1)))


@pytest.mark.parametrize("dtype", [*SOURCES, torch.float64], ids=str)
def test_weights_have_a_scale_an_output(dtype):
    weight = torch.randn(9, 40, generator=torch.Generator().manual_seed(0)).to(dtype)
    weight[2] = 0
    weight[3] = weight[3].abs().clamp(min=0.5) * 1e-3
    weight[4, 7] = 50
    codes, scale = int8.quantise_weight(weight.t().contiguous().t())
    wide = weight.float()
    assert codes.dtype == torch.int8
    assert codes.shape == (9, 48)
    assert scale.dtype == torch.float32
    assert scale[2] == 1
    expected = torch.where(wide.abs().amax(1) == 0, 1.0, wide.abs().amax(1) / 127)
    assert torch.equal(scale, expected)
    assert torch.equal(codes[:, :40].float(), (wide / scale[:, None]).round())
    assert codes[:, 40:].count_nonzero() == 0
    assert codes[4, 7] == 127
    held = torch.tensor([True, True, False, *[True] * 6])
    assert torch.equal(codes.abs().amax(1) == 127, held)


def test_weights_that_are_no_numbers_show():
    weight = torch.ones(3, 20)
    weight[0, 3], weight[1, 3] = math.nan, math.inf
    codes, scale = int8.quantise_weight(weight)
    assert scale[:2].isfinite().tolist() == [False, False]
    values = bmm.iif(rows_of(torch.ones(1, 20)), codes, scale=scale)
    assert values[0].isfinite().tolist() == [False, False, True]
    for shape in ((0, 5), (5, 0)):
        codes, scale = int8.quantise_weight(torch.ones(shape))
        assert (codes.shape[0], scale.shape[0]) == (shape[0], shape[0])
        assert scale.eq(1 if shape[1] == 0 else 1 / 127).all()


def test_front_ends_give_floats_and_bits(device):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 100, generator=generator).to(device)
    weight = torch.randn(40, 100, generator=generator).to(device)
    centre, step = x.mean(0), (x - x.mean(0)).abs().amax(0) / 127
    rows, scales = Int8Tensor.from_float(x, centre, step), (centre, inverse_step(step))
    codes, scale = int8.quantise_weight(weight * step)
    shift = weight @ centre
    values = bmm.iif(rows, codes, scale=scale, shift=shift)
    torch.testing.assert_close(values, x @ weight.t(), rtol=0, atol=0.4)
    assert torch.equal(bmm.fif(x, codes, *scales, scale=scale, shift=shift), values)
    assert torch.equal(bmm.iif(rows.as_features(), codes, scale=scale, shift=shift), values)
    added = bmm.iif(rows, codes, scale=scale, addend=values)
    assert torch.equal(added, bmm.iif(rows, codes, scale=scale) + values)
    threshold = torch.arange(-20, 20, dtype=torch.int32, device=device)
    flip = threshold % 3 == 0
    dots = bmm.iif(rows, codes)
    bits = bmm.iib(rows, codes, threshold=threshold, flip=flip)
    assert bits.size == 40
    assert torch.equal(bits.to_float() > 0, (dots >= threshold) ^ flip)
    assert bmm.fib(x, codes, *scales, threshold=threshold, flip=flip).equal(bits)
    found = bmm.add_iib(rows, codes, values, scale=scale, threshold=values[0])
    assert torch.equal(found.to_float() > 0, added >= values[0])


X, HALF, C = torch.ones(6, 20), torch.ones(6, 20).half(), torch.ones(20)
Q, W = torch.ones(6, 32, dtype=torch.int8), torch.ones(5, 32, dtype=torch.int8)
R = rows_of(X)
LIMITS, ADDEND = torch.zeros(5, dtype=torch.int32), torch.ones(6, 5)
MANY = torch.ones(1, MOST_FEATURES + 1)


WRONG = {
    "front ends": r"""
int8.quantise_weight(Q) -> TypeError: quantise_weight: weight must be .*got torch.int8
int8.quantise_weight(C) -> ValueError: quantise_weight: weight must have two dim.*got shape \[20\]
bmm.iif(Q, W) -> TypeError: bmm.iif: x must be an Int8Tensor, got torch.int8 Tensor
bmm.iif(R[0], W) -> ValueError: bmm.iif: x must have two dimensions, got shape \[20\]
bmm.iif(R, W.int()) -> TypeError: bmm.iif: w must be a torch.int8 tensor, got torch.int32
bmm.iif(R, W[:, :16]) -> ValueError: w must have shape \[5, 32\], got \[5, 16\]
bmm.iif(R, torch.cat([W, W], 1)) -> ValueError: w must have shape \[5, 32\], got \[5, 64\]
bmm.iif(R, W[0]) -> ValueError: w must have shape \[M, 32\], got \[32\]
bmm.iif(R, W.to("meta")) -> ValueError: bmm.iif: w must be on cpu
bmm.iif(R, W, scale=C) -> ValueError: bmm.iif: scale must have shape \[5\], got \[20\]
bmm.iif(R, W, shift=LIMITS) -> TypeError: shift must be a torch.float32 tensor, got torch.int32
bmm.iif(R, W, addend=ADDEND[1:]) -> ValueError: addend must have shape \[6, 5\], got \[5, 5\]
bmm.iif(R, W, addend=ADDEND.double()) -> TypeError: addend must be a torch.float32 tensor
bmm.iib(R, W, threshold=ADDEND[0])
    -> TypeError: threshold must be a torch.int32 tensor, got torch.float32
bmm.iib(R, W, threshold=LIMITS[1:]) -> ValueError: threshold must have shape \[5\], got \[4\]
bmm.iib(R, W, flip=LIMITS) -> TypeError: flip must be a torch.bool tensor, got torch.int32
bmm.add_iib(R, W, ADDEND, threshold=LIMITS)
    -> TypeError: threshold must be a torch.float32 tensor, got torch.int32
bmm.add_iib(R, W, None) -> TypeError: addend must be a torch.float32 tensor, got None
bmm.fif(R, W, C, C) -> TypeError: bmm.fif: x must be a dense floating-point tensor, got Int8Tensor
bmm.fif(X.double(), W, C, C)
    -> TypeError: bmm.fif: x must be float32, float16 or bfloat16, got torch.float64
bmm.fif(C, W, C, C) -> ValueError: bmm.fif: x must have two dimensions, got shape \[20\]
bmm.fif(MANY, W, C, C) -> ValueError: x must have at most 133120 features, got 133121
bmm.fif(X, W[:, :16], C, C) -> ValueError: bmm.fif: w must have shape \[5, 32\]
bmm.fif(X, W, C[1:], C) -> ValueError: centre must have shape \[20\], got \[19\]
bmm.fif(HALF, W, C.half(), C) -> TypeError: centre must be a torch.float32 tensor, got torch.float16
bmm.fif(X, W, C.to("meta"), C) -> ValueError: centre must be on cpu like the first operand
bmm.fib(X, W, C, C.double())
    -> TypeError: inverse_step must be a torch.float32 tensor, got torch.float64
bmm.fib(X, W, C, None) -> TypeError: inverse_step must be a torch.float32 tensor, got None
bmm.fib(X, W.to("meta"), C, C) -> ValueError: bmm.fib: w must be on cpu
""",
    "operators": r"""
OPS.pack_int8(X.double(), C, C)
    -> RuntimeError: pack_int8: x must be float32, float16 or bfloat16, got Double
OPS.pack_int8(MANY, MANY[0], MANY[0])
    -> RuntimeError: features of x must lie between 0 and 133120, got 133121
OPS.bmm_iif(Q, W, 2**62) -> RuntimeError: size must lie between 0 and 133120, got 46
OPS.bmm_iif(Q, W, 20, None, None, ADDEND[:, 1:])
    -> RuntimeError: bmm_iif: columns of addend must be 5, got 4
OPS.bmm_iib(Q.to("meta"), W.to("meta"), 20, ADDEND[0].to("meta"))
    -> RuntimeError: bmm_iib: threshold must be torch.int32, got torch.float32
OPS.bmm_add_iib(Q, W, ADDEND[1:], 20) -> RuntimeError: rows of addend must be 6, got 5
""",
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_arguments_are_named(kind):
    check_wrong_calls(WRONG[kind], vars(ops) | globals())
