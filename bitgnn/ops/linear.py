r"""Linear layers of packed rows: float weights in digits, and chains of layers in one call.

:func:`bits_linear` is ``torch.nn.functional.linear`` of signs with float weights. The weights are
taken to integers of 24 bits with one step an output, which rounds them no more than adding them up
in float32 would, and kept as three digits of 8 bits. The sums of the digits are exact integers:
results are the same on every device and from run to run.

:func:`linear_chain` runs fully connected layers on bits, one after the other in one call. A small
network is bound by the launches of its layers. On a GPU of compute capability 9.0 a cluster of
blocks takes 16 or 48 rows through all layers in one launch, the weights held in shared memory, so
that a layer costs a barrier; elsewhere, or where the weights are too large
(:meth:`LinearChain.fits`), layers one by one are faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn._checks import name_type
from bitgnn.bits import BitTensor
from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops.reference.bmm import DIGITS, HIDDEN_TABLE, SHIFTS, chain_words
from bitgnn.ops.reference.pack import from_words

MOST_FEATURES = 65024
"""Features up to which the sums of digits fit int32."""
LARGEST = 127 * 65536 + 127 * 256 + 127
MOST_LAYERS = 8
MOST_CHAIN_FEATURES = 1 << 14
"""Features and outputs of a layer of a chain."""


def weight_digits(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Float weights as digits for :func:`bits_linear`.

    Args:
        weight: finite, floating point ``[M, K]`` as in ``torch.nn.Linear``.

    Returns:
        Digits ``[3, M, ceil(K / 32), 8, 4]`` in int8 and float32 steps ``[M]`` with
        ``weight = (65536 d0 + 256 d1 + d2) * step``, off by half a step, 2**-24 of an output's
        largest weight, at most. Byte ``[t, j]`` of a word is that of its feature ``t + 8 j``.

    Raises:
        ValueError: a weight is NaN or infinite, or the shape is no matrix's.
    """
    if weight.dim() != 2:
        raise ValueError(f"weight_digits: weight must be [M, K], got {weight.shape}")
    if not bool(torch.isfinite(weight).all()):
        raise ValueError("weight_digits: weight must be finite")
    outputs, size = weight.shape
    words = words_for(size)
    exact = functional.pad(weight.double(), (0, words * WORD_BITS - size))
    largest = exact.abs().amax(1) if words else exact.new_zeros(outputs)
    # Just above, so that no weight rounds past the largest integer.
    step = torch.nextafter(
        (largest / LARGEST).float(),
        torch.full((), float("inf"), device=weight.device, dtype=torch.float32),
    )
    whole = (exact / step.double().unsqueeze(1)).round().to(torch.int64)
    digits = []
    for _ in range(DIGITS):
        lowest = ((whole + 128) & 255) - 128
        digits.append(lowest.to(torch.int8))
        whole = (whole - lowest) >> 8
    grouped = torch.stack(digits[::-1]).view(DIGITS, outputs, words, WORD_BITS // SHIFTS, SHIFTS)
    return grouped.transpose(-1, -2).contiguous(), step


def bits_linear(
    x: BitTensor,
    digits: Tensor,
    step: Tensor,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    addend: Tensor | None = None,
) -> Tensor:
    """Float32 ``[N, M]``: ``x_scale[i] * sum_k x[i, k] weight[o, k] + bias[o] + addend[i, o]``.

    Args:
        x: signs ``[N, K]``, with ``scale`` times the row scale they hold, if any.
        digits: of the weights, from :func:`weight_digits`.
        step: from there too.
        scale: whether the row scale acts.
        bias: float32 ``[M]``.
        addend: float32 ``[N, M]``, such as the other branch of a GraphSAGE or GraphConv layer.

    Raises:
        TypeError: x is no ``BitTensor``, or a dtype does not fit.
        ValueError: a shape or device does not fit, or K is above :data:`MOST_FEATURES`.
    """
    name = "linear.bits_linear"
    _arguments.bit_matrix(name, "x", x)
    if x.size > MOST_FEATURES:
        raise ValueError(f"{name}: x must hold at most {MOST_FEATURES} features, got {x.size}")
    return call(
        name, "bits_linear", x.words, digits, step, x.size, x.scale if scale else None, bias, addend
    )


@dataclass(frozen=True)
class LinearChain:
    """Layers made ready by :func:`make_chain`.

    Attributes:
        image: int32, the weights and tables of all layers.
        layers: size, outputs, and offsets of weights and table in the image, of each layer.
    """

    image: Tensor
    layers: tuple[int, ...]

    @property
    def size(self) -> int:
        """Features of the first layer."""
        return self.layers[0]

    def fits(self) -> bool:
        """True if the chain's device is a GPU that takes it in one launch; a row of zeros tells."""
        if not self.image.is_cuda:
            return False
        row = self.image.new_zeros(1, words_for(self.size))
        try:
            torch.ops.bitgnn.linear_chain(row, self.image, list(self.layers))
        except RuntimeError:
            return False
        return True


def make_chain(
    hidden: Sequence[tuple[BitTensor, Tensor]],
    last: BitTensor,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
) -> LinearChain:
    """Pack weights and comparisons of layers into one buffer.

    Args:
        hidden: of each layer but the last the weights ``[M, K]`` and int32 ``[M, 2]``: limit and
            turned, the last two columns of :func:`bitgnn.ops.conv.prepare`; a bit of the layer is
            ``(dot >= limit) ^ turned``.
        last: weights of the last layer, whose own scale is not used.
        scale: float32 ``[M]`` of the last layer, 1 without one.
        bias: float32 ``[M]`` of the last layer.

    Raises:
        TypeError: a type or dtype does not fit.
        ValueError: a shape or device does not fit, or there are too many or too wide layers.
    """
    name = "make_chain"
    weights = [*(w for w, _ in hidden), last]
    if len(weights) > MOST_LAYERS:
        raise ValueError(f"{name}: at most {MOST_LAYERS} layers make a chain, got {len(weights)}")
    for number, w in enumerate(weights):
        _arguments.bit_matrix(name, f"weights of layer {number}", w)
        if not (1 <= w.size <= MOST_CHAIN_FEATURES and 1 <= w.shape[0] <= MOST_CHAIN_FEATURES):
            raise ValueError(
                f"{name}: layer {number} must have 1 to {MOST_CHAIN_FEATURES} features and "
                f"outputs, got {w.size} and {w.shape[0]}"
            )
        before = weights[number - 1].shape[0] if number else w.size
        if w.size != before:
            raise ValueError(
                f"{name}: layer {number} must take the {before} outputs of the one before, got "
                f"{w.size} features"
            )
    outputs = last.shape[0]
    _arguments.vector(name, "scale", scale, outputs, last.device)
    _arguments.vector(name, "bias", bias, outputs, last.device)
    parts: list[Tensor] = []
    layers: list[int] = []
    for number, w in enumerate(weights):
        counts = from_words(w.words, w.size).sum(1, dtype=torch.int64)
        if number < len(hidden):
            table = _hidden_table(name, number, hidden[number][1], w, counts)
        else:
            table = _last_table(w, counts, scale, bias)
        padding = chain_words(w.size) - w.words.size(1)
        words = functional.pad(w.words, (0, padding)).flatten()
        at = sum(part.numel() for part in parts)
        layers += [w.size, w.shape[0], at, at + words.numel()]
        # Tables end on whole pieces of 16 bytes.
        parts += [words, functional.pad(table.flatten(), (0, -table.numel() % 4))]
    return LinearChain(torch.cat(parts), tuple(layers))


def _hidden_table(name: str, number: int, given: Tensor, w: BitTensor, counts: Tensor) -> Tensor:
    """Least value of ``2 p - |x|`` for which the comparison holds, and whether it is turned."""
    shape = (w.shape[0], HIDDEN_TABLE)
    if not (isinstance(given, Tensor) and given.dtype == torch.int32 and given.shape == shape):
        raise ValueError(
            f"{name}: limit and turned of layer {number} must be int32 {list(shape)}, got "
            f"{name_type(given)}"
        )
    # dot = K - 2 |w| + 2 (2 p - |x|) >= limit
    least = -((w.size - 2 * counts - given[:, 0].long()) // 2)
    return torch.stack([least.to(torch.int32), given[:, 1]], 1)


def _last_table(w: BitTensor, counts: Tensor, scale: Tensor | None, bias: Tensor | None) -> Tensor:
    """Bare dot product, scale, bias and an empty word."""
    bare = (w.size - 2 * counts).to(torch.int32)
    ones = torch.ones(w.shape[0], device=w.device, dtype=torch.float32) if scale is None else scale
    bias = torch.zeros_like(ones) if bias is None else bias
    floats = [ones.view(torch.int32), bias.view(torch.int32)]
    return torch.stack([bare, *floats, torch.zeros_like(bare)], 1)


def linear_chain(x: BitTensor, chain: LinearChain) -> Tensor:
    """Values of the last layer, float32 ``[N, M]``.

    ``scale * dot + bias`` of the last layer on the bits of the layers before it, as by
    :func:`bitgnn.ops.bmm.bbb` and :func:`bitgnn.ops.bmm.bbf`, bit for bit.

    Args:
        x: ``[N, K]`` without a scale.
        chain: from :func:`make_chain`, on the device of ``x``.

    Raises:
        TypeError: ``x`` is no BitTensor.
        ValueError: features or devices do not fit, or ``x`` holds a scale.
        RuntimeError: on a GPU, the chain does not fit it; see :meth:`LinearChain.fits`.
    """
    name = "linear_chain"
    _arguments.bit_matrix(name, "x", x)
    if x.scale is not None:
        raise ValueError(f"{name}: x must hold no scale, got one of each row")
    if x.size != chain.size:
        raise ValueError(f"{name}: x must have {chain.size} features, got {x.size}")
    _arguments.same_device(name, "chain", chain.image.device, x.device)
    return torch.ops.bitgnn.linear_chain(x.words, chain.image, chain.layers)
