"""First layers in fixed point, and the shortcut of residual networks."""

import fractions

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.nn import BinaryConv2d, BinaryLinear, ChannelShortcut
from bitgnn.quantize import binary_sign, fixed_point, row_scale, sgn

STEP = 2.0**-12


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def _rounded(value: float, step: float) -> float:
    """Fixed point by rational arithmetic; Python's round takes halves to even."""
    if value != value:
        return 0.0
    if abs(value) == float("inf"):
        q = 32767 if value > 0 else -32768
    else:
        q = round(fractions.Fraction(value) / fractions.Fraction(step))
    return max(-32768, min(32767, q)) * step


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("step", [2.0**-12, 1, 4.0, 2.0**-64, 2.0**40])
def test_fixed_point_is_the_formula(dtype, step, device):
    x = torch.cat([torch.randn(300) * scale for scale in (1e-3, 1.0, 1e4)])
    ugly = [0.0, -0.0, 0.5, 1.5, -0.5, 2.5, 32766.5, 32767.5, -32768.5, -32769.5, 1e38]
    ugly += [float("nan"), float("inf"), -float("inf")]
    x = torch.cat([x, torch.tensor(ugly), torch.tensor(ugly) * step]).to(dtype)
    expected = torch.tensor([_rounded(value, step) for value in x.tolist()])
    found = fixed_point(x.to(device), step)
    assert found.dtype == torch.float32
    assert torch.equal(found.cpu(), expected)


def test_gradient_passes_rounding_but_not_the_clamp(device):
    x = torch.tensor([0.3, 32767.4, 32767.6, -32768.4, -32768.6, float("nan"), float("inf")])
    x = x.to(device).requires_grad_()
    fixed_point(x, 1).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]


def test_uint8_is_taken_as_it_is(device):
    x = torch.arange(256, dtype=torch.uint8, device=device)
    assert torch.equal(fixed_point(x, 1), x.float())
    assert torch.equal(fixed_point(x, 2), fixed_point(x.float(), 2))
    with pytest.warns(UserWarning, match=r"uint8 above 7\.99976 is clamped with step 0\.000244141"):
        assert torch.equal(fixed_point(x, 2.0**-12), fixed_point(x.float(), 2.0**-12))
    images = torch.randint(256, (2, 3, 5, 5), dtype=torch.uint8, device=device)
    layer = BinaryConv2d(3, 4, 3, input_step=1).to(device)
    assert torch.equal(layer(images), layer(images.float()))
    assert layer(images).dtype == torch.float32


@pytest.mark.parametrize(
    "options",
    [
        {"in_channels": 3, "out_channels": 40, "kernel_size": 3, "padding": 1},
        {"in_channels": 3, "out_channels": 5, "kernel_size": 11, "stride": 4, "padding": 5},
        {"in_channels": 33, "out_channels": 6, "kernel_size": (3, 2), "dilation": (1, 2)},
        {"in_channels": 4, "out_channels": 6, "kernel_size": 2, "padding": "same", "groups": 2},
        {"in_channels": 3, "out_channels": 4, "kernel_size": 3, "padding": 1, "bias": False},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_first_convolution_is_the_formula_and_its_gradient(options, scale, layout, device):
    layer = BinaryConv2d(**options, scale=scale, input_step=STEP).to(device)
    x = torch.randn(3, options["in_channels"], 17, 16, device=device) * 4
    x = x.contiguous(memory_format=layout).requires_grad_()
    numbers = (layer.stride, layer.padding, layer.dilation, layer.groups)
    q = (fixed_point(x.detach().cpu(), STEP) / STEP).long()
    dot = functional.conv2d(q.double(), sgn(layer.weight.detach()).cpu().double(), None, *numbers)
    expected = dot.float() * STEP
    if scale:
        expected = row_scale(layer.weight.flatten(1)).detach().view(-1, 1, 1).cpu() * expected
    if layer.bias is not None:
        expected = expected + layer.bias.detach().view(-1, 1, 1).cpu()
    out = layer(x)
    assert torch.equal(out.detach().cpu(), expected)
    # Against autograd through the same differentiable pieces in float64.
    grad = torch.randn_like(out)
    out.backward(grad)
    found = (x.grad, layer.weight.grad)
    w = layer.weight.detach().clone().requires_grad_()
    y = fixed_point(x.detach(), STEP).double().requires_grad_()
    value = functional.conv2d(y, binary_sign(w).double(), None, *numbers)
    if scale:
        value = row_scale(w.flatten(1)).double().view(-1, 1, 1) * value
    value.backward(grad.double())
    rounded = (x.detach() / STEP).round()
    inside = (rounded >= -32768) & (rounded <= 32767)
    torch.testing.assert_close(found[0].double(), y.grad * inside, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[1].double(), w.grad.double(), rtol=1e-4, atol=1e-3)


@pytest.fixture
def tf32():
    """TF32 wherever torch lets it act."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.usefixtures("tf32")
def test_sums_beyond_float32_are_exact(device):
    # 1200 summands of 32767 or 32766 and one of 1: sums near 3.9e7, which float32 adds wrongly.
    x = torch.full((1, 1201), 32767.0, device=device)
    x[0, ::2] = 32766.0
    x[0, -1] = 1.0
    true = int(x.long().sum())
    rounded = float(torch.tensor(true, dtype=torch.int64).float())
    linear = BinaryLinear(1201, 2, bias=False, scale=False, input_step=1).to(device)
    conv = BinaryConv2d(1201, 2, 1, bias=False, scale=False, input_step=1).to(device)
    for layer, given in ((linear, x), (conv, x.view(1, -1, 1, 1))):
        nn.init.ones_(layer.weight)
        kind = torch.device(device).type
        with torch.autocast(kind, dtype=torch.bfloat16):
            assert layer(given).flatten().tolist() == [rounded] * 2


def test_bad_steps_and_inputs_are_named():
    for step in (0, -1.0, 3, float("nan"), float("inf"), 2.0**65, 2.0**-70):
        with pytest.raises(ValueError, match=r"BinaryConv2d: the step must be a power of two"):
            BinaryConv2d(3, 4, 3, input_step=step)
    for step in ("1", True):
        with pytest.raises(TypeError, match=r"BinaryLinear: the step must be a number"):
            BinaryLinear(3, 4, input_step=step)
    with pytest.raises(
        TypeError, match=r"input must be a dense tensor of floats or uint8, got torch\.int64"
    ):
        BinaryLinear(3, 4, input_step=1)(torch.ones(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"BinaryConv2d: input must be \[N, 3, H, W\]"):
        BinaryConv2d(3, 4, 3, input_step=1)(torch.ones(1, 4, 8, 8))
    with pytest.raises(ValueError, match="the kernel must be no larger than the padded image"):
        BinaryConv2d(3, 4, 3, input_step=1)(torch.ones(1, 3, 2, 8))
    assert "input_step=0.25" in repr(BinaryConv2d(3, 4, 3, input_step=0.25))
    assert "input_step" not in repr(BinaryLinear(3, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_shortcut_keeps_pixels_and_appends_zeros(dtype, device):
    x = torch.randint(-99, 99, (2, 3, 7, 6), device=device).to(dtype)
    out = ChannelShortcut(3, 5, 2)(x)
    assert out.dtype == dtype
    assert out.shape == (2, 5, 4, 3)
    assert torch.equal(out[:, :3], x[:, :, ::2, ::2])
    assert out[:, 3:].abs().sum() == 0
    assert torch.equal(ChannelShortcut(3, 3)(x), x)


def test_shortcut_passes_gradients_and_refuses_other_shapes():
    x: Tensor = torch.randn(1, 2, 3, 3, requires_grad=True)
    ChannelShortcut(2, 4, 2)(x).sum().backward()
    assert x.grad[0, 0].tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 1]]
    with pytest.raises(ValueError, match=r"ChannelShortcut: input must be \[N, 2, H, W\], got"):
        ChannelShortcut(2, 4)(torch.randn(1, 3, 3, 3))
    with pytest.raises(ValueError, match="out_channels must be at least in_channels, 4, got 2"):
        ChannelShortcut(4, 2)
    with pytest.raises(ValueError, match="stride must be at least 1, got 0"):
        ChannelShortcut(4, 4, 0)
    with pytest.raises(TypeError, match="in_channels must be an int, got True"):
        ChannelShortcut(True, 4)
    assert repr(ChannelShortcut(2, 4, 2)) == "ChannelShortcut(2, 4, stride=2)"
