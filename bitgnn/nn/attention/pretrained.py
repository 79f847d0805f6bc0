"""Attention of Hugging Face transformers as BWTA, through its interface of attention functions."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.nn.attention.bwta_attention import BWTAAttention, visible

CORE = "bwta_attention"
"""Name of the module that attends, inside of a module of the library that calls it."""
IMPLEMENTATION = "bwta"
"""Name of the attention function in the library's registry."""
HIDDEN = -1e4
"""The library's masks of floats hide keys by this or less."""
BIASES = ("softcap", "position_bias", "s_aux")
"""Options of attention functions that cap scores, or add to them or to their sum."""


def is_pretrained(model: nn.Module) -> bool:
    """True if a model is one of the library's."""
    library = sys.modules.get("transformers")
    return library is not None and isinstance(model, library.PreTrainedModel)


def attention_modules(model: nn.Module) -> dict[str, Any]:
    """Modules that call an attention function of the library, by name."""
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

    Modules named in ``skip`` keep floats; the names of the others are returned. ``sign`` is for
    binary queries, keys and values rather than ternary ones.

    Raises:
        ValueError: the model has no such modules, or does not let its function be chosen.
    """
    modules = attention_modules(model)
    if not modules:
        raise ValueError(
            f"binarize: {type(model).__name__} has no attention modules that choose a function"
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
    """Make a model of the library call :func:`attend` in every attention module it has."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(IMPLEMENTATION, attend)
    AttentionMaskInterface.register(IMPLEMENTATION, mask_of)
    model.set_attn_implementation(IMPLEMENTATION)
    if model.config._attn_implementation != IMPLEMENTATION:
        raise ValueError(
            f"binarize: {type(model).__name__} does not let its attention function be chosen"
        )


def mask_of(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Any = None,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    **options: Any,
) -> Tensor | None:
    """The library's mask function: bool ``[B, L]`` or None where the module's causality says all.

    Masks of any other kind (packed sequences, windows shorter than the keys, chunks, caches with
    room for keys to come) are written out, ``[B, 1, N, L]``. The signature is the library's.
    """
    from transformers import masking_utils as library

    whole = (library.causal_mask_function, library.bidirectional_mask_function)
    within_window = local_size is not None and kv_length <= local_size
    plain = mask_function in (None, *whole) or (
        within_window and (allow_is_causal_skip or allow_is_bidirectional_skip)
    )
    # A tensor is the offset of a cache of fixed length, whose last keys are not there yet.
    ends_alike = isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length
    if plain and (ends_alike or mask_function is library.bidirectional_mask_function):
        if attention_mask is None:
            return None
        room = kv_offset + kv_length - attention_mask.shape[-1]
        seen = functional.pad(attention_mask.bool(), (0, max(room, 0)))
        return seen[:, kv_offset : kv_offset + kv_length]
    function = library.causal_mask_function if mask_function is None else mask_function
    written: Tensor | None = library.sdpa_mask(
        batch_size, q_length, kv_length, q_offset, kv_offset, function, attention_mask, local_size,
        allow_is_causal_skip=False, allow_is_bidirectional_skip=False, **options,
    )  # fmt: skip
    return written


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
    output_attentions: bool = False,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """The library's attention function: ``[B, N, H, D]`` by the :data:`CORE` of the module.

    ``query`` is ``[B, H, N, D]``, keys and values ``[B, Hk, L, D]``. ``attention_mask`` is
    ``[B, L]`` or ``[B, 1, N, L]`` of :func:`mask_of`, or ``[B, 1, N, L]`` of the caller's own:
    bool, or floats of 0 and of at most :data:`HIDDEN`. ``scaling`` is the core's already. With
    ``output_attentions`` the weights ``[B, H, N, L]`` that values are multiplied by come, too.

    Raises:
        ValueError: scores are capped or biased, which has no ternary form.
    """
    for name in BIASES:
        if options.get(name) is not None:
            raise ValueError(
                f"attention: {name} has no ternary form, must be None; binarize with "
                "attention=False leaves attention in floats"
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
        causal = False
        message = (
            f"attention: attention_mask must hold bools, or 0 and floats of at most {HIDDEN}: "
            "ternary scores take no bias"
        )
        is_float = attention_mask.is_floating_point()
        allowed = visible(attention_mask, HIDDEN, message) if is_float else attention_mask.bool()
    queries, keys = query.size(2), key.size(2)
    if sliding_window is not None and causal and keys > sliding_window:
        # The last keys up to each query's own.
        ones = query.new_ones(queries, keys, dtype=torch.bool)
        allowed = ones.triu(keys - queries - sliding_window + 1)
    core.check(query, key, value, seen, allowed)
    attended = core.attend(query, key, value, seen, allowed, causal, output_attentions)
    return attended.out.transpose(1, 2), attended.weights if output_attentions else None
