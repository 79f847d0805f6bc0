"""Input bits of a binary layer: a pattern, or thresholds looked up from the data."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits.tensor_version import TensorMemory
from bitgnn.nn.roles import KeptEntries
from bitgnn.nn.thermometer import (
    TINY,
    check_finite_columns,
    dropped_share,
    exact_offset,
    near_probability,
    thermometers_of,
    warn_of_constant_columns,
)
from bitgnn.quantize.dropout import all_words, filled, keep_words
from bitgnn.quantize.looked_up_linear import MIDDLE, InputWords

InputKind = Literal["pattern", "thermometer", "activation"]
KINDS: tuple[InputKind, ...] = ("pattern", "thermometer", "activation")

LOOKED_AT = 16384
"""Rows that thresholds are made of at most."""
SPARSE = 0.5
"""Share of zeros from which on non-negative features count as a pattern."""
RARE = 0.05
"""Share of a feature's own zeros up to which a 0 in training counts as dropped."""
DEVIATIONS = 4.0
MOST_GAIN = 20.0
SMOOTHING = 0.1
"""Weight of a step's share of bits among those of late."""
LEAST_SHARE = 1e-3
WINDOW = 4.0
"""Half-width of the straight-through window, in root mean squares of the input."""
KEPT_FLOAT = ("thresholds", "offset", "median", "unit", "present")
"""Buffers that are float32 whatever a model is cast to."""


class InputBits(nn.Module):
    r"""Looks up once what a layer's input is made of, and makes bits of it ever after.

    * ``"pattern"``: one bit a feature, :math:`x \ge 2^{-126}`, standing for 0 or 1. Sparse
      non-negative features (bags of words, one-hot codes); what dropout zeroes is a bit that is not
      there.
    * ``"activation"``: one bit a feature, :math:`x \ge 2^{-126}`, standing for -1/2 or +1/2. A ReLU
      in front changes no bit; what dropout zeroes counts as 0, which is half the noise that a
      dropped 0 or 1 would be.
    * ``"thermometer"``: up to 15 bits a feature, :math:`x \ge t_{kl}`, standing for -1 or +1, with
      thresholds at quantiles of the feature's values. A feature with few values gets fewer bits.
      Each bit has its own weights: the layer's weight matrix widens from ``[M, K]`` to ``[M, B]``.

    Activations are whatever needs a gradient; features are looked at in the first
    forward, in training or with gradients enabled. Dropout in front of the layer may be under way
    then: its share is recognised by columns of equal shares of zeros. From the first forward in
    evaluation on, the layer knows which share of bits training drops, and makes up for it.

    Bits of features have their means taken away: what a product's mean would be changes with every
    sign of a weight that flips, faster than running statistics of a norm can follow.

    Args:
        owner: name of the layer's class, for messages.
    """

    code: Tensor
    columns: Tensor
    thresholds: Tensor
    offset: Tensor
    median: Tensor
    rare: Tensor
    present: Tensor
    unit: Tensor

    def __init__(self, owner: str) -> None:
        super().__init__()
        self.owner = owner
        self.kind: InputKind | None = None
        self.register_buffer("code", torch.tensor(0, dtype=torch.int8))
        self.register_buffer("columns", torch.empty(0, dtype=torch.int64))
        self.register_buffer("thresholds", torch.empty(0))
        # Minus the mean of each bit, so that products have none; the median of each feature.
        self.register_buffer("offset", torch.empty(0))
        self.register_buffer("median", torch.empty(0))
        self.register_buffer("rare", torch.empty(0, dtype=torch.bool))
        # 1 over the root of how many bits of a row say something: products start at variance 1.
        self.register_buffer("unit", torch.ones(()))
        # Share of bits that are there: in training of late, in evaluation, in training at first;
        # 0 is not known yet.
        self.register_buffer("present", torch.zeros(3))
        self._knows_share = self._has_trained = False
        self._middles = TensorMemory()
        # Share of an activation's entries that dropout kept in the last forward.
        self.kept_share = 1.0

    @property
    def is_settled(self) -> bool:
        """Whether the input was looked at."""
        return self.kind is not None

    @property
    def needs_evaluation(self) -> bool:
        """Whether training may have dropped features whose share no evaluation has told yet."""
        late, evaluated, first = self.present.tolist()
        return evaluated == 0.0 and late != first

    @property
    def bit_offset(self) -> Tensor | None:
        """Offset of the bits: minus their means, or None as long as nothing is known."""
        return self.offset if self.offset.numel() else None

    def _apply(self, fn: Any, recurse: bool = True) -> InputBits:
        """Thresholds stay float32 where a model is cast: float32 values are compared with them."""
        held = {name: getattr(self, name) for name in KEPT_FLOAT}
        super()._apply(fn, recurse)
        for name, before in held.items():
            after = getattr(self, name)
            if after.dtype != before.dtype:
                setattr(self, name, before.to(after.device))
        return self

    def settle(self, kind: InputKind) -> None:
        """Fix what the bits are."""
        self.kind = kind
        self.code.fill_(1 + KINDS.index(kind))

    @torch.compiler.disable
    def look_up(self, x: Tensor) -> None:
        """Settle from the first input ``[N, K]``.

        Warns of constant columns where each has thresholds, and of a pattern of equal rows.

        Raises:
            ValueError: a value is NaN or infinite.
        """
        self.unit.fill_(1 / math.sqrt(max(x.size(1), 1)))
        if x.requires_grad:
            return self.settle_activation(x)
        if x.numel() == 0:
            return self.settle("pattern")
        rows = x.detach()
        if rows.size(0) > LOOKED_AT:
            step = rows.size(0) / LOOKED_AT
            rows = rows[(torch.arange(LOOKED_AT, device=x.device) * step).long()]
        rows = rows.float()
        check_finite_columns(self.owner, rows)
        zeros = (rows == 0).float().mean(0)
        dropped = dropped_share(rows, zeros) if self.training else 0.0
        share = (float(zeros.mean()) - dropped) / (1 - dropped)
        if share >= SPARSE and bool((rows >= 0).all()):
            self.settle("pattern")
            warn_of_constant_columns(self.owner, rows, few_are_usual=True)
            self.offset = exact_offset((rows >= TINY).float().mean(0).neg())
            self.unit.fill_(1 / math.sqrt(max((1 - share) * x.size(1), 1)))
            return
        warn_of_constant_columns(self.owner, rows)
        noise = DEVIATIONS * math.sqrt(dropped * (1 - dropped) / rows.size(0))
        self.rare = zeros - dropped <= max(RARE * (1 - dropped), noise)
        found = thermometers_of(rows * (1 - dropped), self.rare if dropped > 0.0 else None)
        self.settle("thermometer")
        self.columns, self.thresholds, self.offset, self.median = found
        self.unit.fill_(1 / math.sqrt(max(self.thresholds.numel(), 1)))

    def settle_activation(self, x: Tensor) -> None:
        """One bit a feature, of both signs."""
        self.settle("activation")
        self.offset = torch.full((x.size(1),), MIDDLE, device=x.device)
        # The bits are halves.
        self.unit.fill_(2 / math.sqrt(max(x.size(1), 1)))

    def forward(
        self, x: Tensor, dropout: float = 0.0, kept: KeptEntries | None = None
    ) -> InputWords:
        """Bits of an input ``[N, K]``.

        Args:
            x: floats.
            dropout: probability of dropping a bit in training.
            kept: what dropout in front of an activation has kept, in training.

        Raises:
            ValueError: ``x`` has fewer features than the thermometers were made of.
        """
        size, has_gradient = x.size(1), x.requires_grad
        x = x.detach().float().contiguous()
        dropout = dropout if self.training else 0.0
        if self.kind == "thermometer":
            return self._thermometer(x, dropout)._replace(total=x.sum(1))
        factor = WINDOW / math.sqrt(max(x.numel(), 1))
        if self.kind == "activation":
            return self._activation(x, dropout, kept, factor)
        # Times 0, rows are NaN where one of their values is not finite.
        operands = (x, filled(size, TINY, x), filled(size, 0.0, x))
        words, total = torch.ops.bitgnn.pack_scaled(*operands)
        window = torch.linalg.vector_norm(x) * factor if has_gradient else None
        gain: Tensor | float | None = self._gain(words, size) if self.offset.numel() else None
        if dropout > 0.0:
            keep, probability = keep_words(words.size(0), size, dropout, words)
            words = words & keep
            gain = (1.0 if gain is None else gain) / probability
        found = InputWords(words, size, True, gain, self.bit_offset)
        return found._replace(total=total, window=window)

    def _activation(
        self, x: Tensor, dropout: float, entries: KeptEntries | None, factor: float
    ) -> InputWords:
        """Bits of an activation; dropped ones are in the middle, where the mask is known."""
        size = x.size(1)
        mask, share = entries or (None, 1.0)
        # What is dropped is 0, and a bit that is not set.
        mask = mask.reshape(x.shape) if mask is not None and share < 1.0 else None
        words, raised, total, window = torch.ops.bitgnn.activation_bits(x, mask, TINY, factor)
        raised = None if mask is None else raised
        if dropout > 0.0:
            keep, probability = keep_words(words.size(0), size, dropout, words)
            # Of a dropout in front whose mask is not known, dropped bits are zeros.
            raised = (words if raised is None else raised) | (all_words(size, words) ^ keep)
            words, share = words & keep, share * probability
        gain = None if share >= 1.0 else 1.0 / max(share, LEAST_SHARE)
        if gain is None:
            raised = None
        kinds = (None, raised, True, total, window)
        return InputWords(words, size, True, gain, self.bit_offset, *kinds)

    def _thermometer(self, x: Tensor, dropout: float) -> InputWords:
        """Bits of dense features; dropped ones are those of the feature's median.

        The gain acts on what differs from what dropped bits are, so that dropout changes no mean.
        """
        features = self.median.numel()
        if x.size(1) < features:
            raise ValueError(f"{self.owner}: x must be [N, {features}], got {list(x.shape)}")
        size, gone = self.thresholds.numel(), self._gone(x)
        if gone is None and dropout == 0.0:
            return InputWords(self._levels(x), size, False, None, self.offset, self.columns)
        looked_up = self.median, self.rare, self.columns, self.thresholds
        middles, middle, left, number = self._middles.get(looked_up, None, self._find_middles)
        gain, offset = filled(1, 1.0, x)[0], self.offset
        if gone is not None:
            # Dropout has divided what it kept by the share that it kept.
            kept = 1.0 - near_probability(gone.sum() / (number * max(gone.size(0), 1)))
            kept = kept.clamp(min=1 / MOST_GAIN)
            x, gain = torch.where(gone, self.median, x * kept), kept.reciprocal()
            offset = torch.addcmul(offset, left, 1.0 - gain)
        words = self._levels(x)
        if dropout > 0.0:
            keep, probability = keep_words(words.size(0), size, dropout, words)
            words = (words & keep) | (middles & ~keep)
            offset = offset + (gain - gain / probability) * middle
            gain = gain / probability
        return InputWords(words, size, False, gain, offset, self.columns)

    def _find_middles(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Bits of medians, packed and as signs, signs of what dropout leaves, and rare zeros."""
        # A dropout in front leaves 0 where features have zeros of their own.
        left = torch.where(self.rare, self.median, 0.0)
        middles = self._levels(torch.stack((self.median, left)))
        signs = torch.ops.bitgnn.unpack(middles, self.thresholds.numel())
        return middles[:1], signs[0], signs[1], self.rare.sum().clamp(min=1)

    def _levels(self, x: Tensor) -> Tensor:
        words: Tensor = torch.ops.bitgnn.pack_levels(x, self.columns, self.thresholds, trusted=True)
        return words

    def _gone(self, x: Tensor) -> Tensor | None:
        """Zeros of features that hardly have any, which a dropout in front has made."""
        if not self.training or x.size(1) != self.rare.numel():
            return None
        gone = (x == 0) & self.rare
        # Asking a GPU would mean waiting for it; without zeros both ways give the same.
        return gone if x.is_cuda or bool(gone.any()) else None

    def _gain(self, words: Tensor, size: int) -> Tensor | None:
        """Factor that makes up for the bits that a dropout in front of the layer takes."""
        if not self.training and self._knows_share:
            return None
        weight = SMOOTHING if self.training and self._has_trained else 1.0
        operands = (words, size, self.present, weight, MOST_GAIN)
        share, gain = torch.ops.bitgnn.kept_share(*operands)
        if self.training:
            self.present[0 if self._has_trained else slice(None, None, 2)] = share
            self._has_trained = True
            found: Tensor = gain
            return found if self._knows_share else None
        if not torch.compiler.is_compiling():
            # Means looked up under dropout. Autograd may hold the old tensor, and takes
            # none of inference mode.
            with torch.inference_mode(False), torch.no_grad():
                ratio = torch.where(self.present[0] > 0, share / self.present[0], 1.0)
                self.offset = exact_offset(self.offset * ratio.clamp(1.0, MOST_GAIN))
            self.present[1], self._knows_share = share, True
        return None

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Thermometers are as long as those that are loaded."""
        for name in ("columns", "thresholds", "offset", "median", "rare"):
            loaded = state_dict.get(prefix + name)
            if isinstance(loaded, Tensor):
                if name == "columns" and loaded.numel():
                    features = state_dict.get(prefix + "median", self.median).numel()
                    if not bool(((loaded >= 0) & (loaded < features)).all()):
                        raise ValueError(f"{prefix}columns must lie in [0, {features})")
                held = getattr(self, name)
                setattr(self, name, held.new_empty(loaded.shape))
        super()._load_from_state_dict(state_dict, prefix, *rest)
        code = int(self.code)
        self.kind = None if code == 0 else KINDS[code - 1]
        self._has_trained, self._knows_share = (self.present[:2] > 0).tolist()

    def extra_repr(self) -> str:
        """Kind and number of the bits."""
        if self.kind == "thermometer":
            return f"thermometer, {self.thresholds.numel()} bits"
        return "not looked at yet" if self.kind is None else self.kind
