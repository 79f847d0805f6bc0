"""Products with looked-up bits behind their norms and gains, as trained and as evaluated."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bitgnn.nn.input_bits import InputBits
from bitgnn.nn.precision import LayerPrecision
from bitgnn.nn.roles import KeptEntries, kept_entries
from bitgnn.nn.seen_bits import NotesBits
from bitgnn.nn.weight_decay import spare_from_decay
from bitgnn.quantize import binary_sign
from bitgnn.quantize.dropout import made_once
from bitgnn.quantize.looked_up_linear import (
    GAIN_SPEED,
    InputWords,
    looked_up_linear,
    trained_products,
)

GAIN_START = -2.0
"""Logarithm of a last layer's gain at first. Starting at 0 loses 4 points on few labels."""
MATRIX = 2


class SeenInput(NamedTuple):
    """An input ``[*, K]`` and its bits, as rows."""

    x: Tensor
    words: InputWords


class Part(NamedTuple):
    """One of the products with an input's bits."""

    weight: Tensor
    """``[M, B]`` latent weights."""
    norm: Any
    """Behind the product, or None: a gain is there instead."""
    to_signs: bool = False
    """Whether the sign of the result is wanted."""
    is_root: bool = False
    """Whether it is the nodes' own product."""


class LookedUpProducts(NotesBits):
    """Mixin of layers that multiply looked-up bits with binary weights.

    Behind a last layer's product is a gain of the level ``gain_level``, ``[1]`` or None; the
    nodes' own product, where there is one beside the other, has ``root_gain_level``, and its gain
    is multiplied by ``root_start``.
    """

    letters: LayerPrecision
    root_bits: InputBits | None
    gain_level: nn.Parameter | None
    root_gain_level: nn.Parameter | None
    root_start: float

    @property
    def output_gain(self) -> Tensor | None:
        r"""Gain of a last layer's product: ``[1]``, :math:`e^{10 l - 2}`, or None.

        Scores start small, so that a few labelled nodes do not settle all of the signs before the
        loss has said much; Adam, whose steps know no scale, lets them grow in a few epochs where
        many nodes or classes ask for it. The gradient that reaches the level :math:`l` is a tenth
        of the logarithm's, so that a step of plain gradient descent is one of the logarithm.
        """
        return None if self.gain_level is None else _gain(self.gain_level.detach())

    @property
    def root_gain(self) -> Tensor | None:
        """The same for the nodes' own product, which starts at a share of the neighbours'."""
        level = self.root_gain_level
        return None if level is None else self.root_start * _gain(level.detach())

    def _kept(self, x: Tensor, bits: InputBits) -> KeptEntries | None:
        """Entries of an activation that dropout has kept; None for features, not known there."""
        if not (self.training and x.requires_grad):
            return None
        if torch.compiler.is_compiling():
            return KeptEntries(None, bits.kept_share)
        entries = kept_entries(x)
        bits.kept_share = entries.share
        return entries

    def _see(self, x: Tensor, bits: InputBits, dropout: float) -> SeenInput:
        """``[*, K]`` with its bits; those of a pattern where nothing was looked up yet."""
        if not bits.is_settled and torch.is_grad_enabled():
            if x.requires_grad:
                bits.settle_activation(x)
            else:
                bits.settle("pattern")
        words: InputWords = bits(x.reshape(-1, x.size(-1)), dropout, self._kept(x, bits))
        self._note_words("root input" if bits is self.root_bits else "input", words, x)
        return SeenInput(x, words)

    def _bits_product(self, seen: SeenInput, bits: InputBits, part: Part) -> Tensor:
        """The product of looked-up bits behind its norm or gain; its sign where that is wanted.

        Rows with NaN or infinity give NaN, as they do in floats.
        """
        return self._bits_products(seen, bits, part)[0]

    def _bits_products(self, seen: SeenInput, bits: InputBits, *parts: Part) -> tuple[Tensor, ...]:
        """Several products of equally many outputs, in training as one with all the weights."""
        rows = seen.x if seen.x.dim() == MATRIX else seen.x.reshape(-1, seen.x.size(-1))
        # Norms take the statistics of the batch behind the product.
        learns = [p.norm is not None and p.norm.training for p in parts]
        has_gains = self.training and all(part.norm is None for part in parts)
        if not all(learns) and not has_gains:
            if len(parts) > 1:
                return tuple(self._bits_product(seen, bits, part) for part in parts)
            return (self._folded(seen, rows, bits, parts[0]),)
        for part in parts:
            spare_from_decay(part.weight)
        weights = [part.weight for part in parts]
        weight = weights[0] if len(parts) == 1 else torch.cat(weights)
        operands = (rows, weight, seen.words, bits.unit)
        each: Any
        if has_gains:
            (out,) = trained_products(*operands, 1, *self._levels(*parts))
            each = (out,) if len(parts) == 1 else out.split(weights[0].size(0), 1)
        else:
            products = trained_products(*operands, len(parts))
            each = (part.norm(out) for part, out in zip(parts, products, strict=True))
        return tuple(self._finished(out, seen, part) for out, part in zip(each, parts, strict=True))

    def _folded(self, seen: SeenInput, rows: Tensor, bits: InputBits, part: Part) -> Tensor:
        """A product with its norm or gain in one affine map."""
        gain = None
        if part.norm is None:
            gain = self.root_gain if part.is_root else self.output_gain
        elif self.training:
            spare_from_decay(part.weight)
        operands = (rows, part.weight, seen.words, bits.unit, gain, part.norm)
        return self._finished(looked_up_linear(*operands), seen, part)

    def _finished(self, out: Tensor, seen: SeenInput, part: Part) -> Tensor:
        """A product behind its sign, with NaN in the rows whose input has NaN or infinity."""
        total = seen.words.total
        assert total is not None
        if part.to_signs:
            out = binary_sign(out, self.letters.surrogate, total=total)
        else:
            out = out.add(total.unsqueeze(1).to(out.dtype), alpha=0)
        return out if seen.x.dim() == MATRIX else out.view(*seen.x.shape[:-1], -1)

    def _levels(self, *parts: Part) -> tuple[Tensor, Tensor]:
        """In training: levels of the gains of products, and the gains' logarithms."""
        levels = [self.root_gain_level if part.is_root else self.gain_level for part in parts]
        starts = tuple(
            GAIN_START + math.log(self.root_start if part.is_root else 1.0) for part in parts
        )
        held: list[Tensor] = [level for level in levels if level is not None]
        assert len(held) == len(parts)
        for each in held:
            spare_from_decay(each)
        level = held[0] if len(held) == 1 else torch.cat(held)
        now = level.detach().float()
        # Not from the host's memory, which a CUDA graph would read again each time.
        start = made_once(
            starts, now, lambda: torch.cat([torch.full_like(now[:1], value) for value in starts])
        )
        return level, torch.add(start, now, alpha=GAIN_SPEED)


def _gain(level: Tensor) -> Tensor:
    """The gain of a level."""
    steps = level / GAIN_SPEED + level * (GAIN_SPEED - 1 / GAIN_SPEED)
    return (steps.float() + GAIN_START).exp()
