"""Looked-up input bits times binary weights, forward on packed words; such bits as floats."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.quantize.dropout import filled, unpacked
from bitgnn.quantize.first_order import first_order
from bitgnn.quantize.linear import without_autocast
from bitgnn.quantize.sign import sgn

MOST_UNPACKED = 2**26
"""Signs that the backward pass unpacks at a time, in whole rows."""
GAIN_SPEED = 10.0
"""Step of Adam in the logarithm of a gain, in learning rates."""
MIDDLE = -0.5
"""Offset of an activation's bits, which stand for -1/2 and +1/2."""


class InputWords(NamedTuple):
    """Packed input bits ``[N, B]``.

    * ``words``: int32 ``[N, ceil(B / 32)]``; ``size``: B.
    * ``zero_one``: bits stand for 0 and 1, else for -1 and +1.
    * ``gain``: number that makes up for dropped bits in training.
    * ``offset``: float32 ``[B]``, added to the bits after the gain.
    * ``raised``: of activations under the layer's own dropout alone, the words with dropped bits
      set, which are not set in ``words``: the mean of both counts, so that dropped bits are in the
      middle.
    * ``is_centred``: bits of activations, which stand for -1/2 and +1/2.
    * ``total``: float32 ``[N]``, finite where all of a row is; None where nobody asks.
    * ``unit``: scalar tensor, factor u of products with the bits.
    * ``window``: scalar tensor, half-width of the part of the axis where what the bits were made of
      gets a gradient; None is all of it.
    * ``kept``: share of the bits that the layer's own dropout keeps.
    """

    words: Tensor
    size: int
    zero_one: bool
    gain: float | None = None
    offset: Tensor | None = None
    raised: Tensor | None = None
    is_centred: bool = False
    total: Tensor | None = None
    window: Tensor | None = None
    unit: Tensor | None = None
    kept: float = 1.0

    @property
    def step(self) -> float:
        """Amount a sign of ``words``, or of ``raised``, adds to a bit's value, without the gain."""
        if self.raised is not None:
            return 0.25
        return 0.5 if self.zero_one else 1.0

    @property
    def has_shift(self) -> bool:
        """True if values are signs times a factor plus a shift."""
        if self.raised is not None or (self.is_centred and self.gain is None):
            return False
        return self.zero_one or self.offset is not None


class _LookedUpLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, ...]:
        x, weight, level, (bits, w_words, scale, shift, parts, is_normed) = given
        outs = []
        each = [(w_words, scale, shift)]
        if parts > 1:
            shifts = [None] * parts if shift is None else shift.chunk(parts)
            each = list(zip(w_words.chunk(parts), scale.chunk(parts), shifts, strict=True))
        for words, by, add in each:
            out = torch.ops.bitgnn.bmm_bbf(bits.words, words, bits.size, None, by, add)
            if bits.raised is not None:
                out = torch.ops.bitgnn.bmm_add(bits.raised, words, out, bits.size, None, by)
            outs.append(out.to(x.dtype))
        has_shift = bits.has_shift and not is_normed
        ctx.save_for_backward(
            x if ctx.needs_input_grad[0] else None, weight, w_words, bits.words, bits.raised,
            bits.offset if has_shift else None,
            scale, bits.window,
            outs[0] if ctx.needs_input_grad[2] else None,
        )  # fmt: skip
        ctx.size, ctx.step, ctx.gain, ctx.kept = bits.size, bits.step, bits.gain, bits.kept
        ctx.levels = 1 if level is None else level.numel()
        ctx.zero_one, ctx.counts_up = bits.zero_one, bits.zero_one and has_shift
        return tuple(outs)

    @staticmethod
    @first_order
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, w_words, words, raised, offset, scale, window, out = ctx.saved_tensors
        grad = (grads[0] if len(grads) == 1 else torch.cat(grads, 1)).float()
        grad_x = grad_weight = grad_level = None
        # The output is a multiple of signs times sgn(W), and something that counts as constant.
        if x is not None:
            # A bit that is set makes up two signs, or one in each of two products. What the layer's
            # own dropout takes and its gain cancel out in the mean.
            slope = 1.0 if not ctx.zero_one else 2.0 if raised is None else 4.0
            slope *= ctx.kept
            grad_x = grad @ torch.ops.bitgnn.unpack(w_words, ctx.size, scale)
            if window is not None:
                grad_x = torch.ops.bitgnn.straight_through(grad_x, x.float(), slope, window)
            elif slope != 1.0:
                grad_x *= slope
            grad_x = grad_x.to(x.dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = _times_signs(grad.t(), words, raised, ctx.size, ctx.counts_up)
            if offset is not None:
                sums = grad.sum(0) if ctx.gain is None else grad.sum(0) / ctx.gain
                grad_weight.addr_(sums, offset, alpha=1.0 / ctx.step)
            grad_weight = torch.ops.bitgnn.straight_through(
                grad_weight, weight.float(), 1.0, None, scale
            ).to(weight.dtype)
        if out is not None:
            each = grad.size(1) // ctx.levels
            by_level = torch.mul(grad, out).view(grad.size(0), ctx.levels, each)
            grad_level = by_level.sum((0, 2)).div(GAIN_SPEED)
        return grad_x, grad_weight, grad_level, None


def _times_signs(
    left: Tensor, words: Tensor, raised: Tensor | None, size: int, counts_up: bool
) -> Tensor:
    """``left [M, N]`` times the signs ``[N, B]``, unpacked some rows at a time.

    With ``counts_up`` signs without ``raised`` are 0 and 2 instead of -1 and +1.
    """
    rows = max(1, MOST_UNPACKED // max(size, 1))
    out: Tensor | None = None
    for piece in range(0, words.size(0), rows):
        some = slice(piece, piece + rows)
        signs = unpacked(words[some], None if raised is None else raised[some], size)
        if counts_up and raised is None:
            signs.add_(1.0)
        out = left[:, some] @ signs if out is None else out.addmm_(left[:, some], signs)
    return left.new_zeros(left.size(0), size) if out is None else out


def looked_up_linear(
    x: Tensor,
    weight: Tensor,
    bits: InputWords,
    output_gain: Tensor | None = None,
    norm: torch.nn.BatchNorm1d | None = None,
) -> Tensor:
    r"""``u * sum_k bit_ik sgn(W_ok)``, after gain and batch norm in evaluation.

    Backward: weights get :math:`1[|W| \le 1] \, u \, G^\top bits`, activations
    :math:`u \, G \, \mathrm{sgn}(W)` where :math:`|x|` is inside the window (clipped
    straight-through, Courbariaux et al. 2016). Gain and norm count as constants.

    ``x [N, K]`` are the floats that the bits were made of, ``weight`` is ``[M, B]`` latent;
    ``output_gain [1]`` and ``norm`` are folded into the product ``[N, M]`` of the dtype of ``x``.
    """
    weight, unit = weight.contiguous(), bits.unit
    assert unit is not None
    with without_autocast(x):
        if norm is None and output_gain is None:
            folded = _fold(weight, bits, unit)
        else:
            offset = bits.offset
            if bits.raised is not None:
                assert bits.gain is not None
                offset = filled(bits.size, -0.5 * bits.gain, weight)
            kinds = (bits.zero_one, offset)
            scale, shift = output_affine(weight, unit, *kinds, output_gain, norm, bits.gain)
            if bits.raised is not None:
                scale = 0.5 * scale  # two products, whose shifts would be each other's opposite
            folded = torch.ops.bitgnn.pack(weight.detach()), scale, shift
        (out,) = _LookedUpLinear.apply(x, weight, None, (bits, *folded, 1, False))
    return out


def trained_products(
    x: Tensor,
    weight: Tensor,
    bits: InputWords,
    parts: int = 1,
    level: Tensor | None = None,
    log_gain: Tensor | None = None,
    *,
    centres: bool = True,
) -> tuple[Tensor, ...]:
    r"""Products as of :func:`looked_up_linear` in training, before batch norms or gains.

    The gradient of a batch norm's input sums to 0 over the batch, so that what is added to each bit
    is left out of the gradient of the weights; not so with ``centres=False``, for norms that do not
    centre these rows on themselves. The level of a gain gets :math:`\sum G Y / 10`, a
    tenth of the gradient of the gain's logarithm.

    ``weight`` is ``[parts * M, B]``, the first product's rows first; the results are ``parts``
    contiguous tensors ``[N, M]``, since norms of a GPU are slow otherwise. ``log_gain``, of a
    level, are logarithms of gains that multiply the products, one for each of several parts of the
    weight with equally many outputs; without a level batch norms follow the products.
    """
    weight = weight.contiguous()
    assert bits.unit is not None
    with without_autocast(x):
        folded = _fold(weight, bits, bits.unit, log_gain)
        operands = (bits, *folded, parts, level is None and centres)
        outs: tuple[Tensor, ...] = _LookedUpLinear.apply(x, weight, level, operands)
    return outs


def _fold(
    weight: Tensor, bits: InputWords, unit: Tensor, log_gain: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Words, scale and shift of a weight without a norm."""
    step = bits.step if bits.gain is None else bits.step * bits.gain
    operands = (weight.detach().float(), unit.float(), step, bits.zero_one)
    words, scale, shift = torch.ops.bitgnn.fold_weight(*operands, bits.offset, log_gain)
    return words, scale, shift if bits.has_shift else None


def output_affine(
    weight: Tensor,
    unit: Tensor,
    zero_one: bool,
    offset: Tensor | None,
    output_gain: Tensor | None = None,
    norm: torch.nn.BatchNorm1d | None = None,
    bit_gain: float | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Scale and shift ``[M]`` with which ``scale * dot + shift`` is the product, gain and norm.

    ``dot`` is the product of -1/+1 bits. With the unit :math:`u` that of -1/+1 bits and offsets is
    :math:`u (dot + \sum_k \mathrm{sgn}(W_{ok}) c_k)`; that of 0/1 bits and offsets is
    :math:`\tfrac{u}{2}(dot + \sum_k \mathrm{sgn}(W_{ok}) (1 + 2 c_k))`.
    Gain and batch norm, in evaluation, multiply both and shift; ``bit_gain``, in training,
    multiplies the bits, not their offsets. Trained layers in evaluation and frozen ones use the
    same two vectors, so that their results agree to the last bit.
    """
    scale = unit.float().expand(weight.size(0))
    if output_gain is not None:
        scale = scale * output_gain.detach().float()
    if offset is None and not zero_one:
        sums = weight.new_zeros(weight.size(0), dtype=torch.float32)
    else:
        added = weight.new_zeros(weight.size(1), dtype=torch.float64)
        if zero_one:
            added += 0.5 if bit_gain is None else 0.5 * bit_gain
        if offset is not None:
            added += offset
        # Offsets are multiples of a power of two: the sums are exact in any order.
        sums = torch.mv(sgn(weight.detach()).double(), added).float()
    shift = scale * sums
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


class _CentredBits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bits: InputWords) -> Tensor:
        ctx.save_for_backward(x if bits.window is not None else None, bits.window)
        gain = 1.0 if bits.gain is None else bits.gain
        ctx.gain = gain * bits.kept
        out = unpacked(bits.words, bits.raised, bits.size)
        out.mul_(bits.step * gain)
        if bits.has_shift:
            out.add_(bits.step * gain + MIDDLE)
        return out.to(x.dtype).view(x.shape)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, window = ctx.saved_tensors
        grad = grad if ctx.gain == 1.0 else grad * ctx.gain
        return grad if x is None else grad * (x.abs() <= window), None


def centred_bits(x: Tensor, bits: InputWords) -> Tensor:
    r"""``g (b - 1/2)`` like ``x``, of an activation's bits b, 0 where dropout has taken them.

    The gradient reaches ``x``, what the bits were made of, where :math:`|x|` is within the window,
    as that of :func:`looked_up_linear` does.
    """
    out: Tensor = _CentredBits.apply(x, bits)
    return out
