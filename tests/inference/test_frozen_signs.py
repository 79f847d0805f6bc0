"""Models whose activations are signs, frozen and saved."""

import torch
from torch import Tensor, nn

import bitgnn
from bitgnn.nn import BWTALinear, BWTAMultiheadAttention, BWTASelfAttention


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
    assert loaded.model.own.attention.activation == "sign"
    assert loaded.model.torchs.attention.activation == "sign"
    row = next(row for row in bitgnn.summary(frozen).layers if row.name == "up")
    assert (row.activation_bits, row.weight_bits) == (1, 1)
