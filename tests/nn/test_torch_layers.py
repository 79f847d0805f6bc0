"""Layers with torch's signatures: parameters, the stated formulas, packed twins, fixed point."""

import copy
import fractions
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional
from wrong_calls import check_wrong_calls

from bitgnn import BitTensor
from bitgnn.nn import BinaryConv2d, BinaryLinear, ChannelShortcut, NodeStandardize
from bitgnn.ops import bmm
from bitgnn.quantize import binary_conv2d, binary_sign, fixed_point, row_scale

STEP = 2.0**-12
FIRST = {"input_step": STEP}
# Channels, outputs, kernel; options; height and width of the images.
SHAPES = [
    ((1, 1, 1), {}),
    ((33, 5, 3), {"padding": 1}),
    ((31, 40, (3, 2)), {"stride": (2, 1), "padding": 2}),
    ((64, 66, 3), {"groups": 2, "dilation": (1, 2)}),
    ((6, 9, (2, 4)), {"padding": "same", "groups": 3}),
    ((8, 4, 3), {"padding": 2, "padding_mode": "reflect"}),
    ((33, 6, (3, 2)), {"stride": 2, "padding": (2, 1), "padding_value": -1}),
    ((6, 9, (2, 4)), {"padding": "same", "groups": 3, "padding_value": -1}),
    ((31, 5, 3), {"padding": 1, "surrogate": "identity"}),
    ((3, 40, 3), {"padding": 1, **FIRST}),
    ((3, 5, 11), {"stride": 4, "padding": 5, **FIRST}),
    ((33, 6, (3, 2)), {"dilation": (1, 2), **FIRST}),
    ((4, 6, 2), {"padding": "same", "groups": 2, **FIRST}),
]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def reference(layer, x):
    """The layer by torch's own differentiable operations on the signs, or on fixed point."""
    padding, sign = layer.padding, partial(binary_sign, surrogate=layer.surrogate)
    if layer.surrogate == "identity":
        sign = lambda v: v + (torch.where(v >= 0, 1.0, -1.0) - v).detach()  # noqa: E731
    if layer.padding_value:
        x = functional.pad(x, layer._reversed_padding_repeated_twice, value=-1.0)
        padding = 0
    if layer.padding_mode != "zeros":
        x = functional.pad(x, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
        padding = 0
    step = layer.input_step
    seen = sign(x) if step is None else fixed_point(x, step) / step
    numbers = (layer.stride, padding, layer.dilation, layer.groups)
    dot = functional.conv2d(seen.double(), sign(layer.weight).double(), None, *numbers)
    # Float64 convolutions of cuDNN may be off by fractions.
    dot = (dot + (dot.round() - dot).detach()).float()
    dot = dot if step is None else dot * step
    if layer.scale:
        dot = row_scale(layer.weight.flatten(1)).view(-1, 1, 1) * dot
    return dot if layer.bias is None else dot + layer.bias.view(-1, 1, 1)


@pytest.mark.parametrize(("sizes", "options"), SHAPES, ids=str)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("scale", "bias"), [(True, True), (True, False), (False, True)])
def test_conv_is_the_formula_and_its_gradient(
    sizes, options, scale, bias, layout, device, monkeypatch
):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    layer = BinaryConv2d(*sizes, **options, bias=bias, scale=scale).to(device)
    x = torch.randn(3, sizes[0], 17, 16, device=device) * 4
    x = x.contiguous(memory_format=layout).requires_grad_()
    twin, y = copy.deepcopy(layer), x.detach().clone().requires_grad_()
    out, expected = layer(x), reference(twin, y)
    assert torch.equal(out, expected)
    grad = torch.randn_like(out)
    out.backward(grad)
    expected.backward(grad)
    found = {"x": x.grad} | {name: p.grad for name, p in layer.named_parameters()}
    wanted = {"x": y.grad} | {name: p.grad for name, p in twin.named_parameters()}
    for name, value in wanted.items():
        assert value.abs().sum() > 0
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("size", [1, 31, 33, 200])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (0,), ()])
def test_linear_is_the_formula_and_its_packed_twin(scale, size, shape):
    layer = BinaryLinear(size, 40, scale=scale)
    x = torch.randn(*shape, size, requires_grad=True)
    expected = binary_sign(x) @ binary_sign(layer.weight).t()
    if scale:
        expected = row_scale(layer.weight) * expected
    expected = expected + layer.bias
    out = layer(x)
    assert torch.equal(out, expected)
    rows = BitTensor.from_float(x.detach().reshape(-1, size))
    packed = bmm.bbf(rows, layer.pack_weight(), bias=layer.bias.detach())
    assert torch.equal(packed.view(out.shape), out)
    grad, inputs = torch.randn_like(out), (x, layer.weight, layer.bias)
    wanted = torch.autograd.grad(expected, inputs, grad)
    for mine, theirs in zip(torch.autograd.grad(out, inputs, grad), wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("ours", "theirs", "arguments"),
    [
        (BinaryLinear, nn.Linear, (33, 5, False)),
        (BinaryLinear, nn.Linear, (33, 5)),
        (BinaryConv2d, nn.Conv2d, (6, 4, 3, 2, 1, 1, 2, False)),
        (BinaryConv2d, nn.Conv2d, (6, 4, (3, 2), (1, 2), "valid", 2)),
    ],
)
def test_constructors_and_states_are_torchs(ours, theirs, arguments):
    torch.manual_seed(1)
    plain = theirs(*arguments)
    torch.manual_seed(1)
    binary = ours(*arguments)
    assert binary.state_dict().keys() == plain.state_dict().keys()
    assert all(map(torch.equal, binary.state_dict().values(), plain.state_dict().values()))
    assert repr(binary) == repr(plain).replace(theirs.__name__, ours.__name__)
    other = ours(*arguments, scale=False, input_step=0.25)
    assert repr(other).endswith("scale=False, input_step=0.25)")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    "sizes",
    [
        "128 128 3 1 32",
        "200 64 3 2 17",
        "256 256 3 1 8",
        "512 66 3 1 4",
        "33 40 5 1 9",
        "3 32 7 2 30",
    ],
)
def test_conv_on_tensor_cores_is_exact(sizes, layout, dtype, device):
    """Sums up to 1800 in float16 products, up to 2304 and more in float32 ones."""
    channels, outputs, kernel, stride, size = map(int, sizes.split())
    numbers = channels, outputs, kernel, stride, kernel // 2
    layer = BinaryConv2d(*numbers, bias=False, scale=outputs in (64, 66, 32)).to(device)
    with torch.no_grad():  # far from a random walk: sums up to the largest
        layer.weight[: outputs // 2].abs_()
    x = torch.randn(4, channels, size, size, device=device)
    x[0] = x[0].abs()
    x = x.to(dtype).contiguous(memory_format=layout).requires_grad_()
    out, twin = layer(x), copy.deepcopy(layer).cpu()
    expected = reference(twin, x.detach().cpu().float())
    largest = row_scale(twin.weight.flatten(1)).max() if twin.scale else 1.0
    assert expected.abs().max() >= 0.9 * channels * kernel**2 * largest
    assert torch.equal(out.cpu(), expected.to(dtype))
    out.sum().backward()
    assert x.grad.dtype == dtype
    assert x.grad.isfinite().all()
    assert layer.weight.grad.dtype == torch.float32


def rounded(value, step):
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
    expected = torch.tensor([rounded(value, step) for value in x.tolist()])
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


def test_sums_beyond_float32_are_exact(device, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    # 1200 summands of 32767 or 32766 and one of 1: sums near 3.9e7, which float32 adds wrongly.
    x = torch.full((1, 1201), 32767.0, device=device)
    x[0, ::2] = 32766.0
    x[0, -1] = 1.0
    exact = float(torch.tensor(int(x.long().sum()), dtype=torch.int64).float())
    linear = BinaryLinear(1201, 2, bias=False, scale=False, input_step=1).to(device)
    conv = BinaryConv2d(1201, 2, 1, bias=False, scale=False, input_step=1).to(device)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")  # TF32 wherever torch lets it act
    try:
        for layer, given in ((linear, x), (conv, x.view(1, -1, 1, 1))):
            nn.init.ones_(layer.weight)
            with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
                assert layer(given).flatten().tolist() == [exact] * 2
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_shortcut_keeps_pixels_and_appends_zeros(dtype, device):
    x = torch.randint(-99, 99, (2, 3, 7, 6), device=device).to(dtype)
    out = ChannelShortcut(3, 5, 2)(x)
    assert out.dtype == dtype
    assert out.shape == (2, 5, 4, 3)
    assert torch.equal(out[:, :3], x[:, :, ::2, ::2])
    assert out[:, 3:].abs().sum() == 0
    assert torch.equal(ChannelShortcut(3, 3)(x), x)
    assert repr(ChannelShortcut(2, 4, 2)) == "ChannelShortcut(2, 4, stride=2)"
    y = torch.randn(1, 2, 3, 3, requires_grad=True)
    ChannelShortcut(2, 4, 2)(y).sum().backward()
    assert y.grad[0, 0].tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 1]]


@pytest.mark.parametrize("size", [2, 31, 33, 1000])
def test_standardised_rows_are_the_formula(size):
    for x in (3 * torch.randn(5, size) + 1, 1e4 + torch.randn(64, size)):
        mean = x.double().mean(1, keepdim=True).float()
        assert torch.equal(NodeStandardize()(x), (x - mean) / (x.std(1, keepdim=True) + 1e-4))
    assert NodeStandardize()(torch.full((3, size), 2.5)).eq(0).all()
    assert NodeStandardize()(torch.randn(3, 1)).eq(0).all()
    assert NodeStandardize()(torch.randn(0, size)).shape == (0, size)
    assert list(NodeStandardize().parameters()) == []


CONV, ONES, IMAGES = BinaryConv2d(5, 4, 3), torch.ones(2, 3).long(), torch.randn(1, 5, 7, 7)
in_two_groups = partial(binary_conv2d, groups=2)
NAN, INF, SMALL = float("nan"), float("inf"), torch.ones(1, 3, 2, 8)
WRONG = r"""
CONV(torch.randn(2, 6, 7, 7))
    -> ValueError: BinaryConv2d: input must be \[N, 5, H, W\].*\[2, 6, 7
CONV(IMAGES[:, :, :2]) -> ValueError: the kernel must be no larger than the padded image
BinaryLinear(5, 4)(torch.randn(2, 6))
    -> ValueError: BinaryLinear: input must be \[\*, 5\], got \[2, 6\]
CONV(IMAGES.long()) -> TypeError: BinaryConv2d: input must be a dense tensor of floats
in_two_groups(torch.randn(1, 4, 3, 3), torch.randn(3, 2, 1, 1))
    -> ValueError: binary_conv2d: x must be .* dividing O
BinaryConv2d(5, 4, 3, surrogate="exact")(IMAGES)
    -> ValueError: surrogate must be one of .*, got 'exact'
BinaryConv2d(3, 4, 3, padding_value=1)
    -> ValueError: BinaryConv2d: padding_value must be 0 or -1, got 1
BinaryConv2d(3, 4, 3, padding_value=-1, input_step=0.5)
    -> ValueError: padding_value=-1 is for signs .* input_step=0\.5
BinaryConv2d(3, 4, 3, padding_value=-1, padding_mode="circular") -> ValueError: 'circular'
BinaryConv2d(3, 4, 3, input_step=0)
    -> ValueError: BinaryConv2d: the step must be a power of two
BinaryConv2d(3, 4, 3, input_step=-1.0) -> ValueError: must be a power of two
BinaryConv2d(3, 4, 3, input_step=3) -> ValueError: must be a power of two
BinaryConv2d(3, 4, 3, input_step=NAN) -> ValueError: must be a power of two
BinaryConv2d(3, 4, 3, input_step=INF) -> ValueError: must be a power of two
BinaryConv2d(3, 4, 3, input_step=2.0**65) -> ValueError: must be a power of two
BinaryLinear(3, 4, input_step=2.0**-70)
    -> ValueError: BinaryLinear: the step must be a power of two
BinaryLinear(3, 4, input_step="1") -> TypeError: BinaryLinear: the step must be a number
BinaryLinear(3, 4, input_step=True) -> TypeError: BinaryLinear: the step must be a number
BinaryLinear(3, 4, input_step=1)(ONES)
    -> TypeError: input must be a dense tensor of floats or uint8, got torch\.int64
BinaryConv2d(3, 4, 3, input_step=1)(SMALL)
    -> ValueError: the kernel must be no larger than the padded image
ChannelShortcut(2, 4)(SMALL) -> ValueError: ChannelShortcut: input must be \[N, 2, H, W\], got
ChannelShortcut(4, 2) -> ValueError: out_channels must be at least in_channels, 4, got 2
ChannelShortcut(4, 4, 0) -> ValueError: stride must be at least 1, got 0
ChannelShortcut(True, 4) -> TypeError: in_channels must be an int, got True
"""


def test_wrong_calls():
    check_wrong_calls(WRONG, globals())
