"""Masks, caches and types of transformers of Hugging Face in BWTA: as in floats, or one error."""

import copy

import pytest
import torch
from pretrained import batch, bert, llama, transformers

import bitgnn
from bitgnn.nn.attention.pretrained import attend


def forms(model: torch.nn.Module) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The BWTA model, its scales started, and its frozen form."""
    binary = bitgnn.binarize(model, bitgnn.BWTAConfig(calibration=batch()))
    return binary, bitgnn.freeze(binary).model


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
    for model in (trained, frozen):
        for cache in (None, "static"):
            assert torch.equal(model.generate(**options, cache_implementation=cache), expected)


def test_padding_on_the_left_changes_nothing() -> None:
    _, model = forms(llama())
    data = batch()
    data["attention_mask"] = data["attention_mask"].flip(1)
    options = {"max_new_tokens": 5, "do_sample": False}
    together = model.generate(**data, **options)
    alone = model.generate(data["input_ids"][1:2, 4:], **options)
    assert together[1, 11:].tolist() == alone[0, 7:].tolist()


@pytest.mark.parametrize("make", [bert, llama])
def test_attentions_are_handed_out(make) -> None:
    trained, frozen = forms(make())
    data = batch()
    seen = data["attention_mask"].bool()
    expected = trained(**data, output_attentions=True).attentions
    assert len(expected) == trained.config.num_hidden_layers
    with torch.no_grad():
        found = frozen(**data, output_attentions=True).attentions
    for ours, weights in zip(found, expected, strict=True):
        assert weights.shape == (3, trained.config.num_attention_heads, 11, 11)
        assert torch.equal(ours, weights)
        # Boolean weights times one scale, none of them on padding.
        assert weights.unique().numel() <= 2
        assert not weights.masked_select(~seen[:, None, None, :].expand_as(weights)).any()


def test_what_has_no_ternary_form_is_refused() -> None:
    _, model = forms(bert())
    data = batch()
    with pytest.raises(ValueError, match="attention_mask must hold bools, or 0 and floats of at"):
        model(data["input_ids"], attention_mask=torch.rand(3, 1, 11, 11))
    caller = model.bert.encoder.layer[0].attention.self
    x = [torch.randn(1, 3, 4, 16) for _ in range(3)]
    for name, value in (
        ("softcap", 30.0),
        ("position_bias", torch.zeros(1, 3, 4, 4)),
        ("s_aux", torch.zeros(3)),
    ):
        with pytest.raises(ValueError, match=f"{name} has no ternary form.*attention=False"):
            attend(caller, *x, None, **{name: value})
    config = transformers.T5Config(
        vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2
    )
    biased = transformers.T5ForConditionalGeneration(config)
    with pytest.raises(ValueError, match="position_bias has no ternary form"):
        bitgnn.binarize(
            biased,
            bitgnn.BWTAConfig(
                calibration={**data, "decoder_input_ids": data["input_ids"][:, :3]},
            ),
        )


@pytest.mark.parametrize("name", ["T5", "Gemma2"])
def test_attention_with_biases_or_caps_stays_in_floats(name, tmp_path) -> None:
    torch.manual_seed(0)
    data = batch()
    if name == "T5":
        config = transformers.T5Config(
            vocab_size=50, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2
        )
        model = transformers.T5ForConditionalGeneration(config).eval()
        data["decoder_input_ids"] = data["input_ids"][:, :3]
    else:
        config = transformers.Gemma2Config(
            vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, head_dim=16, intermediate_size=48, pad_token_id=0,
        )  # fmt: skip
        model = transformers.Gemma2ForCausalLM(config).eval()
    trained = bitgnn.binarize(model, bitgnn.BWTAConfig(attention=False, calibration=data))
    expected = trained(**data).logits
    frozen = bitgnn.freeze(trained)
    bitgnn.save(frozen, tmp_path)
    assert torch.equal(frozen(**data).logits, expected)
    assert torch.equal(bitgnn.load(tmp_path)(**data).logits, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("make", [bert, llama])
def test_models_in_half_precision(make, dtype, tmp_path) -> None:
    data = batch()
    trained = bitgnn.binarize(make().to(dtype), bitgnn.BWTAConfig(calibration=data))
    expected = trained(**data).logits
    assert expected.dtype == dtype
    frozen = bitgnn.freeze(trained)
    bitgnn.save(frozen, tmp_path)
    for model in (frozen, bitgnn.load(tmp_path), copy.deepcopy(frozen), copy.deepcopy(trained)):
        assert torch.equal(model(**data).logits, expected)


def test_states_of_trained_models_load_into_new_ones() -> None:
    data = batch()
    trained = bitgnn.binarize(bert(), bitgnn.BWTAConfig(calibration=data))
    floats, state = set(bert().state_dict()), trained.state_dict()
    assert floats <= state.keys()
    assert all(name.endswith("quantizer.scale") for name in state.keys() - floats)
    other = bitgnn.binarize(bert(), bitgnn.BWTAConfig())
    missing, unexpected = other.load_state_dict(state)
    assert not missing
    assert not unexpected
    assert torch.equal(other.eval()(**data).logits, trained(**data).logits)
