"""Prefill and decode speed of decoders with a share of their linear layers on bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from bitgnn.bench.cuda_timing import compare_on_cuda
from bitgnn.models.decoder import Decoder

__all__ = ["DecoderSpeed", "decoder_speeds"]


@dataclass(frozen=True)
class DecoderSpeed:
    """Times of one decoder, medians.

    Attributes:
        batch: contexts side by side.
        prompt: tokens of a prompt.
        prefill_seconds: time of a prompt, all contexts.
        decode_seconds: time of one further token behind it, all contexts.
        bytes: of parameters and buffers.
        captured: whether both were replayed as CUDA graphs.
    """

    batch: int
    prompt: int
    prefill_seconds: float
    decode_seconds: float
    bytes: int
    captured: bool


@torch.inference_mode()
def decoder_speeds(
    models: Mapping[str, Decoder], batch: int = 1, prompt: int | None = None
) -> dict[str, DecoderSpeed]:
    """Time prompts and single tokens of several decoders in turns, caches warm.

    Args:
        models: by name, in evaluation mode on the current CUDA device, of one length.
        batch: contexts side by side.
        prompt: tokens of a prompt; None for all but one of a context.

    Raises:
        ValueError: there are no models, or the prompt leaves no room for a token.
    """
    if not models:
        raise ValueError("decoder_speeds: models must hold at least one")
    functions = {}
    for name, model in models.items():
        length = model.length - 1 if prompt is None else prompt
        if not 0 < length < model.length:
            raise ValueError(
                f"decoder_speeds: prompt must be from 1 to {model.length - 1}, got {length}"
            )
        device = model.tokens.weight.device
        ids = torch.randint(model.tokens.num_embeddings, (batch, length), device=device)
        cache = model.new_cache(batch)

        def prefill(model=model, ids=ids, cache=cache):  # type: ignore[no-untyped-def]
            cache.position.zero_()
            return model.step(ids, cache)

        def decode(model=model, ids=ids, cache=cache, length=length):  # type: ignore[no-untyped-def]
            cache.position.fill_(length)
            return model.step(ids[:, :1], cache)

        functions[f"{name} prefill"], functions[f"{name} decode"] = prefill, decode
    times, captured = compare_on_cuda(functions)
    return {
        name: DecoderSpeed(
            batch,
            model.length - 1 if prompt is None else prompt,
            times[f"{name} prefill"].median,
            times[f"{name} decode"].median,
            _bytes(model),
            captured[f"{name} prefill"] and captured[f"{name} decode"],
        )
        for name, model in models.items()
    }


def _bytes(model: nn.Module) -> int:
    tensors = {t.data_ptr(): t.nbytes for t in (*model.parameters(), *model.buffers())}
    return sum(tensors.values())
