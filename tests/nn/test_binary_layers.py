"""BinaryLinear and BinaryConv2d: torch's parameters, the stated formulas, packed twins."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn import BitTensor
from bitgnn.nn import BinaryConv2d, BinaryLinear
from bitgnn.ops import bmm
from bitgnn.quantize import binary_conv2d, binary_sign, row_scale, sgn

SHAPES = [
    {"in_channels": 1, "out_channels": 1, "kernel_size": 1},
    {"in_channels": 33, "out_channels": 5, "kernel_size": 3, "padding": 1},
    {"in_channels": 31, "out_channels": 40, "kernel_size": (3, 2), "stride": (2, 1), "padding": 2},
    {"in_channels": 64, "out_channels": 66, "kernel_size": 3, "groups": 2, "dilation": (1, 2)},
    {"in_channels": 6, "out_channels": 9, "kernel_size": (2, 4), "padding": "same", "groups": 3},
    {
        "in_channels": 8,
        "out_channels": 4,
        "kernel_size": 3,
        "padding": 2,
        "padding_mode": "reflect",
    },
]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def _reference(layer: BinaryConv2d, x: Tensor) -> Tensor:
    """The layer by torch's own differentiable operations on the signs."""
    padding = layer.padding
    if layer.padding_mode != "zeros":
        x = functional.pad(x, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
        padding = 0
    signs, weight = binary_sign(x).double(), binary_sign(layer.weight).double()
    dot = functional.conv2d(
        signs, weight, None, layer.stride, padding, layer.dilation, layer.groups
    )
    # Float64 convolutions of cuDNN may be off by fractions.
    dot = (dot + (dot.round() - dot).detach()).float()
    if layer.scale:
        dot = row_scale(layer.weight.flatten(1)).view(-1, 1, 1) * dot
    return dot if layer.bias is None else dot + layer.bias.view(-1, 1, 1)


@pytest.mark.parametrize("options", SHAPES, ids=str)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_conv_is_the_formula_and_its_gradient(options, scale, bias, device, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    layer = BinaryConv2d(**options, bias=bias, scale=scale).to(device)
    x = torch.randn(3, options["in_channels"], 9, 8, device=device, requires_grad=True)
    twin, y = copy.deepcopy(layer), x.detach().clone().requires_grad_()
    out, expected = layer(x), _reference(twin, y)
    assert torch.equal(out, expected)
    grad = torch.randn_like(out)
    out.backward(grad)
    expected.backward(grad)
    found = {"x": x.grad} | {name: p.grad for name, p in layer.named_parameters()}
    wanted = {"x": y.grad} | {name: p.grad for name, p in twin.named_parameters()}
    for name, value in wanted.items():
        assert value.abs().sum() > 0
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-4)


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
    grad = torch.randn_like(out)
    wanted = torch.autograd.grad(expected, (x, layer.weight, layer.bias), grad)
    found = torch.autograd.grad(out, (x, layer.weight, layer.bias), grad)
    for mine, theirs in zip(found, wanted, strict=True):
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
    assert repr(ours(*arguments, scale=False)).endswith("scale=False)")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "stride", "size", "scale"),
    [
        (128, 128, 3, 1, 32, False),
        (200, 64, 3, 2, 17, True),  # sums up to 1800: float16 products
        (256, 256, 3, 1, 8, False),  # up to 2304: float32 products
        (512, 66, 3, 1, 4, True),
        (33, 40, 5, 1, 9, False),
        (3, 32, 7, 2, 30, True),
    ],
)
def test_conv_on_tensor_cores_is_exact(
    channels, outputs, kernel, stride, size, scale, layout, dtype, device
):
    layer = BinaryConv2d(
        channels, outputs, kernel, stride, kernel // 2, bias=False, scale=scale
    ).to(device)
    with torch.no_grad():  # far from a random walk: sums up to the largest
        layer.weight[: outputs // 2].abs_()
    x = torch.randn(4, channels, size, size, device=device)
    x[0] = x[0].abs()
    x = x.to(dtype).contiguous(memory_format=layout).requires_grad_()
    out = layer(x)
    signs, weight = sgn(x.detach()).double(), sgn(layer.weight.detach()).double()
    dot = functional.conv2d(signs.cpu(), weight.cpu(), None, stride, kernel // 2).float()
    assert dot.abs().max() == channels * kernel**2
    if scale:
        dot = row_scale(layer.weight.detach().flatten(1)).view(-1, 1, 1).cpu() * dot
    assert torch.equal(out.detach().cpu(), dot.to(dtype))
    out.sum().backward()
    assert x.grad.dtype == dtype
    assert x.grad.isfinite().all()
    assert layer.weight.grad.dtype == torch.float32


def test_bad_input_is_named():
    layer = BinaryConv2d(5, 4, 3)
    with pytest.raises(ValueError, match=r"BinaryConv2d: input must be \[N, 5, H, W\].*\[2, 6, 7"):
        layer(torch.randn(2, 6, 7, 7))
    with pytest.raises(ValueError, match="the kernel must be no larger than the padded image"):
        layer(torch.randn(2, 5, 2, 7))
    with pytest.raises(ValueError, match=r"BinaryLinear: input must be \[\*, 5\], got \[2, 6\]"):
        BinaryLinear(5, 4)(torch.randn(2, 6))
    with pytest.raises(TypeError, match="BinaryConv2d: input must be a dense tensor of floats"):
        layer(torch.ones(1, 5, 7, 7, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"binary_conv2d: x must be .* dividing O"):
        binary_conv2d(torch.randn(1, 4, 3, 3), torch.randn(3, 2, 1, 1), groups=2)
    with pytest.raises(ValueError, match="surrogate must be 'ste' or 'approx', got 'exact'"):
        BinaryConv2d(5, 4, 3, surrogate="exact")(torch.randn(1, 5, 7, 7))
