"""Linear: PyG's layer in fp32, the stated formulas in the binary forms."""

import pytest
import torch
import torch_geometric.nn

from bitgnn.nn import LayerPrecision, Linear
from bitgnn.quantize import sgn


def _product(x, weight):
    scale = x.abs().mean(-1, keepdim=True) * weight.abs().mean(1)
    return scale * (sgn(x) @ sgn(weight).t())


def test_fp32_is_pyg(x):
    torch.manual_seed(0)
    theirs = torch_geometric.nn.Linear(40, 5, weight_initializer="glorot")
    torch.manual_seed(0)
    ours = Linear(40, 5, weight_initializer="glorot")
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert torch.equal(ours(x), theirs(x))
    assert str(ours) == str(theirs)
    binary = Linear(40, 5, precision="bin")
    binary.load_state_dict(theirs.state_dict())
    assert torch.equal(binary.weight, theirs.weight)


@pytest.mark.parametrize("size", [1, 31, 33])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (0,)])
def test_full_is_the_formula(size, shape):
    x = torch.randn(*shape, size)
    layer = Linear(size, 4, precision="full")
    torch.nn.init.normal_(layer.bias)
    expected = _product(x, layer.weight) + layer.bias
    assert layer(x).shape == (*shape, 4)
    assert torch.allclose(layer(x), expected, atol=1e-5)


def test_bit_outputs_are_signs_behind_the_bias(x):
    layer = Linear(40, 6, precision="bin")
    torch.nn.init.normal_(layer.bias)
    assert torch.equal(layer(x), sgn(_product(x, layer.weight) + layer.bias))
    bare = Linear(40, 6, bias=False, precision="bin")
    assert torch.equal(bare(x), sgn(sgn(x) @ sgn(bare.weight).t()))


def test_norms_and_hardtanh_act_in_their_places(x):
    precision = LayerPrecision(
        "FBB", "BBF", hardtanh=True, input_norm="batch", hidden_norm="batch", output_norm="batch"
    )
    layer = Linear(40, 6, precision=precision)
    torch.nn.init.normal_(layer.bias)
    torch.nn.init.normal_(layer.hidden_norm.bias)
    u = layer.input_norm(x).clamp(-1, 1)
    expected = layer.hidden_norm(_product(u, layer.weight)) + layer.bias
    expected = layer.output_norm(expected)
    out = layer(x)
    clear = expected.abs() > 1e-4
    assert torch.equal(out[clear], sgn(expected)[clear])
    assert clear.float().mean() > 0.9


def test_bad_input_is_named(x):
    layer = Linear(40, 6, precision="full")
    with pytest.raises(ValueError, match=r"Linear: x must be \[N, 40\], got \[30, 39\]"):
        layer(x[:, 1:])
    with pytest.raises(TypeError, match="Linear: x must be a tensor, got float32 ndarray"):
        layer(x.numpy())
    with pytest.raises(ValueError, match=r"Linear: dropout must be in \[0, 1\), got 1.0"):
        Linear(40, 6, dropout=1.0)
