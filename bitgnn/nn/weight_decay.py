"""Keeps weight decay away from weights that are used by their sign, and from gains."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

MARK = "_bitgnn_sign_only"
HELD = "_bitgnn_gradients"

COUPLED = (
    torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop, torch.optim.Adagrad,
    torch.optim.Adadelta, torch.optim.Adamax, torch.optim.NAdam, torch.optim.RAdam,
    torch.optim.ASGD,
)  # fmt: skip
"""Optimisers of PyTorch that add ``weight_decay * p`` to the gradient of ``p``."""


def spare_from_decay(weight: Tensor) -> None:
    r"""Mark a latent weight, of which only the sign is used, or the level of a gain.

    L2 decay draws a weight towards 0, where its sign is at the mercy of the last gradient: with a
    decay of 5e-4 Adam's steps are the decay's wherever the loss has little to say. PyTorch's own
    optimisers that add the decay to the gradient get :math:`g - \lambda w` for marked weights, so
    that they step by :math:`g`; the gradients are put back after the step. Decoupled decay
    (AdamW) shrinks all weights of an output alike, which changes no sign, and is left alone. A gain
    that is drawn to where it starts has to be won anew by the loss.
    """
    setattr(weight, MARK, True)


def give_to_decay(weight: Tensor) -> None:
    """Remove the mark of a weight whose size counts after all."""
    if not torch.compiler.is_compiling():
        vars(weight).pop(MARK, None)


def _shift_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Put gradients less ``weight_decay * p`` in place of those of marked parameters."""
    if not isinstance(optimizer, COUPLED):
        return
    held: list[tuple[Any, Any, Any]] = []
    for group in optimizer.param_groups:
        decay = group.get("weight_decay", 0)
        if not decay or group.get("decoupled_weight_decay"):
            continue
        step = decay if group.get("maximize") else -decay
        scale = getattr(optimizer, "grad_scale", None)
        marked = [p for p in group["params"] if p.grad is not None and hasattr(p, MARK)]
        if not marked:
            continue
        gradients = [p.grad for p in marked]
        with torch.no_grad():
            if scale is None:
                shifted = list(torch._foreach_add(gradients, marked, alpha=step))
            else:  # a fused optimiser unscales by itself
                shifted = [p.grad + p * (step * scale.to(p.device)) for p in marked]
        for parameter, gradient in zip(marked, shifted, strict=True):
            parameter.grad = gradient
        held.extend(zip(marked, gradients, shifted, strict=True))
    setattr(optimizer, HELD, held)


def _put_back(optimizer: torch.optim.Optimizer) -> None:
    """The gradients as they were, but where they were made anew."""
    for parameter, gradient, shifted in optimizer.__dict__.pop(HELD, ()):
        if parameter.grad is shifted:
            parameter.grad = gradient


def _before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
    _put_back(optimizer)  # of a step that was broken off
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    if not callable(closure):
        _shift_gradients(optimizer)
        return None

    def shifted() -> Any:  # the gradients are made by the closure, inside of the step
        _put_back(optimizer)
        loss = closure()
        _shift_gradients(optimizer)
        return loss

    if "closure" in kwargs:
        return args, {**kwargs, "closure": shifted}
    return (args[0], shifted, *args[2:]), kwargs


def _after(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    _put_back(optimizer)


register_optimizer_step_pre_hook(_before)
register_optimizer_step_post_hook(_after)
