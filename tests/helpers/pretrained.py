"""Small transformers of Hugging Face with random weights, and a batch of tokens for them."""

import pytest
import torch

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed (pip install bitgnn[transformers])"
)


def bert(**options: object) -> torch.nn.Module:
    """A classifier of two layers in evaluation."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=96,
        num_labels=3,
        **options,
    )
    return transformers.BertForSequenceClassification(config).eval()


def llama(**options: object) -> torch.nn.Module:
    """A decoder of three layers with grouped queries in evaluation."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=96,
        max_position_embeddings=64,
        pad_token_id=0,
        **options,
    )
    return transformers.LlamaForCausalLM(config).eval()


def batch() -> dict[str, torch.Tensor]:
    """Three rows of eleven tokens, the second padded behind its seventh."""
    torch.manual_seed(1)
    ids = torch.randint(1, 50, (3, 11))
    mask = torch.ones(3, 11, dtype=torch.long)
    mask[1, 7:] = 0
    return {"input_ids": ids, "attention_mask": mask}
