"""first_order: refuses derivatives of gradients that come from surrogate rules."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Backward = Callable[..., Any]

_ANCHOR = torch.zeros((), requires_grad=True)
"""Input of every gradient, which gives it a history to differentiate."""


class _Refused(torch.autograd.Function):
    """Identity on gradients that makes them depend on all inputs, and refuses the derivative."""

    @staticmethod
    def forward(name: str, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.clone() for tensor in tensors[:count])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError(
            f"{ctx.name}: its gradient is a surrogate, which has no derivative of its own: "
            "gradients of gradients (create_graph=True, gradient penalties, Hessians) cannot pass "
            "a binary or ternary product; use precision 'fp32' there"
        )


def first_order(backward: Backward) -> Backward:
    """``backward`` of an autograd function, with an error where its results are differentiated.

    Unlike ``torch.autograd.function.once_differentiable`` it also refuses where the incoming
    gradient is a constant, as that of a sum is: the results depend on the inputs all the same.
    """
    name = backward.__qualname__.split(".")[0].lstrip("_")

    @functools.wraps(backward)
    def wrapped(ctx: Any, *grads: Any) -> Any:
        if not torch.is_grad_enabled():
            return backward(ctx, *grads)
        with torch.no_grad():
            found = backward(ctx, *grads)
        parts = found if isinstance(found, tuple) else (found,)
        given = [grad for grad in parts if grad is not None]
        sources = [tensor for tensor in (*grads, *ctx.saved_tensors) if tensor is not None]
        if not torch._C._are_functorch_transforms_active():
            sources.append(_ANCHOR)  # the result of a transform must not require a gradient
        refused = iter(_Refused.apply(name, len(given), *given, *sources))
        parts = tuple(None if grad is None else next(refused) for grad in parts)
        return parts if isinstance(found, tuple) else parts[0]

    wrapped.is_first_order = True  # type: ignore[attr-defined]
    return wrapped
