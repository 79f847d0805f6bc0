"""Gradients in place of the sign's derivative, of activations and latent weights, for studies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from hooks import before_epochs
from torch import Tensor
from torch.nn import functional

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.nn import input_bits, looked_up_products
from bitgnn.nn.input_bits import WINDOW
from bitgnn.quantize import sgn
from bitgnn.quantize.looked_up_linear import InputWords

__all__ = [
    "annealed_tanh", "bell", "fourier", "identity", "narrow_window", "polynomial", "power",
    "sharper_tanh", "sloped", "soft_weights", "unit_weights", "values_of",
]  # fmt: skip

Slope = Callable[[Tensor, float], Tensor]
"""Of a value in root mean squares, and the share of the training that is over."""
LEAST = 1e-12


def identity(u: Tensor, _: float) -> Tensor:
    """``1``: straight through without clipping (Bengio et al., "Estimating Gradients", 2013)."""
    return torch.ones_like(u)


def polynomial(u: Tensor, _: float) -> Tensor:
    """``max(0, 2 - 2|u|)`` (Liu et al., "Bi-Real Net", ECCV 2018)."""
    return (2 - 2 * u.abs()).clamp(min=0)


def bell(u: Tensor, _: float, beta: float = 2.0) -> Tensor:
    r"""SignSwish: :math:`\beta (2 - \beta u \tanh(\beta u / 2)) / (1 + \cosh \beta u)`.

    The paper's :math:`\beta = 5` is for weights in [-1, 1]; activations are in root mean squares.
    (Darabi et al., "BNN+: Improved Binary Network Training", 2018.)
    """
    v = (beta * u).clamp(-30, 30)
    return beta * (2 - v * (v / 2).tanh()) / (1 + v.cosh())


def annealed_tanh(u: Tensor, progress: float) -> Tensor:
    r"""EDE: :math:`k t (1 - \tanh^2 t u)`, t from 0.1 to 10, :math:`k = \max(1, 1/t)`.

    (Gong et al., "Differentiable Soft Quantization", ICCV 2019; Qin et al., "Forward and Backward
    Information Retention for Accurate Binary Neural Networks" (IR-Net), CVPR 2020.)
    """
    t = 10 ** (2 * progress - 1)
    return max(1.0, 1 / t) * t * (1 - (t * u).tanh().square())


def power(u: Tensor, progress: float) -> Tensor:
    r"""ReSTE: derivative of :math:`\mathrm{sgn}(u)|u|^{1/o}`, o from 1 to 3, up to 1.5.

    Near 0, where it is infinite, that of the chord up to 0.1.
    (Wu et al., "Estimator Meets Equilibrium Perspective: A Rectified Straight Through Estimator for
    Binary Neural Networks Training", ICCV 2023.)
    """
    o = 1 + 2 * progress
    size = u.abs()
    slope = size.clamp(min=0.1) ** (1 / o - 1) / o
    return torch.where(size < 0.1, 0.1 ** (1 / o - 1), slope) * (size <= 1.5)


def fourier(u: Tensor, _: float, terms: int = 10, omega: float = 0.1) -> Tensor:
    r""":math:`\tfrac{4 \omega}{\pi} \sum_{i < n} \cos (2 i + 1) \omega u`: a square wave's series.

    (Xu et al., "Learning Frequency Domain Approximation for Binary Neural Networks", NeurIPS 2021,
    without their further module.)
    """
    angles = omega * u
    return 4 * omega / math.pi * sum(torch.cos((2 * i + 1) * angles) for i in range(terms))


class _Sloped(torch.autograd.Function):
    """A value within [-1, 1] of the same sign, whose gradient is multiplied by a slope."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.saved_tensors[0], None


def _rms(x: Tensor) -> Tensor:
    return x.detach().square().mean().sqrt().clamp(min=LEAST)


@contextmanager
def _products(
    signs: Callable[..., Tensor], products: Callable[..., tuple[Tensor, ...]]
) -> Iterator[None]:
    """Use other functions behind and for the products of binary layers in training."""
    with (
        patch.object(looked_up_products, "binary_sign", signs),
        patch.object(looked_up_products, "trained_products", products),
    ):
        yield


@contextmanager
def sloped(activations: Slope | None, weights: Slope | None = None) -> Iterator[None]:
    """Give activations, or latent weights, or both, a slope of another form.

    Values are the same. Activations are those in front of a norm's sign and those of an input's
    bits; features have no gradient.
    """
    progress = [0.0]

    def through(slope: Slope, x: Tensor) -> Tensor:
        with torch.no_grad():
            values = slope(x / _rms(x), progress[0])
        return _Sloped.apply(x, values)

    def signs(x: Tensor, surrogate: Any, **total: Any) -> Tensor:
        x = x if activations is None else through(activations, x)
        return sign(x, surrogate, **total)

    def products(x: Tensor, weight: Tensor, bits: InputWords, *rest: Any) -> tuple[Tensor, ...]:
        if bits.window is not None and activations is not None:
            x, bits = through(activations, x), bits._replace(window=None)
        if weights is not None:
            weight = through(weights, weight)
        return trained(x, weight, bits, *rest)

    sign, trained = looked_up_products.binary_sign, looked_up_products.trained_products
    with before_epochs(lambda _, share: progress.__setitem__(0, share)), _products(signs, products):
        yield


def narrow_window() -> Any:
    """Activations pass a gradient up to one root mean square instead of four.

    (Courbariaux et al., "Binarized Neural Networks", 2016, clip at the signs' magnitude.)
    """
    return patch.object(input_bits, "WINDOW", WINDOW / 4)


def sharper_tanh(weight: Tensor, progress: float) -> Tensor | None:
    """``tanh(t w / rms)``, t from 1 to 100; signs for the last tenth.

    (Cao et al., "HashNet: Deep Learning to Hash by Continuation", ICCV 2017.)
    """
    if progress > 0.9:
        return None
    return (100 ** (progress / 0.9) * weight / _rms(weight)).tanh()


def unit_weights(weight: Tensor, progress: float) -> Tensor | None:
    """Weights over their mean magnitude in the first half, then signs.

    (Martinez et al., "Training Binary Neural Networks with Real-to-Binary Convolutions", ICLR
    2020: activations become binary first.)
    """
    if progress >= 0.5:
        return None
    return weight / weight.detach().abs().mean(1, keepdim=True).clamp(min=LEAST)


@contextmanager
def soft_weights(soften: Callable[[Tensor, float], Tensor | None]) -> Iterator[None]:
    """Multiply bits by other weights than signs in training; validation sees the signs."""
    progress = [0.0]

    def products(
        x: Tensor,
        weight: Tensor,
        bits: InputWords,
        unit: Tensor,
        parts: int,
        level: Tensor | None = None,
        log_gain: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        soft = soften(weight, progress[0]) if torch.is_grad_enabled() else None
        if soft is None:
            return trained(x, weight, bits, unit, parts, level, log_gain)
        scale = unit
        if log_gain is not None:
            scale = unit * log_gain.exp().repeat_interleave(weight.size(0) // log_gain.numel())
        # Gradients of gains and activations are those of the product with signs.
        outs = trained(x, weight.detach(), bits, unit, parts, level, log_gain)
        beside = scale * functional.linear(values_of(bits), soft - sgn(weight))
        return tuple(map(torch.add, outs, beside.chunk(parts, 1)))

    sign, trained = looked_up_products.binary_sign, looked_up_products.trained_products
    with before_epochs(lambda _, share: progress.__setitem__(0, share)), _products(sign, products):
        yield


def values_of(bits: InputWords) -> Tensor:
    """``[N, B]`` numbers that bits stand for in a product."""
    gain = 1.0 if bits.gain is None else bits.gain
    signs = torch.ops.bitgnn.unpack(bits.words, bits.size)
    if bits.raised is not None:
        signs = signs + torch.ops.bitgnn.unpack(bits.raised, bits.size)
    values = signs * (bits.step * gain)
    if bits.has_shift:
        values = values + (0.5 * gain if bits.zero_one else 0.0)
        values = values if bits.offset is None else values + bits.offset
    return values
