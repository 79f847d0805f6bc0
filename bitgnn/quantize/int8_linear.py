"""Products of 8-bit rows with 8-bit weights: exact integers, and gradients straight through."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.ops.int8 import quantise_weight
from bitgnn.quantize.first_order import first_order
from bitgnn.quantize.linear import without_autocast
from bitgnn.quantize.looked_up_linear import GAIN_SPEED

UNITS = 32.0
"""Steps of an 8-bit row in one standard deviation of its column: 127 steps are 4 deviations."""
MOST = 127
MOST_FAVOUR = 4.0
"""Factor of a column's weights at most."""
MOST_UNPACKED = 2**26
"""Codes that the backward pass makes floats of at a time, in whole rows."""


class InputRows(NamedTuple):
    """Input as 8-bit rows.

    * ``codes``: int8 ``[N, P]``, P a multiple of 16; ``size``: K, the columns before the padding.
    * ``inverse_step``: float32 ``[K]``; a code is the distance from the column's centre times it,
      rounded.
    * ``gain``: number that makes up for codes that dropout has set to 0 in training.
    * ``total``: float32 ``[N]``, finite where all of a row is.
    * ``factors``: float32 ``[K]``, :func:`column_factors` of all weights that multiply the rows.
    """

    codes: Tensor
    size: int
    inverse_step: Tensor
    gain: float
    total: Tensor
    factors: Tensor


def column_factors(inverse_step: Tensor) -> Tensor:
    r"""Factors ``[K]`` that make weights of 8-bit rows from weights of the features themselves.

    Rows hold columns in units of their standard deviations :math:`\sigma_k`. Latent weights act on
    the features as PyG's do, so that columns that vary little, often noise, start with little say:
    :math:`W_{ok} \, \mathrm{clamp}(\sigma_k / \sigma, 1/4, 4)` with the geometric mean
    :math:`\sigma`. Within these bounds columns of another scale altogether are learnt from, too.
    """
    varies = inverse_step > 0
    logarithms = torch.where(varies, inverse_step.log(), 0.0)
    middle = logarithms.sum() / varies.sum().clamp(min=1)
    ratio = torch.where(varies, middle - logarithms, 0.0).exp()
    return ratio.clamp(1.0 / MOST_FAVOUR, MOST_FAVOUR)


def int8_affine(
    steps: Tensor,
    norm: torch.nn.BatchNorm1d | None = None,
    output_gain: Tensor | None = None,
    input_gain: float = 1.0,
) -> tuple[Tensor, Tensor | None]:
    r"""Scale and shift ``[M]`` with which ``scale * dot + shift`` is product, gain and norm.

    With steps :math:`s_o` of the weights the product is :math:`\tfrac{s_o}{32} dot`. Trained layers
    in evaluation and frozen ones use the same two vectors, so that their results agree to the bit.

    Args:
        steps: float32 ``[M]``, of :func:`bitgnn.ops.int8.quantise_weight`.
        norm: batch norm after the product, in evaluation.
        output_gain: ``[1]``, gain after the product.
        input_gain: of the input, in training.
    """
    scale = steps * (input_gain / UNITS)
    if output_gain is not None:
        scale = scale * output_gain.detach().float()
    if norm is None:
        return scale, None
    assert norm.running_mean is not None
    assert norm.running_var is not None
    gain = torch.rsqrt(norm.running_var.float() + norm.eps)
    if norm.weight is not None:
        gain = gain * norm.weight.detach().float()
    shift = (0.0 - norm.running_mean.float()) * gain
    if norm.bias is not None:
        shift = shift + norm.bias.detach().float()
    return scale * gain, shift


class _Int8Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        level: Tensor | None,
        rows: InputRows,
        gain: Tensor | None,
        norm: Any,
    ) -> Tensor:
        codes, steps = quantise_weight(weight)
        scale, shift = int8_affine(steps, norm, gain, rows.gain)
        out = torch.ops.bitgnn.bmm_iif(rows.codes, codes, rows.size, scale, shift)
        ctx.save_for_backward(
            rows.codes,
            codes if ctx.needs_input_grad[0] else None,
            rows.inverse_step,
            scale,
            steps,
            out if ctx.needs_input_grad[2] else None,
        )
        ctx.size, ctx.dtypes = rows.size, (x.dtype, weight.dtype)
        return out.to(x.dtype)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        codes, w_codes, inverse_step, scale, steps, out = ctx.saved_tensors
        size, (x_dtype, w_dtype) = ctx.size, ctx.dtypes
        grad = grad.float()
        grad_x = grad_weight = grad_level = None
        if w_codes is not None:
            grad_x = (grad * scale) @ w_codes[:, :size].float()
            inside = codes[:, :size].abs() < MOST
            grad_x = (grad_x * inverse_step).mul_(inside).to(x_dtype)
        if ctx.needs_input_grad[1]:
            # The weight is its code times its step.
            grad_weight = _times_codes(grad.t(), codes, size)
            grad_weight = grad_weight.mul_((scale / steps).unsqueeze(1)).to(w_dtype)
        if out is not None:
            # As of every gain, a tenth of the gradient of its logarithm.
            grad_level = (grad * out).sum().view(1).div(GAIN_SPEED)
        return grad_x, grad_weight, grad_level, None, None, None


def _times_codes(left: Tensor, codes: Tensor, size: int) -> Tensor:
    """``left [M, N]`` times codes ``[N, K]``, made floats some rows at a time."""
    rows, out = max(1, MOST_UNPACKED // max(size, 1)), None
    for first in range(0, codes.size(0), rows):
        some = slice(first, first + rows)
        values = codes[some, :size].float()
        out = left[:, some] @ values if out is None else out.addmm_(left[:, some], values)
    return left.new_zeros(left.size(0), size) if out is None else out


def int8_linear(
    x: Tensor,
    weight: Tensor,
    rows: InputRows,
    *,
    level: Tensor | None = None,
    output_gain: Tensor | None = None,
    norm: torch.nn.BatchNorm1d | None = None,
) -> Tensor:
    r"""``scale * sum_k q_ik w_ok + shift`` with the codes q of ``x`` and w of ``weight``.

    Backward, straight through both roundings: weights get :math:`G^\top q`, ``x`` gets
    :math:`G w` where its code is not clipped. Statistics, scales and the norm count as constants.

    Args:
        x: floats ``[N, K]`` that the codes were made of.
        weight: latent floats ``[M, K]``.
        rows: codes of ``x``.
        level: level of the gain, which gets a gradient in training.
        output_gain: ``[1]``, gain after the product.
        norm: batch norm to fold in, in evaluation.

    Returns:
        ``[N, M]`` of the dtype of ``x``.
    """
    with without_autocast(x):
        out: Tensor = _Int8Linear.apply(x, weight, level, rows, output_gain, norm)
    return out
