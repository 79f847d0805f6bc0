"""Products of looked-up input bits with binary weights, forward on packed words."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.quantize.dropout import all_words
from bitgnn.quantize.sign import sgn

__all__ = ["InputWords", "looked_up_linear", "output_affine"]

CHUNK = 64
"""Words of a row that the backward pass unpacks at a time: thermometers have many."""


class InputWords(NamedTuple):
    """Packed input bits ``[N, B]``.

    A bit stands for 0 or 1, or for -1 or +1 plus an offset of its own.

    Attributes:
        words: int32 ``[N, ceil(B / 32)]``.
        size: B.
        gain: scalar tensor that makes up for dropped bits in training, or None.
        offset: float32 ``[B]``, which no gain multiplies; None where bits stand for 0 and 1.
        columns: int64 ``[B]``, the feature each bit belongs to; None where they are the same.
    """

    words: Tensor
    size: int
    gain: Tensor | None = None
    offset: Tensor | None = None
    columns: Tensor | None = None


def output_affine(
    weight: Tensor,
    unit: Tensor,
    offset: Tensor | None,
    log_gain: Tensor | None = None,
    norm: torch.nn.BatchNorm1d | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Scale and shift with which ``scale * dot + shift`` is the product, behind gain and norm.

    ``dot`` is the product of -1/+1 bits. With the unit :math:`u` the product of -1/+1 bits and their
    offsets is :math:`u (dot + \sum_k \mathrm{sgn}(W_{ok}) c_k)`; that of 0/1 bits is
    :math:`\tfrac{u}{2}(dot + \sum_k \mathrm{sgn} W_{ok})`.
    Gain and batch norm, in evaluation, multiply both and shift. Trained layers in evaluation and
    frozen ones use the same two vectors, so that their results agree to the last bit.

    Args:
        weight: ``[M, B]`` latent weights.
        unit: scalar tensor u.
        offset: float32 ``[B]``, c; None where bits stand for 0 and 1.
        log_gain: logarithm ``[1]`` of the gain, or None.
        norm: in evaluation, with running statistics, or None.

    Returns:
        Both float32 ``[M]``.
    """
    scale = unit.float().expand(weight.size(0))
    if log_gain is not None:
        scale = scale * log_gain.detach().float().exp()
    if offset is None:
        scale = scale * 0.5
        size, words = weight.size(1), torch.ops.bitgnn.pack(weight.detach())
        ones = all_words(size, weight.device)
        shift = scale * torch.ops.bitgnn.bmm_bbf(ones, words, size)[0]
    else:
        shift = scale * torch.mv(sgn(weight.detach()).float(), offset)
    if norm is not None:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        gain = torch.rsqrt(norm.running_var.float() + norm.eps)
        if norm.weight is not None:
            gain = gain * norm.weight.detach().float()
        centre = norm.running_mean.float()
        shift = (shift - centre) * gain
        if norm.bias is not None:
            shift = shift + norm.bias.detach().float()
        scale = scale * gain
    return scale.contiguous(), shift


class _LookedUpLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bits: InputWords,
        scale: Tensor,
        shift: Tensor,
        window: Tensor | None,
    ) -> Tensor:
        of_bits = scale
        if bits.gain is not None:
            of_bits = scale * bits.gain
            shift = shift * bits.gain if bits.offset is None else shift
        w_words = torch.ops.bitgnn.pack(weight)
        out = torch.ops.bitgnn.bmm_bbf(bits.words, w_words, bits.size, None, of_bits, shift)
        ctx.save_for_backward(
            x if ctx.needs_input_grad[0] else None, weight, bits.words, bits.offset, scale,
            of_bits, window, bits.columns,
        )  # fmt: skip
        ctx.size = bits.size
        return out.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, words, offset, scale, of_bits, window, columns = ctx.saved_tensors
        grad = grad.float()
        # The output is a multiple of bits times sgn(W), and something that counts as constant.
        left = grad * (of_bits * (2.0 if offset is None else 1.0))
        grad_x = grad_weight = None
        if x is not None:
            grad_x = left @ sgn(weight).float()
            if columns is not None:
                grad_x = torch.zeros_like(x, dtype=torch.float32).index_add_(1, columns, grad_x)
            elif window is not None:
                grad_x = grad_x.mul_(x.abs() <= window)
            grad_x = grad_x.to(x.dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = _times_bits(left.t(), words, ctx.size, offset is None)
            if offset is not None:
                grad_weight.addr_(grad.sum(0) * scale, offset)
            grad_weight = grad_weight.mul_(weight.abs() <= 1).to(weight.dtype)
        return grad_x, grad_weight, None, None, None, None


def _times_bits(left: Tensor, words: Tensor, size: int, zero_one: bool) -> Tensor:
    """``left [M, N]`` times the bits ``[N, B]``, unpacked piece by piece."""
    pieces = []
    for first in range(0, words.size(1), CHUNK):
        last = min(first + CHUNK, words.size(1))
        width = min(size, 32 * last) - 32 * first
        bits = torch.ops.bitgnn.unpack(words[:, first:last].contiguous(), width)
        pieces.append(left @ (bits.add_(1.0).mul_(0.5) if zero_one else bits))
    if not pieces:
        return left.new_zeros(left.size(0), size)
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)


def looked_up_linear(
    x: Tensor,
    weight: Tensor,
    bits: InputWords,
    unit: Tensor,
    log_gain: Tensor | None = None,
    norm: torch.nn.BatchNorm1d | None = None,
    window: Tensor | None = None,
) -> Tensor:
    r"""``u * sum_k bit_ik sgn(W_ok)``, behind gain and batch norm in evaluation.

    Backward: weights get :math:`1[|W| \le 1] \, u \, G^\top bits`, activations
    :math:`u \, G \, \mathrm{sgn}(W)` where :math:`|x|` is inside the window, thermometers all of it
    (clipped straight-through, Courbariaux et al. 2016). Gain and norm count as constants here: in
    training they stand behind the product, as operations of their own.

    Args:
        x: ``[N, K]`` floats that the bits were made of; they get the gradient.
        weight: ``[M, B]`` latent weights.
        bits: of ``x``.
        unit: scalar tensor u.
        log_gain: logarithm of a gain that is folded into the product; in evaluation only.
        norm: folded into the product; in evaluation only.
        window: scalar tensor, half-width of the part of the axis with a slope; None is all of it.

    Returns:
        ``[N, M]`` tensor of the dtype of ``x``.
    """
    scale, shift = output_affine(weight, unit, bits.offset, log_gain, norm)
    with torch.autocast(x.device.type, enabled=False):
        out: Tensor = _LookedUpLinear.apply(x, weight.contiguous(), bits, scale, shift, window)
    return out
