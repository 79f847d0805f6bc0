"""Frozen layers whose activations are signs: the values of the trained ones, bit for bit."""

import pytest
import torch
from torch import Tensor, nn

import bitgnn
from bitgnn.inference.bwta.sign_attention import FrozenSignAttention
from bitgnn.nn import BWTAAttention, BWTALinear, BWTAMultiheadAttention, BWTASelfAttention

HALVES = (torch.float32, torch.float16, torch.bfloat16)


def awkward(*shape: int) -> Tensor:
    """Normal numbers, zeros of both signs and NaN."""
    x = torch.randn(shape)
    x[torch.rand(shape) < 0.1] = 0.0
    x[torch.rand(shape) < 0.1] = -0.0
    x[torch.rand(shape) < 0.1] = float("nan")
    return x


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("bias", [False, True])
def test_linear(dtype, bias, device) -> None:
    torch.manual_seed(0)
    layer = BWTALinear(33, 7, bias, activation="sign").to(device)
    layer(torch.randn(64, 33, device=device))
    layer.eval()
    frozen = bitgnn.freeze(layer)
    for shape in ((5, 33), (33,), (0, 33), (2, 3, 33), (2, 0, 33)):
        x = awkward(*shape).to(device, dtype)
        expected = layer(x)
        assert expected.dtype == dtype
        assert torch.equal(frozen(x), expected)
    turned = awkward(33, 6).to(device, dtype).t()
    assert torch.equal(frozen(turned), layer(turned))
    with torch.no_grad():
        layer.input_quantizer.scale.mul_(3)
    frozen.load_state_dict(bitgnn.freeze(layer).state_dict())
    assert torch.equal(frozen(turned), layer(turned))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_attention(dtype, causal, masked, device) -> None:
    torch.manual_seed(0)
    layer = BWTAAttention(activation="sign").to(device)
    q, k, v = (awkward(2, heads, 40, 24).to(device, dtype) for heads in (4, 2, 2))
    layer(*(x.nan_to_num(nan=0.0) for x in (q, k, v)))
    layer.eval()
    mask = (torch.rand(2, 40) < 0.7).to(device) if masked else None
    expected, probabilities = layer(q, k, v, mask, causal=causal, return_probabilities=True)
    frozen = bitgnn.freeze(layer)
    assert isinstance(frozen.model, FrozenSignAttention)
    assert torch.equal(frozen(q, k, v, mask, causal=causal), expected)
    out, found = frozen(q, k, v, mask, causal=causal, return_probabilities=True)
    assert torch.equal(out, expected)
    torch.testing.assert_close(found, probabilities)


class Model(nn.Module):
    """Both attention modules between linear layers."""

    def __init__(self) -> None:
        super().__init__()
        options = {"activation": "sign"}
        self.up = BWTALinear(16, 32, **options)
        self.own = BWTASelfAttention(32, 4, 2, **options)
        self.torchs = BWTAMultiheadAttention(32, 4, batch_first=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        x = x + self.own(x, causal=True)
        return x + self.torchs(x, x, x, need_weights=False)[0]


def test_models_and_checkpoints(tmp_path) -> None:
    torch.manual_seed(0)
    model, x = Model(), torch.randn(3, 9, 16)
    model(x)
    expected = model.eval()(x)
    frozen = bitgnn.freeze(model)
    assert torch.equal(frozen(x), expected)
    bitgnn.save(frozen, tmp_path)
    loaded = bitgnn.load(tmp_path, Model())
    assert torch.equal(loaded(x), expected)
    assert isinstance(loaded.model.own.attention, FrozenSignAttention)
    assert isinstance(loaded.model.torchs.attention, FrozenSignAttention)
    row = next(row for row in bitgnn.summary(frozen).layers if row.name == "up")
    assert (row.activation_bits, row.weight_bits) == (1, 1)
