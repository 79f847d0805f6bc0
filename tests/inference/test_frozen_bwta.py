"""Frozen BWTA models: equal to trained ones in evaluation, bit for bit; checkpoints; bad input."""

import copy
import itertools
import json
import math

import pytest
import torch
from torch import nn

import bitgnn
from bitgnn._checksummed import sealed
from bitgnn.nn import BWTAAttention, BWTALinear, BWTASelfAttention


class Block(nn.Module):
    """A transformer's block of the user's own, with float parts."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 48)
        self.attention = BWTASelfAttention(48, 3)
        self.norm = nn.LayerNorm(48)
        self.up = BWTALinear(48, 70)
        self.down = BWTALinear(70, 48, activation="bool")
        self.kept = BWTALinear(48, 48, level=None)
        self.head = nn.Linear(48, 5)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = self.embed(tokens)
        x = self.norm(x + self.attention(x, mask, causal=True))
        x = x + self.down(self.up(x).relu()) + self.kept(x)
        return self.head(x)


def trained_block() -> tuple[Block, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = Block()
    tokens = torch.randint(0, 11, (3, 37))
    mask = torch.ones(3, 37, dtype=torch.bool)
    mask[1, 30:] = False
    model(tokens, mask)  # starts the scales
    return model.eval(), tokens, mask


def awkward(*shape: int) -> torch.Tensor:
    """Normal numbers, zeros of both signs and NaN."""
    x = torch.randn(shape)
    for value in (0.0, -0.0, math.nan):
        x[torch.rand(shape) < 0.1] = value
    return x


@pytest.mark.parametrize("activation", ["ternary", "bool", "sign"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_linear(activation: str, dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(0)
    layer = BWTALinear(33, 67, activation=activation).to(device)
    layer(torch.randn(64, 33, device=device))
    frozen = bitgnn.freeze(layer.eval())
    for shape in ((5, 33), (33,), (0, 33), (2, 3, 33), (1, 33)):
        x = awkward(*shape).to(device, dtype)
        assert frozen(x).dtype == dtype
        assert torch.equal(frozen(x), layer(x))
    turned = awkward(33, 6).to(device, dtype).t()
    assert torch.equal(frozen(turned), layer(turned))
    # Rounding has limits at half a scale; values there must fall on the same side.
    half = 0.5 * layer.input_quantizer.scale.detach()
    ties = torch.stack([half, -half, torch.nextafter(half, half * 0), half * 0]).repeat(9)[:33]
    assert torch.equal(frozen(ties), layer(ties))


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (7, 33), (33, 33), (5, 64), (0, 3), (3, 0)])
@pytest.mark.parametrize("size", [8, 40, 64])
@pytest.mark.parametrize("activation", ["ternary", "sign"])
def test_attention(queries: int, keys: int, size: int, activation: str) -> None:
    torch.manual_seed(queries + keys + size)
    layer = BWTAAttention(activation=activation)
    layer(*(torch.randn(2, 6, 40, size) for _ in range(3)))
    frozen = bitgnn.freeze(layer.eval())
    q = torch.randn(2, queries, 6, size).transpose(1, 2)
    k, v = (torch.randn(2, keys, 2, size).transpose(1, 2) for _ in range(2))
    seen = torch.rand(2, keys) < 0.7
    pairs = torch.rand(2, 1, queries, keys) < 0.5
    for allowed, key_mask, causal in itertools.product((None, pairs), (None, seen), (False, True)):
        options = {"allowed": allowed, "key_mask": key_mask, "causal": causal}
        assert torch.equal(frozen(q, k, v, **options), layer(q, k, v, **options))
    out, probabilities = frozen(q, k, v, seen, return_probabilities=True)
    expected, softmax = layer(q, k, v, seen, return_probabilities=True)
    assert torch.equal(out, expected)
    torch.testing.assert_close(probabilities, softmax)
    hidden = torch.zeros(2, keys, dtype=torch.bool)
    assert not frozen(q, k, v, hidden).any()


def test_models_of_ones_own_and_their_checkpoints(tmp_path) -> None:
    model, tokens, mask = trained_block()
    before = copy.deepcopy(model.state_dict())
    frozen = bitgnn.freeze(model)
    assert frozen.kind == "bwta"
    for arguments in ((tokens,), (tokens, mask), (tokens[:1, :1],)):
        assert torch.equal(frozen(*arguments), model(*arguments))
    assert frozen.report.floats == {"kept": "at level None"}
    parts = ("query", "key", "value", "attention", "out")
    assert set(frozen.report.letters) == {*(f"attention.{n}" for n in parts), "up", "down"}
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert not any(p.requires_grad for p in frozen.parameters())
    assert not frozen.train().training
    assert isinstance(frozen.model.kept, nn.Linear)
    floats = sum(t.nbytes for t in model.state_dict().values())
    assert frozen.packed_nbytes < frozen.nbytes < floats
    bitgnn.save(frozen, tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"model must be given, one like .*, a Block, which a file cannot make"
    ):
        bitgnn.load(tmp_path / "model")
    fresh = Block()
    loaded = bitgnn.load(tmp_path / "model", fresh)
    assert isinstance(fresh.up, BWTALinear)
    assert torch.equal(loaded(tokens, mask), frozen(tokens, mask))
    assert loaded.report == frozen.report
    assert loaded.nbytes == frozen.nbytes
    assert json.loads((tmp_path / "model" / "model.json").read_text())["kind"] == "bwta"
    bitgnn.save(loaded, tmp_path / "again")
    assert torch.equal(bitgnn.load(tmp_path / "again", Block())(tokens), frozen(tokens))


def test_damaged_checkpoints_are_refused(tmp_path) -> None:
    model, _, _ = trained_block()
    bitgnn.save(bitgnn.freeze(model), tmp_path)
    with pytest.raises(ValueError, match="do not fit"):
        bitgnn.load(tmp_path, nn.ModuleDict({"attention": nn.ModuleDict(), "up": nn.Linear(1, 1)}))
    # Nothing of this model stands where the layers inside of attention belong.
    with pytest.raises(ValueError, match=r"another model, .*attention"):
        bitgnn.load(tmp_path, nn.Linear(3, 3))
    description = json.loads((tmp_path / "model.json").read_text())
    for change in ({"kind": "conv"}, {"activation": "int8"}, {"in_features": 4000}):
        altered = copy.deepcopy(description)
        altered["layers"]["up"] |= change
        (tmp_path / "model.json").write_text(json.dumps(sealed(altered)))
        with pytest.raises(ValueError, match="damaged checkpoint"):
            bitgnn.load(tmp_path, Block())


def test_what_cannot_be_frozen_says_why() -> None:
    model, _, _ = trained_block()
    with pytest.raises(ValueError, match="plan, output and features must be None"):
        bitgnn.freeze(model, "bin")
    for change, message in (
        (lambda m: setattr(m.up, "level", 2), "up must have level 1, got 2"),
        (lambda m: m.up.input_quantizer.scale.data.fill_(math.nan), "scale of up must be set and"),
        (lambda m: m.up.weight.data[0].fill_(math.nan), "the weight of up holds NaN"),
        (lambda m: m.up.bias.data.fill_(math.inf), "the bias of up holds NaN or infinity"),
        (lambda m: setattr(m, "up", BWTALinear(48, 70)), "was never set"),
        (lambda m: setattr(m, "up", BWTALinear(48, 70, activation="sign")), "was never set"),
    ):
        broken = copy.deepcopy(model)
        change(broken)
        with pytest.raises(ValueError, match=message):
            bitgnn.freeze(broken)
    with pytest.raises(ValueError, match="every BWTA layer of BWTALinear is at level None"):
        bitgnn.freeze(BWTALinear(3, 3, level=None))
    frozen = bitgnn.freeze(model)
    with pytest.raises(ValueError, match=r"input must be \[\*, 48\], got \[2, 47\]"):
        frozen.model.up(torch.randn(2, 47))
    with pytest.raises(TypeError, match="model is frozen already, a FrozenModel"):
        bitgnn.freeze(frozen)
