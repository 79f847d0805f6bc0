"""Products of looked-up input bits with binary weights, forward on packed words."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.quantize.sign import sgn

__all__ = ["InputWords", "looked_up_linear", "output_affine"]

CHUNK = 64
"""Words of a row that the backward pass unpacks at a time: thermometers have many."""


class InputWords(NamedTuple):
    """Packed input bits ``[N, B]``.

    Attributes:
        words: int32 ``[N, ceil(B / 32)]``.
        size: B.
        zero_one: bits stand for 0 and 1, else for -1 and +1.
        gain: scalar tensor that makes up for dropped bits in training, or None.
        offset: float32 ``[B]``, added to the bits behind the gain, or None.
        columns: int64 ``[B]``, the feature each bit belongs to; None where they are the same.
        kept: int32 words of the bits that dropout has kept, of activations; those that it has not
            count as 0, the mean of -1/2 and +1/2. None is all of them.
    """

    words: Tensor
    size: int
    zero_one: bool
    gain: Tensor | None = None
    offset: Tensor | None = None
    columns: Tensor | None = None
    kept: Tensor | None = None


MIDDLE = -0.5
"""Offset of an activation's bits, which stand for -1/2 and +1/2."""


def output_affine(
    weight: Tensor,
    unit: Tensor,
    zero_one: bool,
    offset: Tensor | None,
    output_gain: Tensor | None = None,
    norm: torch.nn.BatchNorm1d | None = None,
    bit_gain: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Scale and shift with which ``scale * dot + shift`` is the product, behind gain and norm.

    ``dot`` is the product of -1/+1 bits. With the unit :math:`u` that of -1/+1 bits and offsets is
    :math:`u (dot + \sum_k \mathrm{sgn}(W_{ok}) c_k)`; that of 0/1 bits and offsets is
    :math:`\tfrac{u}{2}(dot + \sum_k \mathrm{sgn}(W_{ok}) (1 + 2 c_k))`.
    Gain and batch norm, in evaluation, multiply both and shift. Trained layers in evaluation and
    frozen ones use the same two vectors, so that their results agree to the last bit.

    Args:
        weight: ``[M, B]`` latent weights.
        unit: scalar tensor u.
        zero_one: what the bits stand for.
        offset: float32 ``[B]``, c, or None.
        output_gain: ``[1]`` tensor that multiplies the product, or None.
        norm: in evaluation, with running statistics, or None.
        bit_gain: scalar tensor that multiplies the bits, not their offsets, in training.

    Returns:
        Both float32 ``[M]``.
    """
    scale = unit.float().expand(weight.size(0))
    if output_gain is not None:
        scale = scale * output_gain.detach().float()
    shift = scale * _offset_sums(weight, zero_one, offset, bit_gain)
    if zero_one:
        scale = scale * 0.5
    if bit_gain is not None:
        scale = scale * bit_gain
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


def _offset_sums(
    weight: Tensor, zero_one: bool, offset: Tensor | None, bit_gain: Tensor | None
) -> Tensor:
    """``[M]`` sums of weights' signs times what is added to bits, or to halves of signs."""
    if offset is None and not zero_one:
        return weight.new_zeros(weight.size(0), dtype=torch.float32)
    added = weight.new_zeros(weight.size(1), dtype=torch.float64)
    if zero_one:
        added += 0.5 if bit_gain is None else 0.5 * bit_gain
    if offset is not None:
        added += offset
    # Offsets are multiples of a power of two: the sums are exact in any order.
    return torch.mv(sgn(weight.detach()).double(), added).float()


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
        w_words = torch.ops.bitgnn.pack(weight)
        out = torch.ops.bitgnn.bmm_bbf(bits.words, w_words, bits.size, None, scale, shift)
        if bits.kept is not None:
            out += torch.ops.bitgnn.bmm_bbf(bits.kept, w_words, bits.size, None, MIDDLE * scale)
        ctx.save_for_backward(
            x if ctx.needs_input_grad[0] else None, weight, bits.words, bits.offset, bits.gain,
            scale, window, bits.columns, bits.kept,
        )  # fmt: skip
        ctx.size, ctx.zero_one = bits.size, bits.zero_one
        return out.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, words, offset, gain, scale, window, columns, kept = ctx.saved_tensors
        grad = grad.float()
        # The output is a multiple of bits times sgn(W), and something that counts as constant.
        scale = scale * 2.0 if ctx.zero_one else scale
        left = grad * scale
        grad_x = grad_weight = None
        if x is not None:
            # Behind a known dropout, which multiplies by the gain itself.
            grad_x = (left if kept is None else left / gain) @ sgn(weight).float()
            if columns is not None:
                grad_x = torch.zeros_like(x, dtype=torch.float32).index_add_(1, columns, grad_x)
            elif window is not None:
                grad_x = grad_x.mul_(x.abs() <= window)
            grad_x = grad_x.to(x.dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = _times_bits(left.t(), words, ctx.size, ctx.zero_one)
            if kept is not None:
                halves = _times_bits(left.t(), kept, ctx.size, ctx.zero_one)
                grad_weight.add_(halves, alpha=MIDDLE)
            elif offset is not None:
                sums = left.sum(0) if gain is None else left.sum(0) / gain
                grad_weight.addr_(sums, offset)
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
    output_gain: Tensor | None = None,
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
        output_gain: ``[1]`` tensor that is folded into the product; in evaluation only.
        norm: folded into the product; in evaluation only.
        window: scalar tensor, half-width of the part of the axis with a slope; None is all of it.

    Returns:
        ``[N, M]`` tensor of the dtype of ``x``.
    """
    offset = bits.offset
    if bits.kept is not None:
        # The part of the kept bits' offsets that all rows share.
        assert bits.zero_one
        assert offset is not None
        assert bits.gain is not None
        offset = 0.5 * bits.gain * offset
    kinds = (bits.zero_one, offset)
    scale, shift = output_affine(weight, unit, *kinds, output_gain, norm, bits.gain)
    with torch.autocast(x.device.type, enabled=False):
        out: Tensor = _LookedUpLinear.apply(x, weight.contiguous(), bits, scale, shift, window)
    return out
