"""Attention on bits on a GPU: equal to the CPU bit for bit."""

import math

import pytest
import torch

from bitgnn import TernaryTensor
from bitgnn.ops import ternary

pytestmark = pytest.mark.cuda

# (batch, heads, kv_heads, queries, keys, size): tiles and stages full, cut short and empty; heads
# of every padded size, and of one that only the plain kernel takes; keys of 64 features that fit
# into shared memory, and more.
SHAPES = [
    (1, 1, 1, 1, 1, 64), (2, 4, 2, 129, 515, 64), (1, 2, 2, 700, 300, 64), (1, 2, 1, 200, 1025, 64),
    (1, 1, 1, 193, 2048, 64), (1, 2, 2, 70, 600, 32), (1, 2, 2, 70, 600, 5), (1, 3, 1, 65, 333, 96),
    (1, 2, 2, 100, 777, 80), (2, 2, 2, 130, 513, 128), (1, 2, 1, 9, 4200, 200),
    (2, 2, 1, 300, 512, 48), (1, 1, 1, 130, 4096, 64), (1, 2, 1, 140, 4200, 64),
    (1, 2, 2, 7, 0, 64), (2, 2, 2, 0, 7, 64),
]  # fmt: skip


def operands(
    batch: int, heads: int, kv_heads: int, queries: int, keys: int, size: int, density: float = 0.4
) -> tuple[TernaryTensor, TernaryTensor, TernaryTensor]:
    """Ternary queries, keys and columns of values with so many nonzero numbers."""

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape).sign() * (torch.rand(shape) < density)

    q = TernaryTensor.from_float(draw(batch, heads, queries, size), 1.0)
    k = TernaryTensor.from_float(draw(batch, kv_heads, keys, size), 1.0)
    return q, k, TernaryTensor.from_columns(draw(batch, kv_heads, keys, size), 1.0)


def check(q: TernaryTensor, k: TernaryTensor, v: TernaryTensor, **options: object) -> None:
    """Attention on the GPU against the CPU."""
    mask = options.pop("mask", None)
    expected = ternary.attention(q, k, v, mask=mask, **options)
    out = ternary.attention(
        q.to("cuda"),
        k.to("cuda"),
        v.to("cuda"),
        mask=None if mask is None else mask.to("cuda"),
        **options,
    )
    assert torch.equal(out.cpu(), expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_shapes(shape, causal, masked):
    torch.manual_seed(sum(shape))
    batch, keys, size = shape[0], shape[4], shape[5]
    mask = torch.rand(batch, keys) < 0.7 if masked else None
    if masked and batch > 1:
        mask[-1] = False  # a sequence of padding alone
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        check(
            *operands(*shape),
            scale=2.5 / math.sqrt(size),
            bool_scale=2.0 / max(keys, 1),
            out_scale=0.3,
            mask=mask,
            causal=causal,
            dtype=dtype,
        )


def check_floats(*floats: torch.Tensor, **options: object) -> None:
    """Attention of floats on the GPU against that on the CPU."""
    mask = options.pop("mask", None)
    scales = 0.8, 1.1, 0.9
    numbers = {"scale": 0.8 * 1.1 / math.sqrt(floats[0].size(3)), "out_scale": 0.3, **options}
    expected = ternary.attention_floats(*floats, *scales, mask=mask, **numbers)
    there = None if mask is None else mask.to("cuda")
    out = ternary.attention_floats(*(x.cuda() for x in floats), *scales, mask=there, **numbers)
    assert torch.equal(out.cpu(), expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("causal", "masked"), [(False, False), (True, False), (True, True)])
def test_floats(shape, dtype, causal, masked):
    torch.manual_seed(sum(shape))
    batch, heads, kv_heads, queries, keys, size = shape
    q = torch.randn(batch, heads, queries, size).to(dtype)
    k, v = torch.randn(2, batch, kv_heads, keys, size).to(dtype).unbind(0)
    mask = torch.rand(batch, keys) < 0.7 if masked else None
    check_floats(q, k, v, bool_scale=2.0 / max(keys, 1), mask=mask, causal=causal)


def test_views_of_floats():
    """Heads side by side in rows, rows that do not begin at 16 bytes, types that differ."""
    torch.manual_seed(0)
    qkv = torch.randn(2, 150, 3, 3, 64).half()
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    check_floats(q, k, v, bool_scale=0.01)
    check_floats(*(x[..., 3:60] for x in (q, k, v)), bool_scale=0.01, causal=True)
    check_floats(q, k.float(), v.bfloat16(), bool_scale=0.01)
    strange = torch.randn(1, 1, 70, 64)
    strange[0, 0, 3, 5:9] = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0])
    check_floats(strange, strange.flip(3), strange, bool_scale=0.01)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [1e-300, 1e-13, 1e-9, 1e-6])
def test_powers_of_floats_that_are_all_alike(scale, causal):
    """Limits beside the mean of the scores: no row's is that of a float32 sum."""
    torch.manual_seed(0)
    for keys in (100, 640, 1024):
        q = torch.randn(2, 2, 96, 64).half()
        k, v = torch.randn(2, 2, 2, keys, 64).half().unbind(0)
        mask = torch.rand(2, keys) < 0.8
        check_floats(q, k, v, scale=scale, bool_scale=2.0 / keys, causal=causal, mask=mask)
        check_floats(q, k, v, scale=scale, bool_scale=2.0 / keys, causal=causal)


def test_more_heads_than_multiprocessors():
    """Heads in waves, and queries of few heads in parts."""
    for shape in ((3, 50, 50, 70, 90), (1, 2, 1, 1500, 600)):
        torch.manual_seed(0)
        batch, heads, kv_heads, queries, keys = shape
        q = torch.randn(batch, heads, queries, 64).half()
        k, v = torch.randn(2, batch, kv_heads, keys, 64).half().unbind(0)
        check_floats(q, k, v, bool_scale=2.0 / keys)
        check_floats(q, k, v, bool_scale=2.0 / keys, causal=True)


@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("density", [0.02, 0.4, 1.0])
@pytest.mark.parametrize(
    "scale", [1e-300, 1e-9, 0.003, 0.3, math.log(2), 1.0, 1.6, 4.0, 12.0, 1e3, 1e30]
)
def test_scales(size, density, scale):
    """Limits on integers and beside them, powers beyond float32, thresholds of few or all keys."""
    torch.manual_seed(size)
    q, k, v = operands(1, 2, 2, 96, 640, size, density)
    for bool_scale in (1e-280, 2.0 / 640, 0.25, 1.0, 2.0, 1e6):
        check(q, k, v, scale=scale, bool_scale=bool_scale)


def test_limits_that_float32_leaves_open():
    """One key only, or all alike: T[0] >= (0.5 b) S is an equality with powers of two."""
    q, k, v = operands(1, 1, 1, 64, 512, 64)
    for count in (1, 2, 64, 512):
        same = TernaryTensor.from_float(k.to_float()[:, :, :1].expand(-1, -1, count, -1), 1.0)
        columns = TernaryTensor.from_columns(
            v.to_float().transpose(-1, -2)[:, :, :count].contiguous(), 1.0
        )
        for bool_scale in (2.0 / count, math.nextafter(2.0 / count, 4), 1.0 / count):
            check(q, same, columns, scale=0.3, bool_scale=bool_scale)


def test_views_of_packed_rows():
    """Heads packed behind the rows, and words that do not begin at 16 bytes."""
    torch.manual_seed(0)
    q, k, v = operands(2, 3, 3, 70, 90, 64)
    expected = ternary.attention(q, k, v, scale=0.3, bool_scale=0.02)
    turned = []
    for x in (q, k):
        lying = x.to("cuda")
        lying.words = lying.words.transpose(1, 2).contiguous().transpose(1, 2)
        lying.counts = lying.counts.transpose(1, 2).contiguous().transpose(1, 2)
        turned.append(lying)
    out = ternary.attention(*turned, v.to("cuda"), scale=0.3, bool_scale=0.02)
    assert torch.equal(out.cpu(), expected)
    shifted = []
    for x in (q, k, v):
        there = x.to("cuda")
        room = torch.empty(there.words.numel() + 1, dtype=torch.int32, device="cuda")
        words = room[1:].view(there.words.shape)
        words.copy_(there.words)
        there.words = words
        shifted.append(there)
    out = ternary.attention(*shifted, scale=0.3, bool_scale=0.02)
    assert torch.equal(out.cpu(), expected)
