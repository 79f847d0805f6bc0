"""Products of looked-up input bits with binary weights, forward on packed words."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.quantize.dropout import all_words
from bitgnn.quantize.linear import _weight_gradient
from bitgnn.quantize.sign import sgn

__all__ = ["InputWords", "looked_up_linear", "output_affine"]

CHUNK = 64
"""Words of a row that the backward pass unpacks at a time: thermometers have many."""


class InputWords(NamedTuple):
    """Packed input bits ``[N, B]``, some of them dropped.

    Attributes:
        words: int32 ``[N, ceil(B / 32)]``; a dropped bit is 0.
        raised: the same with dropped bits set, so that the mean of both products leaves them out;
            None where nothing is dropped, or where a dropped bit is an ordinary 0.
        size: B.
        zero_one: bits stand for 0 and 1, else for -1 and +1.
        gain: scalar tensor that makes up for dropped bits in training, or None.
        columns: int64 ``[B]``, the feature each bit belongs to; None where they are the same.
    """

    words: Tensor
    raised: Tensor | None
    size: int
    zero_one: bool
    gain: Tensor | None = None
    columns: Tensor | None = None


def output_affine(
    weight: Tensor, zero_one: bool, norm: torch.nn.BatchNorm1d | None = None
) -> tuple[Tensor, Tensor | None]:
    r"""Scale and shift with which ``scale * dot + shift`` is the product behind its norm.

    ``dot`` is the product of -1/+1 bits. With :math:`m_o = \mathrm{mean}|W_o|` the product of
    -1/+1 bits is :math:`m_o \cdot dot`; that of 0/1 bits is
    :math:`\tfrac{m_o}{2}(dot + \sum_k \mathrm{sgn} W_{ok})`. A batch norm in evaluation multiplies
    both by its gain and shifts. Trained layers in evaluation and frozen ones use the same two
    vectors, so that their results agree to the last bit.

    Args:
        weight: ``[M, B]`` latent weights.
        zero_one: what the bits stand for.
        norm: in evaluation, with running statistics.

    Returns:
        Both float32 ``[M]``; the shift is None where it is 0.
    """
    words, scale = torch.ops.bitgnn.pack_scaled(weight.detach())
    shift: Tensor | None = None
    if zero_one:
        scale = scale * 0.5
        size = weight.size(1)
        shift = scale * torch.ops.bitgnn.bmm_bbf(all_words(size, weight.device), words, size)[0]
    if norm is not None:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        gain = torch.rsqrt(norm.running_var.float() + norm.eps)
        if norm.weight is not None:
            gain = gain * norm.weight.detach().float()
        centre = norm.running_mean.float()
        shift = (-centre if shift is None else shift - centre) * gain
        if norm.bias is not None:
            shift = shift + norm.bias.detach().float()
        scale = scale * gain
    return scale, shift


class _LookedUpLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bits: InputWords,
        scale: Tensor,
        shift: Tensor | None,
        window: Tensor | None,
    ) -> Tensor:
        w_words, w_mean = torch.ops.bitgnn.pack_scaled(weight)
        product = torch.ops.bitgnn.bmm_bbf
        if bits.raised is None:
            out = product(bits.words, w_words, bits.size, None, scale, shift)
        else:
            dot = product(bits.words, w_words, bits.size)
            dot = dot.add_(product(bits.raised, w_words, bits.size))
            out = dot.mul_(scale * 0.5)
            out = out if shift is None else out.add_(shift)
        if bits.gain is not None:
            out = out.mul_(bits.gain)
        ctx.save_for_backward(
            x if ctx.needs_input_grad[0] else None, weight, bits.words, bits.raised, w_mean, scale,
            window, bits.columns, bits.gain,
        )  # fmt: skip
        ctx.size, ctx.zero_one = bits.size, bits.zero_one
        return out.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, words, raised, w_mean, scale, window, columns, gain = ctx.saved_tensors
        # What the output is a multiple of is m_o * sgn(W) times bits; the rest counts as constant.
        factor = scale * (2.0 if ctx.zero_one else 1.0)
        grad = grad.float() if gain is None else grad.float() * gain
        signs = sgn(weight).float()
        grad_x = grad_weight = None
        if x is not None:
            grad_x = (grad * factor) @ signs
            if columns is not None:
                grad_x = torch.zeros_like(x, dtype=torch.float32).index_add_(1, columns, grad_x)
            elif window is not None:
                grad_x = grad_x.mul_(x.abs() <= window)
            grad_x = grad_x.to(x.dtype)
        if ctx.needs_input_grad[1]:
            ratio = torch.where(w_mean > 0, factor / w_mean, 1.0)
            d = _times_bits((grad * ratio).t(), words, raised, ctx.size, ctx.zero_one)
            d = _weight_gradient(d, weight, signs, w_mean, "bigcn")
            grad_weight = d.to(weight.dtype)
        return grad_x, grad_weight, None, None, None, None


def _times_bits(
    left: Tensor, words: Tensor, raised: Tensor | None, size: int, zero_one: bool
) -> Tensor:
    """``left [M, N]`` times the bits ``[N, B]``, unpacked piece by piece."""
    pieces = []
    for first in range(0, words.size(1), CHUNK):
        last = min(first + CHUNK, words.size(1))
        width = min(size, 32 * last) - 32 * first
        bits = torch.ops.bitgnn.unpack(words[:, first:last].contiguous(), width)
        if raised is not None:
            more = torch.ops.bitgnn.unpack(raised[:, first:last].contiguous(), width)
            bits = bits.add_(more).mul_(0.5)
        pieces.append(left @ (bits.add_(1.0).mul_(0.5) if zero_one else bits))
    if not pieces:
        return left.new_zeros(left.size(0), size)
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)


def looked_up_linear(
    x: Tensor,
    weight: Tensor,
    bits: InputWords,
    norm: torch.nn.BatchNorm1d | None = None,
    window: Tensor | None = None,
) -> Tensor:
    r"""``gain * m_o * sum_k bit_ik sgn(W_ok)``, behind a batch norm in evaluation.

    Backward: with :math:`D = G^\top bits`, weights get Bi-GCN's rule
    :math:`m_o 1[|W| \le 1] D + \mathrm{sgn}(W) \, \mathrm{mean}_k(\mathrm{sgn}(W) D)`; activations
    :math:`G \, m_o \, \mathrm{sgn}(W)` where :math:`|x|` is inside the window, thermometers all of
    it. The norm counts as a constant.

    Args:
        x: ``[N, K]`` floats that the bits were made of; they get the gradient.
        weight: ``[M, B]`` latent weights.
        bits: of ``x``.
        norm: folded into the product; pass it in evaluation only.
        window: scalar tensor, half-width of the part of the axis with a slope; None is all of it.

    Returns:
        ``[N, M]`` tensor of the dtype of ``x``.
    """
    scale, shift = output_affine(weight, bits.zero_one, norm)
    with torch.autocast(x.device.type, enabled=False):
        out: Tensor = _LookedUpLinear.apply(x, weight.contiguous(), bits, scale, shift, window)
    return out
