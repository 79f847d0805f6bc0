"""BWTA in transformers of Hugging Face, random weights: as in floats bit for bit, or one error."""

import copy

import pytest
import torch
from pretrained import batch, bert, llama, transformers
from torch import nn

import bitgnn
from bitgnn import BWTAConfig
from bitgnn.convert import report_of
from bitgnn.nn import BWTAAttention, BWTALinear
from bitgnn.nn.attention.pretrained import attend

SMALL = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SMALL |= {"num_key_value_heads": 1, "intermediate_size": 48}


def t5() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "d_model": 32, "d_kv": 16, "d_ff": 64}
    config = transformers.T5Config(**sizes, num_layers=1, num_heads=2)
    return transformers.T5ForConditionalGeneration(config).eval()


def gemma2() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.Gemma2Config(**SMALL, head_dim=16, pad_token_id=0)
    return transformers.Gemma2ForCausalLM(config).eval()


def mistral() -> nn.Module:
    torch.manual_seed(0)
    return transformers.MistralForCausalLM(
        transformers.MistralConfig(**SMALL, sliding_window=4)
    ).eval()


def forms(model: nn.Module, data=None, **options: object) -> tuple[nn.Module, nn.Module]:
    """The BWTA model, its scales started, and its frozen form, which is equal on the data."""
    data = batch() if data is None else data
    trained = bitgnn.binarize(model, BWTAConfig(calibration=data, **options))
    frozen = bitgnn.freeze(trained)
    assert torch.equal(frozen(**data).logits, trained(**data).logits)
    return trained, frozen


def check_saved(frozen: nn.Module, folder, data: dict[str, torch.Tensor]) -> None:
    bitgnn.save(frozen, folder)
    loaded = bitgnn.load(folder)
    assert torch.equal(loaded(**data).logits, frozen(**data).logits)
    assert loaded.report == frozen.report
    assert loaded.nbytes == frozen.nbytes


def names_of(model: nn.Module, kind: type) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, kind)]


def test_bert(tmp_path) -> None:
    model, data = bert(), batch()
    binary, frozen = forms(model)
    assert len(names_of(binary, BWTALinear)) == 2 * 6
    assert len(names_of(binary, BWTAAttention)) == 2
    assert {"classifier", "bert.pooler.dense"} <= set(report_of(binary).left)
    assert model.config._attn_implementation != "bwta"
    out = binary(**data).logits
    # What is padding changes nothing.
    other = {**data, "input_ids": data["input_ids"].masked_fill(data["attention_mask"] == 0, 9)}
    assert torch.equal(frozen(**other).logits, out)
    check_saved(frozen, tmp_path, data)
    seen = data["attention_mask"][:, None, None, :].bool().expand(-1, 1, 11, -1)
    floats = torch.zeros(3, 1, 11, 11).masked_fill(~seen, torch.finfo(torch.float32).min)
    for mask in (seen, floats):
        assert torch.equal(frozen(data["input_ids"], attention_mask=mask).logits, out)
    data["attention_mask"][2] = 0  # a row without keys
    assert torch.equal(frozen(**data).logits, binary(**data).logits)
    assert frozen(**data).logits.isfinite().all()
    binary.train()(**data, labels=torch.tensor([0, 1, 2])).loss.backward()
    quantizers = [p for n, p in binary.named_parameters() if n.endswith("quantizer.scale")]
    assert len(quantizers) == 12 + 8
    assert all(p.grad is not None and p.grad.isfinite() for p in quantizers)


@pytest.mark.parametrize("make", [bert, llama])
def test_full_precision_core_is_what_transformers_computes(make) -> None:
    model, data = make(), batch()
    binary = bitgnn.binarize(model, BWTAConfig(calibration=data))
    for module in binary.modules():
        if isinstance(module, BWTALinear | BWTAAttention):
            module.level = None
    got, expected = binary(**data).logits, model(**data).logits
    if got.dim() == 3:
        got, expected = (x[data["attention_mask"].bool()] for x in (got, expected))
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(("share", "count"), [(0.10, 2), (0.15, 3), (0.30, 6)])
def test_llama_by_share(share, count, tmp_path) -> None:
    binary, frozen = forms(llama(), layers=share)
    assert len(names_of(binary, BWTALinear)) == count
    assert not names_of(binary, BWTAAttention)
    check_saved(frozen, tmp_path, batch())


def test_llama_whole_generates(tmp_path) -> None:
    data = batch()
    _, frozen = forms(llama(tie_word_embeddings=True))
    prompt = data["input_ids"][:1, :5]
    tokens = frozen.model.generate(prompt, max_new_tokens=6, do_sample=False)
    # The cache changes nothing: each token is what the whole sequence predicts.
    for n in range(5, tokens.size(1)):
        assert int(frozen(tokens[:, :n]).logits[0, -1].argmax()) == int(tokens[0, n])
    check_saved(frozen, tmp_path, data)


def test_sliding_windows_are_masks() -> None:
    ids = torch.randint(1, 50, (2, 12))
    binary, _ = forms(mistral(), {"input_ids": ids})
    out = binary(ids).logits
    changed = ids.clone()
    changed[:, 0] = (changed[:, 0] + 1) % 50
    # Two layers of windows of 4 reach 6 positions back.
    assert torch.equal(binary(changed).logits[:, 7:], out[:, 7:])
    assert not torch.equal(binary(changed).logits[:, :4], out[:, :4])


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
def test_packed_sequences_do_not_see_each_other(frozen) -> None:
    model = forms(llama())[frozen]
    ids = batch()["input_ids"][:1]
    positions = torch.tensor([[*range(5), *range(6)]])
    with torch.no_grad():
        both = model(input_ids=ids, position_ids=positions, use_cache=False).logits
        for part in (slice(0, 5), slice(5, 11)):
            alone = model(input_ids=ids[:, part], use_cache=False).logits
            torch.testing.assert_close(both[:, part], alone)


@pytest.mark.parametrize("masked", [False, True])
def test_caches_of_a_fixed_length(masked) -> None:
    data = batch() if masked else {"input_ids": batch()["input_ids"]}
    options = {**data, "max_new_tokens": 6, "do_sample": False}
    trained, frozen = forms(llama())
    expected = trained.generate(**options)
    for model in (trained, frozen.model):
        for cache in (None, "static"):
            assert torch.equal(model.generate(**options, cache_implementation=cache), expected)


def test_padding_on_the_left_changes_nothing() -> None:
    model, data = forms(llama())[1].model, batch()
    data["attention_mask"] = data["attention_mask"].flip(1)
    options = {"max_new_tokens": 5, "do_sample": False}
    together = model.generate(**data, **options)
    alone = model.generate(data["input_ids"][1:2, 4:], **options)
    assert together[1, 11:].tolist() == alone[0, 7:].tolist()


@pytest.mark.parametrize("make", [bert, llama])
def test_attentions_are_handed_out(make) -> None:
    (trained, frozen), data = forms(make()), batch()
    expected = trained(**data, output_attentions=True).attentions
    assert len(expected) == trained.config.num_hidden_layers
    with torch.no_grad():
        found = frozen(**data, output_attentions=True).attentions
    for ours, weights in zip(found, expected, strict=True):
        assert weights.shape == (3, trained.config.num_attention_heads, 11, 11)
        assert torch.equal(ours, weights)
        # Boolean weights times one scale, none of them on padding.
        assert weights.unique().numel() <= 2
        hidden = data["attention_mask"][:, None, None, :] == 0
        assert not weights.masked_select(hidden.expand_as(weights)).any()


def test_what_has_no_ternary_form_is_refused() -> None:
    _, frozen = forms(bert())
    data = batch()
    with pytest.raises(ValueError, match="attention_mask must hold bools, or 0 and floats of at"):
        frozen(data["input_ids"], attention_mask=torch.rand(3, 1, 11, 11))
    caller = frozen.model.bert.encoder.layer[0].attention.self
    x = [torch.randn(1, 3, 4, 16) for _ in range(3)]
    for name, value in (
        ("softcap", 30.0),
        ("position_bias", torch.zeros(1, 3, 4, 4)),
        ("s_aux", torch.zeros(3)),
    ):
        with pytest.raises(ValueError, match=f"{name} has no ternary form.*attention=False"):
            attend(caller, *x, None, **{name: value})
    data["decoder_input_ids"] = data["input_ids"][:, :3]
    with pytest.raises(ValueError, match="position_bias has no ternary form"):
        bitgnn.binarize(t5(), BWTAConfig(calibration=data))


@pytest.mark.parametrize(
    ("make", "options", "dtype"),
    [
        (t5, {"attention": False}, None),
        (gemma2, {"attention": False}, None),
        *((make, {}, dtype) for make in (bert, llama) for dtype in (torch.half, torch.bfloat16)),
    ],
)
def test_biases_and_caps_in_floats_and_models_in_halves(make, options, dtype, tmp_path) -> None:
    data, model = batch(), make().to(dtype)
    if make is t5:
        data["decoder_input_ids"] = data["input_ids"][:, :3]
    trained, frozen = forms(model, data, **options)
    expected = trained(**data).logits
    assert expected.dtype == (dtype or torch.float32)
    check_saved(frozen, tmp_path, data)
    for copied in (copy.deepcopy(frozen), copy.deepcopy(trained)):
        assert torch.equal(copied(**data).logits, expected)


def test_states_and_training_start_scales() -> None:
    data = batch()
    trained, _ = forms(bert())
    floats, state = set(bert().state_dict()), trained.state_dict()
    assert floats <= state.keys()
    assert all(name.endswith("quantizer.scale") for name in state.keys() - floats)
    other = bitgnn.binarize(bert(), BWTAConfig())
    with pytest.raises(ValueError, match="the scale is not set"):
        other(**data)
    fresh = copy.deepcopy(other)
    fresh.train()(**data)
    assert fresh.eval()(**data).logits.isfinite().all()
    missing, unexpected = other.load_state_dict(state)
    assert not missing
    assert not unexpected
    assert torch.equal(other.eval()(**data).logits, trained(**data).logits)


def test_attention_modules_without_a_core_attend_in_floats() -> None:
    class Caller(nn.Module):
        is_causal = True

    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    out, weights = attend(Caller().eval(), q, k, v, None, scaling=0.3)
    expected = nn.functional.scaled_dot_product_attention(
        q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), is_causal=True, scale=0.3
    )
    torch.testing.assert_close(out, expected.transpose(1, 2))
    assert weights is None
