"""The two products of attention on integers with their gradients, and the keys that it keeps.

Each product is one function, since small layers take longer to launch than to compute. The
gradients are LSQ's, see :func:`bitgnn.quantize.levels`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bitgnn._interpreter import with_signature
from bitgnn.quantize.first_order import first_order
from bitgnn.quantize.levels import Operand, operand_gradients

LEAST_EXPONENT = -700.0
LOG2_E = float.fromhex("0x1.71547652b82fep+0")
LN2_HIGH = float.fromhex("0x1.62e42feep-1")
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
TAYLOR_DEGREE = 13
EXPONENT_BIAS, MANTISSA_BITS = 1023, 52


class _Scores(torch.autograd.Function):
    @staticmethod
    @with_signature
    def forward(*given: Any) -> tuple[Tensor, Tensor]:
        query, _, q, q_scale, _, key, _, k, k_scale, _, factor = given
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
    @first_order
    def backward(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        grads: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        if grad is None:
            return tuple(grads)
        query, q, q_scale, key, k, k_scale = ctx.saved_tensors
        grad = grad.flatten(0, 1)
        if any(ctx.needs_input_grad[:2]):
            wanted, gain = torch.bmm(grad, k).view(query.shape), k_scale * ctx.factor
            grads[:2] = operand_gradients(wanted, query, q_scale, ctx.q_rounding, gain)
        if any(ctx.needs_input_grad[5:7]):
            wanted, gain = torch.bmm(grad.mT, q).view(key.shape), q_scale * ctx.factor
            grads[5:7] = operand_gradients(wanted, key, k_scale, ctx.k_rounding, gain)
        return tuple(grads)


class _Context(torch.autograd.Function):
    @staticmethod
    @with_signature
    def forward(*given: Any) -> tuple[Tensor, ...]:
        probability, _, p, p_scale, _, value, _, v, v_scale, _, _, need_weights = given
        out = (p_scale * v_scale) * torch.bmm(p, v).view(*probability.shape[:3], value.size(3))
        return (out, p_scale * p.view(probability.shape)) if need_weights else (out,)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        probability, _, p, p_scale, ctx.p_rounding = inputs[:5]
        value, _, v, v_scale, ctx.v_rounding, kept, _ = inputs[5:]
        ctx.save_for_backward(probability, p, p_scale, value, v, v_scale, kept)

    @staticmethod
    @first_order
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
            grads[:2] = operand_gradients(wanted, probability, p_scale, ctx.p_rounding, gain)
        if any(ctx.needs_input_grad[5:7]):
            wanted = torch.bmm(p.mT, grad).view(value.shape)
            grads[5:7] = operand_gradients(wanted, value, v_scale, ctx.v_rounding, p_scale)
        return tuple(grads)


def ternary_scores(query: Operand, key: Operand, factor: float) -> tuple[Tensor, Tensor]:
    r""":math:`(s_Q s_K c)\, q k^\top`, and the integers :math:`q k^\top`, which have no gradient.

    Operands are those of ``[B, H, N, D]`` and ``[B, H, L, D]``, their integers ``[B * H, *, D]``;
    both results are float32 ``[B, H, N, L]``.
    """
    scores, dot = _Scores.apply(*query, *key, factor)
    return scores, dot


def ternary_context(
    probability: Operand, value: Operand, kept: Tensor | None, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    r""":math:`(s_P s_V)\, (p d) v` and, where needed, the weights :math:`s_P\, p d`, float32.

    Integers of the operands are ``[B * H, N, L]``, times ``kept`` already, and ``[B * H, L, D]``;
    ``kept`` is d ``[B, H, N, L]``, what dropout multiplies by, None for 1.
    """
    found = _Context.apply(*probability, *value, kept, need_weights)
    return found[0], found[1] if need_weights else None


def softmax_table(scale: Tensor, entries: int) -> Tensor:
    r"""``T[t]``, :math:`e^{-scale \cdot t}` for t in [0, entries), never rising.

    The IEEE operations of ``csrc/attention/softmax_table.h`` one after the other, so that the
    table ``[entries]`` is the operators' own to the last bit, on any device and without waiting for
    it. ``scale`` is 0-d float64 and positive.
    """
    x = -(scale * torch.arange(entries, dtype=torch.float64, device=scale.device))
    k = torch.floor(x.clamp(min=LEAST_EXPONENT) * LOG2_E + 0.5)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    p = torch.full_like(r, 1.0 / math.factorial(TAYLOR_DEGREE))
    for n in range(TAYLOR_DEGREE - 1, -1, -1):
        p = p * r + 1.0 / math.factorial(n)
    power = ((k.long() + EXPONENT_BIAS) << MANTISSA_BITS).view(torch.float64)
    table = torch.where(x >= LEAST_EXPONENT, p * power, 0.0)
    return table.cummin(0)[0] if entries else table


@torch.no_grad()
def attended_keys(
    dot: Tensor, allowed: Tensor | None, scale: Tensor, bool_scale: Tensor, size: int
) -> Tensor:
    r"""Bits of :math:`\mathrm{softmax}(scale \cdot dot) \ge 0.5\, bool\_scale`, decided exactly.

    With m the highest dot product of a row and T of :func:`softmax_table`, a bit is
    :math:`T[m - d_j] \ge 0.5\, bool\_scale \sum_t T[t]\,\#\{j : m - d_j = t\}`, the sum in
    float64 over t ascending: the definition of ``attention_ternary``, whatever order kernels read
    keys in.

    ``dot [..., N, L]`` holds products of ternary rows of ``size`` features, ``allowed`` broadcasts
    to it, both scales are 0-d float64. Rows that may attend to nothing are 0.
    """
    if dot.numel() == 0:
        return torch.zeros_like(dot, dtype=torch.float32)
    entries = 2 * size + 1
    if allowed is None:
        distance = dot.amax(-1, keepdim=True) - dot
    else:
        highest = dot.masked_fill(~allowed, -torch.inf).amax(-1, keepdim=True)
        # One beyond the table: counted by nobody.
        distance = (highest - dot).masked_fill(~allowed.expand_as(dot), entries)
    place = distance.long()
    histogram = torch.zeros(*dot.shape[:-1], entries + 1, dtype=torch.float64, device=dot.device)
    histogram.scatter_add_(-1, place, torch.ones_like(distance, dtype=torch.float64))
    table = softmax_table(scale, entries)
    total = torch.zeros(dot.shape[:-1], dtype=torch.float64, device=dot.device)
    for t in range(entries):
        total = total + table[t] * histogram[..., t]
    limit = (0.5 * bool_scale) * total
    powers = torch.cat([table, table.new_full((1,), -1.0)])  # hidden keys are below every limit
    return (powers[place] >= limit.unsqueeze(-1)).float()
