"""Attention of Hugging Face transformers as BWTA, through its interface of attention functions."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn._checks import check_value
from bitgnn.nn.bwta_attention import BWTAAttention

__all__ = [
    "CORE",
    "add_attention",
    "attention_modules",
    "is_pretrained",
    "use_implementation",
]

CORE = "bwta_attention"
"""Name of the module that attends, inside of a module of the library that calls it."""
IMPLEMENTATION = "bwta"
"""Name of the attention function in the library's registry."""


def is_pretrained(model: nn.Module) -> bool:
    """Whether a model is one of the library's."""
    library = sys.modules.get("transformers")
    return library is not None and isinstance(model, library.PreTrainedModel)


def attention_modules(model: nn.Module) -> dict[str, Any]:
    """Modules that call an attention function of the library, by name.

    They have the factor of scores and say whether they are causal.
    """
    return {
        name: module
        for name, module in model.named_modules()
        if hasattr(module, "scaling")
        and hasattr(module, "is_causal")
        and hasattr(module, "config")
        and any(isinstance(child, nn.Linear) for child in module.children())
    }


def add_attention(model: Any, skip: tuple[str, ...], level: int | None, sign: bool) -> list[str]:
    """Give every attention module of a model a :class:`BWTAAttention`, changed in place.

    Args:
        model: of the library.
        skip: names of attention modules that keep floats.
        level: of the activations.
        sign: binary queries, keys and values rather than ternary ones.

    Returns:
        Names of the modules, less those of ``skip``.

    Raises:
        ValueError: the model has no such modules, or does not let its function be chosen.
    """
    modules = attention_modules(model)
    check_value(
        bool(modules),
        lambda: f"binarize: {type(model).__name__} has no attention modules that choose a function",
    )
    for name, module in modules.items():
        core = BWTAAttention(
            activation="sign" if sign else "ternary",
            level=None if name in skip else level,
            scale=float(module.scaling),
            device=next(module.parameters()).device,
        )
        setattr(module, CORE, core.train(module.training))
    use_implementation(model)
    return [name for name in modules if name not in skip]


def use_implementation(model: Any) -> None:
    """Make a model of the library call :func:`attend` in every attention module.

    Raises:
        ValueError: it does not let its function be chosen.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(IMPLEMENTATION, attend)
    AttentionMaskInterface.register(IMPLEMENTATION, key_mask)
    model.set_attn_implementation(IMPLEMENTATION)
    check_value(
        model.config._attn_implementation == IMPLEMENTATION,
        lambda: f"binarize: {type(model).__name__} does not let its attention function be chosen",
    )


def key_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Any = None,
    attention_mask: Tensor | None = None,
    **options: Any,
) -> Tensor | None:
    """Which keys there are, bool ``[B, L]`` or None: causality is the attention module's to say.

    The signature is the library's.

    Raises:
        ValueError: a cache has room for more keys than there are positions.
    """
    if attention_mask is None:
        return None
    check_value(
        attention_mask.shape[-1] >= kv_length,
        lambda: (
            f"attention_mask must have {kv_length} positions, got {attention_mask.shape[-1]}; "
            "caches of a fixed length have no BWTA form"
        ),
    )
    return attention_mask[:, -kv_length:].bool() if kv_length else attention_mask[:, :0].bool()


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The library's attention function: ``[B, N, H, D]`` by the module's :data:`CORE`.

    Args:
        module: that calls.
        query: ``[B, H, N, D]``.
        key: ``[B, Hk, L, D]``.
        value: ``[B, Hk, L, D]``.
        attention_mask: ``[B, L]`` of :func:`key_mask`, or ``[B, 1, N, L]`` of the caller's own,
            bool or floats (hidden where below 0).
        scaling: the factor of the scores, which the core has.
        dropout: probability of dropping a weight.
        is_causal: overrides what the module says.
        sliding_window: keys that a query may look back at.
        softcap: refused.
        options: of other functions.

    Raises:
        ValueError: scores are capped, which has no ternary form.
    """
    check_value(
        softcap is None, lambda: f"attention: softcap {softcap} has no ternary form, must be None"
    )
    core: Any = getattr(module, CORE, None)
    if core is None:
        # A module that calls the function and was not known to: full precision.
        core = BWTAAttention(level=None, scale=scaling).train(module.training)
    if core.training:
        core.dropout = dropout
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    seen, allowed = attention_mask, None
    if attention_mask is not None and attention_mask.dim() == 4:
        seen = None
        is_bias = attention_mask.is_floating_point()
        allowed = attention_mask >= 0 if is_bias else attention_mask.bool()
        causal = False
    if sliding_window is not None and causal and key.size(2) > sliding_window:
        allowed = recent_keys(query, key, sliding_window)
    out = core(query, key, value, seen, allowed=allowed, causal=causal)
    return out.transpose(1, 2), None


def recent_keys(query: Tensor, key: Tensor, window: int) -> Tensor:
    """Bool ``[N, L]``: the ``window`` last keys up to each query's own."""
    queries, keys = query.size(2), key.size(2)
    ones = query.new_ones(queries, keys, dtype=torch.bool)
    return ones.triu(keys - queries - window + 1)
