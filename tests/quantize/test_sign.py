"""Sign, surrogate slopes, row scale, dropout and constants against their formulas."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from wrong_calls import check_wrong_calls

from bitgnn.ops.reference.pack import row_scale as reference_scale
from bitgnn.quantize import binary_sign, canonical_row_scale, fast_dropout, row_scale, sgn
from bitgnn.quantize.dropout import MOST, all_words, filled, keep_words, made_once
from bitgnn.quantize.sign import surrogate_slope, within

VALUES = [-3.0, -1.0, -0.5, -0.0, 0.0, 0.25, 1.0, 1.5, float("inf"), float("-inf"), float("nan")]


@pytest.mark.parametrize(
    ("surrogate", "window", "slopes"),
    [
        ("ste", 1.0, [0, 1, 1, 1, 1, 1, 1, 0]),
        ("ste", 0.4, [0, 0, 0, 1, 1, 1, 0, 0]),
        ("approx", 1.0, [0, 0, 1, 2, 2, 1.5, 0, 0]),
        ("approx", 2.0, [0, 1, 1.5, 2, 2, 1.75, 1, 0.5]),
        ("identity", 1.0, [1] * 8),
    ],
)
def test_gradient_is_the_slope(surrogate, window, slopes):
    x = torch.tensor(VALUES[:8], requires_grad=True)
    out = binary_sign(x, surrogate, window)
    out.backward(torch.full_like(x, 3.0))
    assert torch.equal(out.detach(), sgn(x))
    assert torch.allclose(x.grad, 3.0 * torch.tensor(slopes, dtype=torch.float32))
    assert torch.equal(surrogate_slope(x.detach(), surrogate, window).float() * 3.0, x.grad)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str
)
@pytest.mark.parametrize("bound", [0.25, 1.0, 4.0, 0.3])
def test_windows_are_closed(bound, dtype):
    edge = torch.tensor(bound, dtype=dtype)
    around = [torch.nextafter(edge, edge * side) for side in (0, 2)]
    x = torch.stack([edge, -edge, *around, *(-value for value in around), 0 * edge] * 9)
    grad = torch.arange(1.0, x.numel() + 1).to(dtype)
    assert torch.equal(within(grad, x, bound), grad * (x.abs() <= bound))
    assert torch.equal(surrogate_slope(x, "ste", bound), x.abs() <= bound)
    mixed = within(grad.double(), x, bound)
    assert mixed.dtype == torch.float64
    assert torch.equal(mixed, grad.double() * (x.abs() <= bound))


WRONG = r"""
binary_sign(torch.ones(2), "soft")
    -> ValueError: surrogate must be one of .*, got 'soft'
surrogate_slope(torch.ones(2), "soft")
    -> ValueError: surrogate must be one of .*, got 'soft'
binary_sign(torch.ones(2), "ste", 0.0) -> ValueError: window must be above 0
row_scale(torch.ones(3)) -> ValueError: x must be \[N, K\]
"""


def test_bad_arguments_are_named():
    check_wrong_calls(WRONG, globals())


@given(rows=st.integers(1, 5), size=st.integers(1, 150), seed=st.integers(0, 99))
def test_row_scale_has_the_bits_of_the_reference(rows, size, seed):
    x = torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(canonical_row_scale(x), reference_scale(x))


def test_row_scale_gradient():
    x = torch.tensor([[1.0, -2.0, 0.0], [4.0, 5.0, -6.0]], requires_grad=True)
    scale = row_scale(x)
    scale.backward(torch.tensor([3.0, 6.0]))
    assert torch.allclose(scale.detach(), torch.tensor([1.0, 5.0]))
    assert torch.equal(x.grad, torch.tensor([[1.0, -1.0, 1.0], [2.0, 2.0, -2.0]]))


def test_dropout_keeps_the_expectation():
    torch.manual_seed(0)
    x = torch.ones(1000, 331)
    out = fast_dropout(x, 0.4)
    assert out.unique().tolist() == pytest.approx([0.0, 1 / 0.6], rel=1e-4)
    assert (out == 0).float().mean().item() == pytest.approx(0.4, abs=5e-3)
    assert out.mean().item() == pytest.approx(1.0, abs=1e-2)
    assert fast_dropout(x, 0.4, training=False) is x
    assert fast_dropout(x, 0.0) is x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (0,), (33,), (3, 0), (2, 3, 31), (0, 5)])
def test_sgn_of_any_shape_and_dtype(shape, dtype):
    assert sgn(torch.tensor(VALUES, dtype=dtype)).tolist() == [-1] * 3 + [1] * 6 + [-1] * 2
    x = torch.randn(shape, dtype=dtype)
    found = sgn(x)
    assert found.shape == x.shape
    assert found.dtype == dtype
    assert torch.equal(found, torch.where(x >= 0, 1.0, -1.0).to(dtype))


@pytest.mark.parametrize("size", [1, 31, 33, 331])
@pytest.mark.parametrize("p", [0.0, 0.25, 0.4, 0.999])
def test_keep_words_keep_with_the_probability(p, size):
    torch.manual_seed(0)
    words, kept = keep_words(4000, size, p, torch.empty(0))
    assert kept == pytest.approx(1 - p, abs=2**-16)
    bits = torch.ops.bitgnn.unpack(words, size)
    share = (bits == 1).float().mean().item()
    assert share == pytest.approx(kept, abs=5 * (p * (1 - p) / (4000 * size)) ** 0.5 + 1e-9)
    # Padding stays clear: the operators rely on it.
    assert torch.equal(words & ~all_words(size, words), torch.zeros_like(words))


def test_neighbouring_decisions_are_independent():
    torch.manual_seed(0)
    bits = torch.ops.bitgnn.unpack(keep_words(2000, 64, 0.4, torch.empty(0))[0], 64)
    correlation = torch.corrcoef(bits.t()) - torch.eye(64)
    assert correlation.abs().max().item() < 0.12


def test_constants_are_made_once_for_each_value_and_size():
    class Traced(torch.Tensor):
        pass

    like = torch.empty(0)
    assert torch.equal(filled(3, 0.25, like), torch.full((3,), 0.25))
    assert filled(3, 0.25, like) is filled(3, 0.25, like)
    assert filled(3, 0.25, like) is not filled(3, 0.5, like)
    assert filled(4, 0.25, like).shape == (4,)
    assert filled(3, 0.25, torch.empty(0, device="meta")).is_meta
    traced = like.as_subclass(Traced)
    assert filled(3, 0.125, traced) is not filled(3, 0.125, traced)
    first = filled(1, -1.0, like)
    for number in range(MOST + 1):
        made_once(("few", number), like, lambda: torch.empty(1))
    assert filled(1, -1.0, like) is not first
    assert torch.equal(filled(1, -1.0, like), first)


def test_constants_of_inference_mode_serve_training():
    with torch.inference_mode():
        found = filled(3, 0.75, torch.empty(0))
    x = torch.ones(3, requires_grad=True)
    (x * found).sum().backward()
    assert torch.equal(x.grad, found)
