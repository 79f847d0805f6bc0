"""Products of inputs known by their statistics, with norms and gains, trained and evaluated."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bitgnn.nn.input_bits import InputBits
from bitgnn.nn.map_linear import MapLinear, is_hooked, through
from bitgnn.nn.norms import ENOUGH_ROWS
from bitgnn.nn.precision import LayerPrecision
from bitgnn.nn.seen_bits import NotesBits
from bitgnn.nn.weight_decay import give_to_decay, spare_from_decay
from bitgnn.quantize import binary_sign
from bitgnn.quantize.dropout import made_once
from bitgnn.quantize.int8_linear import InputRows, int8_linear
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
    """An input ``[*, K]`` and the operand made of its rows."""

    x: Tensor
    operand: InputWords | InputRows


class Part(NamedTuple):
    """One of the products with an input."""

    linear: MapLinear
    """Map with latent weights ``[M, K]``."""
    norm: Any
    """Norm after the product; None for a gain."""
    to_signs: bool = False
    """True if the sign of the result is wanted."""
    is_root: bool = False
    """True if it is the nodes' own product."""


class LookedUpProducts(NotesBits):
    """Mixin of layers that multiply looked-up bits with binary weights.

    After a last layer's product is a gain of the level ``gain_level``, ``[1]`` or None; the
    nodes' own product, where there is one besides the other, has ``root_gain_level``, and its gain
    is multiplied by ``root_start``.
    """

    dropout: float
    root_bits: InputBits | None
    gain_level: nn.Parameter | None
    root_gain_level: nn.Parameter | None
    root_start: float
    _letters: LayerPrecision
    """Precision in use, by the state read last."""

    @property
    def _input_dropout(self) -> float:
        """Probability of dropping an input of the products in training."""
        return self.dropout

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

    def _see(self, x: Tensor, bits: InputBits, dropout: float) -> SeenInput:
        """``[*, K]`` with its operand."""
        operand = bits(x if x.dim() == MATRIX else x.reshape(-1, x.size(-1)), dropout)
        if isinstance(operand, InputWords):
            self._note_words("root input" if bits is self.root_bits else "input", operand, x)
        return SeenInput(x, operand)

    def _bits_product(self, seen: SeenInput, bits: InputBits, part: Part) -> Tensor:
        """The product after its norm or gain; its sign if that is wanted.

        Rows with NaN or infinity give NaN, as they do in floats.
        """
        if not is_hooked(part.linear):
            return self._computed(seen, part)[0]

        def compute(x: Tensor) -> Tensor:
            given = seen if x is seen.x else self._see(x, bits, self._input_dropout)
            return self._computed(given, part)[0]

        return through(part.linear, seen.x, compute)

    def _bits_products(self, seen: SeenInput, bits: InputBits, *parts: Part) -> tuple[Tensor, ...]:
        """Several products of equally many outputs, in training of bits as one with all weights."""
        joins = isinstance(seen.operand, InputWords) and len(parts) > 1
        if joins and not any(is_hooked(part.linear) for part in parts):
            learns = self._learn(*parts)
            if all(learns) or (self.training and all(part.norm is None for part in parts)):
                return self._computed(seen, *parts)
        return tuple(self._bits_product(seen, bits, part) for part in parts)

    @staticmethod
    def _learn(*parts: Part) -> list[bool]:
        """True for each product whose norm takes the statistics of the batch."""
        return [part.norm is not None and part.norm.training for part in parts]

    def _computed(self, seen: SeenInput, *parts: Part) -> tuple[Tensor, ...]:
        """Products of parts that are all learning norms, all gains in training, or just one."""
        rows = seen.x if seen.x.dim() == MATRIX else seen.x.reshape(-1, seen.x.size(-1))
        norm, operand = parts[0].norm, seen.operand
        learns = norm is not None and norm.training
        has_gains = self.training and norm is None
        if isinstance(operand, InputRows):
            (part,) = parts
            outs: Any = (self._rows_product(rows, operand, part, learns, has_gains),)
            return (self._finished(outs[0], seen, part),)
        for part in parts:
            if self.training:
                spare_from_decay(part.linear.weight)
        if not learns and not has_gains:
            (part,) = parts
            gain = None
            if part.norm is None:
                gain = self.root_gain if part.is_root else self.output_gain
            out = looked_up_linear(rows, part.linear.weight, operand, gain, part.norm)
            return (self._finished(out, seen, part),)
        weights = [part.linear.weight for part in parts]
        weight = weights[0] if len(parts) == 1 else torch.cat(weights)
        if has_gains:
            (out,) = trained_products(rows, weight, operand, 1, *self._levels(*parts))
            width = weights[0].size(0)
            if not any(part.to_signs for part in parts):
                return self._finished(out, seen, parts[0]).split(width, -1)
            outs = out.split(width, 1)
        else:
            centres = rows.size(0) >= ENOUGH_ROWS
            products = trained_products(rows, weight, operand, len(parts), centres=centres)
            outs = (part.norm(out) for part, out in zip(parts, products, strict=True))
        finished: list[Tensor] = []
        for out, part in zip(outs, parts, strict=True):
            finished.append(self._finished(out, seen, part))
        return tuple(finished)

    def _rows_product(
        self, x: Tensor, rows: InputRows, part: Part, learns: bool, has_gain: bool
    ) -> Tensor:
        """Product of 8-bit rows after its norm or gain."""
        weight = part.linear.weight
        if self.training:
            give_to_decay(weight)
        weight = weight * rows.factors
        if learns:
            out: Tensor = part.norm(int8_linear(x, weight, rows))
            return out
        level = gain = None
        if part.norm is None:
            gain = self.root_gain if part.is_root else self.output_gain
            if has_gain:
                level = self.root_gain_level if part.is_root else self.gain_level
                assert level is not None
                spare_from_decay(level)
        return int8_linear(x, weight, rows, level=level, output_gain=gain, norm=part.norm)

    def _finished(self, out: Tensor, seen: SeenInput, part: Part) -> Tensor:
        """A product after its sign, with NaN in the rows whose input has NaN or infinity."""
        total = seen.operand.total
        assert total is not None
        if part.to_signs:
            out = binary_sign(out, self._letters.surrogate, total=total)
        else:
            out = out.add(total.unsqueeze(1).to(out.dtype), alpha=0)
        return out if seen.x.dim() == MATRIX else out.view(*seen.x.shape[:-1], -1)

    def _levels(self, *parts: Part) -> tuple[Tensor, Tensor]:
        """In training: levels of the gains of products, and the gains' logarithms."""
        starts: list[float] = []
        held: list[Any] = []
        for part in parts:
            starts.append(GAIN_START + math.log(self.root_start if part.is_root else 1.0))
            held.append(self.root_gain_level if part.is_root else self.gain_level)
            spare_from_decay(held[-1])
        level = held[0] if len(held) == 1 else torch.cat(held)
        now = level.detach().float()
        # Not from the host's memory, which a CUDA graph would read again each time.
        start = made_once(
            tuple(starts),
            now,
            lambda: torch.cat([torch.full_like(now[:1], value) for value in starts]),
        )
        return level, torch.add(start, now, alpha=GAIN_SPEED)


def _gain(level: Tensor) -> Tensor:
    """The gain of a level."""
    steps = level / GAIN_SPEED + level * (GAIN_SPEED - 1 / GAIN_SPEED)
    return (steps.float() + GAIN_START).exp()
