"""BWTA in transformers of Hugging Face, random weights: forward, masks, generation, checkpoints."""

import pytest
import torch
from pretrained import batch, bert, llama, transformers

import bitgnn
from bitgnn.convert import report_of
from bitgnn.nn import BWTAAttention, BWTALinear
from bitgnn.nn.attention.pretrained import attend


def test_bert(tmp_path) -> None:
    model = bert()
    data = batch()
    binary = bitgnn.binarize(model, bitgnn.BWTAConfig(calibration=data))
    linear = [name for name, m in binary.named_modules() if isinstance(m, BWTALinear)]
    cores = [name for name, m in binary.named_modules() if isinstance(m, BWTAAttention)]
    assert len(linear) == 2 * 6
    assert len(cores) == 2
    assert {"classifier", "bert.pooler.dense"} <= set(report_of(binary).left)
    assert model.config._attn_implementation != "bwta"
    out = binary(**data).logits
    assert out.isfinite().all()
    frozen = bitgnn.freeze(binary)
    assert torch.equal(frozen(**data).logits, out)
    # What is padding changes nothing.
    other = {**data, "input_ids": data["input_ids"].masked_fill(data["attention_mask"] == 0, 9)}
    assert torch.equal(frozen(**other).logits, out)
    bitgnn.save(frozen, tmp_path)
    loaded = bitgnn.load(tmp_path)
    assert torch.equal(loaded(**data).logits, out)
    assert loaded.report == frozen.report
    binary.train()
    binary(**data, labels=torch.tensor([0, 1, 2])).loss.backward()
    quantizers = [p for n, p in binary.named_parameters() if n.endswith("quantizer.scale")]
    assert len(quantizers) == 12 + 8
    assert all(p.grad is not None and p.grad.isfinite() for p in quantizers)


def test_full_precision_core_is_what_transformers_computes() -> None:
    for make in (bert, llama):
        model = make()
        data = batch()
        binary = bitgnn.binarize(model, bitgnn.BWTAConfig(calibration=data))
        for module in binary.modules():
            if isinstance(module, BWTALinear | BWTAAttention):
                module.level = None
        seen = data["attention_mask"].bool()
        got, expected = binary(**data).logits, model(**data).logits
        if got.dim() == 3:
            got, expected = got[seen], expected[seen]
        torch.testing.assert_close(got, expected)


def test_llama_by_share(tmp_path) -> None:
    model = llama()
    data = batch()
    for share, count in ((0.10, 2), (0.15, 3), (0.30, 6)):
        binary = bitgnn.binarize(model, bitgnn.BWTAConfig(layers=share, calibration=data))
        linear = [name for name, m in binary.named_modules() if isinstance(m, BWTALinear)]
        assert len(linear) == count
        assert not any(isinstance(m, BWTAAttention) for m in binary.modules())
        frozen = bitgnn.freeze(binary)
        assert torch.equal(frozen(**data).logits, binary(**data).logits)
    bitgnn.save(frozen, tmp_path)
    assert torch.equal(bitgnn.load(tmp_path)(**data).logits, binary(**data).logits)


def test_llama_whole_generates(tmp_path) -> None:
    model = llama(tie_word_embeddings=True)
    data = batch()
    binary = bitgnn.binarize(model, bitgnn.BWTAConfig(calibration=data))
    frozen = bitgnn.freeze(binary)
    assert torch.equal(frozen(**data).logits, binary(**data).logits)
    prompt = data["input_ids"][:1, :5]
    tokens = frozen.model.generate(prompt, max_new_tokens=6, do_sample=False)
    # The cache changes nothing: each token is what the whole sequence predicts.
    for n in range(5, tokens.size(1)):
        assert int(frozen(tokens[:, :n]).logits[0, -1].argmax()) == int(tokens[0, n])
    bitgnn.save(frozen, tmp_path)
    loaded = bitgnn.load(tmp_path)
    assert torch.equal(loaded(**data).logits, frozen(**data).logits)
    assert loaded.nbytes == frozen.nbytes


def test_masks_of_ones_own() -> None:
    model = bert()
    data = batch()
    binary = bitgnn.binarize(model, bitgnn.BWTAConfig(calibration=data))
    frozen = bitgnn.freeze(binary)
    expected = frozen(**data).logits
    seen = data["attention_mask"][:, None, None, :].bool().expand(-1, 1, 11, -1)
    floats = torch.zeros(3, 1, 11, 11).masked_fill(~seen, torch.finfo(torch.float32).min)
    for mask in (seen, floats):
        assert torch.equal(frozen(data["input_ids"], attention_mask=mask).logits, expected)


def test_sliding_windows_are_masks() -> None:
    torch.manual_seed(0)
    config = transformers.MistralConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=48,
        sliding_window=4,
    )
    model = transformers.MistralForCausalLM(config).eval()
    ids = torch.randint(1, 50, (2, 12))
    binary = bitgnn.binarize(model, bitgnn.BWTAConfig(calibration=(ids,)))
    out = binary(ids).logits
    assert torch.equal(bitgnn.freeze(binary)(ids).logits, out)
    changed = ids.clone()
    changed[:, 0] = (changed[:, 0] + 1) % 50
    # Two layers of windows of 4 reach 6 positions back.
    assert torch.equal(binary(changed).logits[:, 7:], out[:, 7:])
    assert not torch.equal(binary(changed).logits[:, :4], out[:, :4])


def test_without_calibration_training_starts_the_scales() -> None:
    binary = bitgnn.binarize(bert(), bitgnn.BWTAConfig())
    data = batch()
    with pytest.raises(ValueError, match="the scale is not set"):
        binary(**data)
    binary.train()(**data)
    assert binary.eval()(**data).logits.isfinite().all()


def test_hidden_rows_and_bad_scores() -> None:
    binary = bitgnn.binarize(bert(), bitgnn.BWTAConfig(calibration=batch()))
    data = batch()
    data["attention_mask"][2] = 0
    frozen = bitgnn.freeze(binary)
    assert torch.equal(frozen(**data).logits, binary(**data).logits)
    assert frozen(**data).logits.isfinite().all()
    core = binary.bert.encoder.layer[0].attention.self
    x = [torch.randn(1, 3, 4, 16) for _ in range(3)]
    with pytest.raises(ValueError, match="softcap"):
        attend(core, *x, None, softcap=30.0)


def test_attention_modules_without_a_core_attend_in_floats() -> None:
    class Caller(torch.nn.Module):
        is_causal = True

    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    out, weights = attend(Caller().eval(), q, k, v, None, scaling=0.3)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), is_causal=True, scale=0.3
    )
    torch.testing.assert_close(out, expected.transpose(1, 2))
    assert weights is None
