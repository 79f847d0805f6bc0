"""Which modules of a model can become BWTA, and their BWTA forms."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bitgnn.convert.walker import outermost
from bitgnn.inference.bwta.architecture import multihead_options
from bitgnn.nn import ActivationQuantizer, BWTALinear, BWTAMultiheadAttention
from bitgnn.nn.activation_quantizer import Kind

__all__ = [
    "bwta_form",
    "candidates",
    "eligible",
    "is_bwta",
    "new_form",
    "start_scales",
]


def is_bwta(module: nn.Module) -> bool:
    """Whether a module is a BWTA form already."""
    return isinstance(module, BWTALinear | BWTAMultiheadAttention)


def candidates(model: nn.Module) -> dict[str, nn.Module]:
    """Linear and multi-head attention modules by name, those inside of others left out."""
    return outermost(
        model,
        lambda module: (
            isinstance(module, nn.MultiheadAttention | BWTALinear) or type(module) is nn.Linear
        ),
    )


def eligible(model: nn.Module) -> tuple[dict[str, nn.Module], dict[str, str]]:
    """Candidates that are neither first nor last layers, and why the others are not.

    In a model with a ModuleList the layers inside of one are; else all but the first and the last,
    or, behind an embedding, all but the last.
    """
    known = candidates(model)
    lists = [f"{n}." for n, m in model.named_modules() if isinstance(m, nn.ModuleList)]
    body = {name for name in known if name.startswith(tuple(lists))} if lists else set()
    if not body:
        names = list(known)
        embeds = any(isinstance(m, nn.Embedding) for m in model.modules())
        body = set(names[:-1] if embeds else names[1:-1])
    reasons = {
        name: "a first or last layer stays in full precision unless named"
        for name in known
        if name not in body
    }
    return {name: module for name, module in known.items() if name in body}, reasons


def bwta_form(module: Any, activation: Kind, level: int | None) -> nn.Module:
    """The BWTA form of a module: itself at that level if it is one, else :func:`new_form`."""
    if not is_bwta(module):
        return new_form(module, activation, level)
    module.level = level
    return module


def new_form(module: Any, activation: Kind, level: int | None) -> nn.Module:
    """A BWTA layer with a module's own parameters, not copies of them, and scales not set.

    Args:
        module: of :func:`candidates`.
        activation: of a linear layer; a BWTA one's own otherwise.
        level: of the activations.
    """
    new: nn.Module
    kind: Kind
    if isinstance(module, nn.MultiheadAttention):
        kind = "sign" if activation == "sign" else "ternary"
        if isinstance(module, BWTAMultiheadAttention):
            kind = module.attention.activation
        new = BWTAMultiheadAttention(
            **multihead_options(module), device="meta", activation=kind, level=level
        )
    else:
        kind = module.activation if isinstance(module, BWTALinear) else activation
        sizes = module.in_features, module.out_features
        new = BWTALinear(*sizes, module.bias is not None, "meta", activation=kind, level=level)
    _take_parameters(new, module)
    return new.train(module.training)


def start_scales(model: nn.Module) -> list[ActivationQuantizer]:
    """Let quantisers whose scale is not set take it from what they see next; those quantisers.

    The caller puts them back into evaluation.
    """
    fresh = [
        module
        for module in model.modules()
        if isinstance(module, ActivationQuantizer)
        and not module.is_set
        and module.level is not None
    ]
    for quantizer in fresh:
        quantizer.train()
    return fresh


def _take_parameters(new: nn.Module, old: nn.Module) -> None:
    """Share an old module's parameters; scales start anew."""
    own = dict(old.named_parameters())
    device = next(iter(own.values())).device
    scales = {id(m.scale) for m in new.modules() if isinstance(m, ActivationQuantizer)}
    for name, parameter in list(new.named_parameters()):
        parent, _, last = name.rpartition(".")
        taken = (
            nn.Parameter(torch.zeros((), device=device)) if id(parameter) in scales else own[name]
        )
        setattr(new.get_submodule(parent), last, taken)
