"""The two products of attention on integers, each a function with all of its gradients.

Single functions, since small layers take longer to launch than to compute. The gradients are LSQ's,
see :func:`bitgnn.quantize.levels`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitgnn._interpreter import with_signature
from bitgnn.quantize.operands import Operand, Rounding, operand_gradients

__all__ = ["ternary_context", "ternary_scores"]


class _Scores(torch.autograd.Function):
    @staticmethod
    @with_signature
    def forward(
        query: Tensor,
        query_parameter: Tensor,
        q: Tensor,
        q_scale: Tensor,
        q_rounding: Rounding | None,
        key: Tensor,
        key_parameter: Tensor,
        k: Tensor,
        k_scale: Tensor,
        k_rounding: Rounding | None,
        factor: float,
    ) -> tuple[Tensor, Tensor]:
        dot = torch.bmm(q, k.transpose(1, 2)).view(*query.shape[:3], key.size(2))
        return (q_scale * k_scale * factor) * dot, dot

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        query, _, q, q_scale, ctx.q_rounding = inputs[:5]
        key, _, k, k_scale, ctx.k_rounding, ctx.factor = inputs[5:]
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(query, q, q_scale, key, k, k_scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        grads: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        if grad is None:
            return tuple(grads)
        query, q, q_scale, key, k, k_scale = ctx.saved_tensors
        grad = grad.flatten(0, 1)
        if any(ctx.needs_input_grad[:2]):
            wanted, gain = torch.bmm(grad, k).view(query.shape), k_scale * ctx.factor
            grads[:2] = operand_gradients(wanted, query, q_scale, gain, ctx.q_rounding)
        if any(ctx.needs_input_grad[5:7]):
            wanted, gain = torch.bmm(grad.mT, q).view(key.shape), q_scale * ctx.factor
            grads[5:7] = operand_gradients(wanted, key, k_scale, gain, ctx.k_rounding)
        return tuple(grads)


class _Context(torch.autograd.Function):
    @staticmethod
    @with_signature
    def forward(
        probability: Tensor,
        probability_parameter: Tensor,
        p: Tensor,
        p_scale: Tensor,
        p_rounding: Rounding | None,
        value: Tensor,
        value_parameter: Tensor,
        v: Tensor,
        v_scale: Tensor,
        v_rounding: Rounding | None,
        kept: Tensor | None,
        need_weights: bool,
    ) -> tuple[Tensor, ...]:
        out = (p_scale * v_scale) * torch.bmm(p, v).view(*probability.shape[:3], value.size(3))
        return (out, p_scale * p.view(probability.shape)) if need_weights else (out,)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        probability, _, p, p_scale, ctx.p_rounding = inputs[:5]
        value, _, v, v_scale, ctx.v_rounding, kept, _ = inputs[5:]
        ctx.save_for_backward(probability, p, p_scale, value, v, v_scale, kept)

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor, grad_weights: Tensor | None = None
    ) -> tuple[Tensor | None, ...]:
        grads: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        probability, p, p_scale, value, v, v_scale, kept = ctx.saved_tensors
        grad = grad.flatten(0, 1)
        if any(ctx.needs_input_grad[:2]):
            wanted, gain = torch.bmm(grad, v.mT).view(probability.shape), v_scale
            if grad_weights is not None:
                wanted, gain = gain * wanted + grad_weights, torch.ones_like(gain)
            wanted = wanted if kept is None else wanted * kept
            grads[:2] = operand_gradients(wanted, probability, p_scale, gain, ctx.p_rounding)
        if any(ctx.needs_input_grad[5:7]):
            wanted = torch.bmm(p.mT, grad).view(value.shape)
            grads[5:7] = operand_gradients(wanted, value, v_scale, p_scale, ctx.v_rounding)
        return tuple(grads)


def ternary_scores(query: Operand, key: Operand, factor: float) -> tuple[Tensor, Tensor]:
    r""":math:`(s_Q s_K c)\, q k^\top`, and the integers :math:`q k^\top`, which have no gradient.

    Args:
        query: of ``[B, H, N, D]``; its integers ``[B * H, N, D]``.
        key: of ``[B, H, L, D]``; its integers ``[B * H, L, D]``.
        factor: c.

    Returns:
        Two tensors ``[B, H, N, L]``, float32.
    """
    scores, dot = _Scores.apply(*query, *key, factor)
    return scores, dot


def ternary_context(
    probability: Operand, value: Operand, kept: Tensor | None, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    r""":math:`(s_P s_V)\, (p d) v`, and the weights :math:`s_P\, p d`.

    Args:
        probability: of ``[B, H, N, L]``; its integers ``[B * H, N, L]``, times ``kept``.
        value: of ``[B, H, L, D]``; its integers ``[B * H, L, D]``.
        kept: d ``[B, H, N, L]``, what dropout multiplies by; None for 1.
        need_weights: whether to return the weights.

    Returns:
        ``[B, H, N, D]`` and ``[B, H, N, L]``, float32; None in place of weights not needed.
    """
    found = _Context.apply(*probability, *value, kept, need_weights)
    return found[0], found[1] if need_weights else None
