"""BitNet's layers of transformers: plain weights, BWTA forms, frozen and saved models."""

import pytest
import torch
from pretrained import transformers
from torch import nn
from transformers.integrations.bitnet import AutoBitLinear, BitLinear, pack_weights

import bitgnn
from bitgnn.convert.bwta.bitnet import with_plain_linear


def layer(kind, inputs, outputs, seed, **options):
    torch.manual_seed(seed)
    if kind == "packed":
        made = BitLinear(inputs, outputs, False, dtype=torch.float32, **options)
        values = torch.randint(-1, 2, (outputs, inputs))
        made.weight.copy_(pack_weights(values.clone()))
        made.weight_scale.fill_(8.0)
        return made, values / 8
    made = AutoBitLinear(inputs, outputs, False, online_quant=kind == "online", **options)
    if kind == "offline":
        made.weight_scale.fill_(0.25)
        return made, made.weight * 0.25
    return made, made.weight


@pytest.mark.parametrize("kind", ["packed", "online", "offline"])
def test_plain_weights(kind):
    made, expected = layer(kind, 33, 8, 0)
    model = nn.Sequential(nn.Linear(4, 33), made)
    plain = with_plain_linear(model)
    assert type(plain[1]) is nn.Linear
    assert torch.equal(plain[1].weight, expected)
    assert model[1] is made
    assert type(plain[0]) is nn.Linear
    assert with_plain_linear(plain) is plain


def test_a_norm_inside_comes_in_front():
    made, expected = layer("online", 16, 8, 1, use_rms_norm=True)
    x = torch.randn(3, 16)
    found = with_plain_linear(nn.Sequential(made))(x)
    assert torch.allclose(found, nn.functional.linear(made.rms_norm(x), expected))


@pytest.mark.parametrize("kind", ["packed", "online", "offline"])
def test_a_causal_model_freezes_and_is_saved(kind, tmp_path):
    config = transformers.BitNetConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=2, intermediate_size=64, max_position_embeddings=32,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BitNetForCausalLM(config).eval()
    for seed, (name, module) in enumerate(list(model.named_modules())):
        if isinstance(module, nn.Linear) and name != "lm_head":
            made, _ = layer(kind, module.in_features, module.out_features, seed)
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, made)
    tokens = {"input_ids": torch.randint(40, (2, 9))}
    binary = bitgnn.binarize(model, bitgnn.BWTAConfig(calibration=tokens)).eval()
    frozen = bitgnn.freeze(binary)
    loaded = bitgnn.load(bitgnn.save(frozen, tmp_path))
    with torch.no_grad():
        expected = binary(**tokens).logits
        assert torch.allclose(frozen(**tokens).logits, expected, atol=1e-4)
        assert torch.equal(loaded(**tokens).logits, frozen(**tokens).logits)
