"""Inputs of a binary layer: 8-bit rows, patterns of bits, or signs of activations."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits.int8 import inverse_step
from bitgnn.nn.host_state import HostState
from bitgnn.nn.inputs.input_statistics import (
    OFTEN,
    TINY,
    ColumnStatistics,
    Moments,
    decides_on_device,
)
from bitgnn.nn.repeats import (
    Call,
    find_call,
    is_in_backward,
    is_recorded,
    may_repeat,
    no_calls,
    remember,
)
from bitgnn.nn.spread import spread_graph
from bitgnn.quantize.dropout import all_words, fast_dropout, filled, keep_words
from bitgnn.quantize.int8_linear import UNITS, InputRows, column_factors
from bitgnn.quantize.looked_up_linear import MIDDLE, InputWords

InputKind = Literal["rows", "pattern", "activation"]

SPARSE = 0.5
"""Share of zeros from which on non-negative features are a pattern."""
OFFSET_STEPS = 2.0**16
LEAST_SHARE = 1e-3
WINDOW = 4.0
"""Half-width of the straight-through window, in root mean squares of the input."""
STATES = ("form", "reads", "kept")


class InputBits(ColumnStatistics):
    r"""Turns a layer's input into operands of integer products, by running statistics of columns.

    * ``"rows"``: 8-bit integers :math:`\mathrm{clamp}(\mathrm{rint}(32 (x_k - \mu_k) /
      \sigma_k), -127, 127)`, multiplied by 8-bit weights: dense features. A constant column
      gives 0.
    * ``"pattern"``: one bit a feature, :math:`x \ge 2^{-126}`, standing for 0 or 1, multiplied by
      signs of weights: features without negative values of which at least half are 0 (bags of
      words, one-hot codes). Its mean is taken away.
    * ``"activation"``: one bit a feature, :math:`x \ge 2^{-126}`, standing for -1/2 or +1/2:
      results of binary layers. A ReLU before it changes no bit.

    Whether a layer reads results of binary layers follows from the data flow; whether features are
    rows or a pattern follows from the statistics of the first 64 batches in training and stays
    then. Evaluation changes nothing. Before any training features are rows of mean 0 and deviation
    1.

    In training a batch is quantised with the running statistics that it is merged into; they are
    kept where gradients are recorded, so that a forward has one value with gradients and without.
    A gain makes up for dropout before bits, whose share of kept entries the data flow tells.

    Args:
        owner: name of the layer's class, for messages.
        size: number of input channels, -1 to take it from the first input.
        only_rows: features are 8-bit rows whatever they hold.
    """

    form: Tensor
    reads: Tensor
    kept: Tensor

    def __init__(self, owner: str, size: int, only_rows: bool = False) -> None:
        super().__init__(owner, size)
        self.only_rows = only_rows
        # Above 0 a pattern, below 0 rows; above 0 results of binary layers, below 0 features; the
        # share that dropout in front keeps in training. 0 is not known yet. Signs survive averages.
        for name in STATES:
            self.register_buffer(name, torch.zeros((), dtype=torch.float32))
        self._host = HostState()
        # Statistics of batches that checkpointing runs again inside of the backward pass, None for
        # the running ones as they are now.
        self._calls = no_calls()

    def reset_parameters(self) -> None:
        """Forget everything that was seen."""
        super().reset_parameters()
        for name in STATES:
            if name in self._buffers:
                getattr(self, name).zero_()

    @property
    def kind(self) -> InputKind | None:
        """Form of the input; None until data flow or statistics determine it."""
        return self._state()[0]

    @property
    def kept_share(self) -> float:
        """Share of the input that an earlier dropout keeps in training; 1 if none is known."""
        return self._state()[1]

    @property
    def reads_known(self) -> float:
        """``reads`` as a number, for which a GPU is asked only after a write."""
        return self._state()[2]

    def _state(self) -> tuple[InputKind | None, float, float]:
        """Kind, kept share and ``reads``."""
        held: Any = self._buffers
        numbers = self._host.read(held["form"], held["reads"], held["kept"])
        form, reads, kept = numbers or (0.0, 0.0, 0.0)
        share = kept if kept > 0 else 1.0
        if reads > 0:
            return "activation", share, reads
        if self.only_rows or form < 0:
            return "rows", share, reads
        return ("pattern" if form > 0 else None), share, reads

    @property
    def is_settled(self) -> bool:
        """True once the form of the input is known."""
        return self.kind is not None

    @torch.no_grad()
    def set_reads(self, bits: bool) -> None:
        """Say whether the input is made by binary layers."""
        self.reads.fill_(1.0 if bits else -1.0)

    @torch.no_grad()
    def set_kept(self, share: float) -> None:
        """Set the share of the input that an earlier dropout keeps in training."""
        self.kept.fill_(min(max(share, LEAST_SHARE), 1.0))

    def choose(self, x: Tensor) -> bool:
        """Before a forward in training: choose the form of features by what was seen so far.

        That is ``x`` itself where nothing was. True if the form may have changed.
        """
        if not self.is_young or self.only_rows or decides_on_device(x):
            return False
        if is_in_backward():  # the first run has chosen
            return False
        is_first, (kind, share, _) = self.host_count == 0, self._state()
        spread = spread_graph()
        rows = x.size(0) if spread is None else spread.count
        if kind == "activation" or (rows == 0 and is_first):
            return False
        moments = self.merged(x) if is_first else self.moments
        most = (1.0 - SPARSE) * share
        is_pattern = (moments.present.mean() <= most) & (moments.negative <= 0)
        form = torch.where(is_pattern, 1.0, -1.0)
        with torch.inference_mode(self.form.is_inference()):
            self.form.copy_(torch.where(moments.batches <= OFTEN, form, self.form))
        return True

    def scales(self, moments: Moments | None = None) -> tuple[Tensor, Tensor]:
        r"""Centre :math:`\mu` and inverse step :math:`32 / \sigma` of 8-bit rows, float32 ``[K]``.

        Columns that are constant but for rounding have the inverse step 0.
        """
        held = self.moments if moments is None else moments
        rounding = (held.mean * torch.finfo(torch.float32).eps) ** 2
        varies = held.variance > rounding.clamp(min=TINY)
        # The step and its inverse stand for each other exactly, as packed rows need them.
        step = torch.where(varies, held.variance.sqrt() / UNITS, 0.0)
        return held.mean.clone(), inverse_step(step)

    @property
    def unit(self) -> Tensor:
        """Factor of products of bits: 1 over the root of the informative bits in a row."""
        return _unit(self.moments, *self._state()[:2])

    @property
    def bit_offset(self) -> Tensor:
        """Number added to each bit: minus the mean of a pattern's, -1/2 to an activation's."""
        return _offset(self.moments, *self._state()[:2])

    def _seen(self, x: Tensor) -> Moments:
        """Statistics to quantise ``x`` with; kept where a training step records gradients."""
        call = find_call(self._calls, x.size(0), partial(_key, x)) if is_in_backward() else None
        if call is None:
            found = self.counted(x)
            is_kept = is_recorded()
            if may_repeat():
                remember(self._calls, Call(x.size(0), _key(x), found, is_kept))
            if is_kept:
                self._keep(found)
        else:
            found = call.state
            if torch.is_grad_enabled() and not call.is_recorded:
                self._keep(found)
                call.is_recorded = True
        return self.moments if found is None else found

    def _keep(self, found: Moments | None) -> None:
        """Commit a batch; calls that were made with the statistics so far remember these."""
        older = [call for call in self._calls if call.state is None]
        if found is not None and older:
            before = Moments(*(held.clone() for held in self.moments))
            for call in older:
                call.state = before
        self.commit(found)

    def forward(self, x: Tensor, dropout: float = 0.0) -> InputWords | InputRows:
        """Operand of a product with ``x`` ``[N, K]``; ``dropout`` drops entries in training."""
        kind, share, _ = self._state()  # once: nothing below changes it
        dropout = dropout if self.training else 0.0
        moments = self._seen(x) if self.training and kind != "activation" else self.moments
        values = x.detach().float().contiguous()
        if kind in ("activation", "pattern"):
            gain = 1.0 / share if self.training and share < 1.0 else None
            unit, offset = _unit(moments, kind, share), _offset(moments, kind, share)
            if kind == "activation":
                return _activation(values, dropout, gain, offset, unit)
            return _pattern(values, dropout, gain, offset, unit, x.requires_grad)
        centre, inverse = self.scales(moments)
        codes = torch.ops.bitgnn.pack_int8(values, centre, inverse)
        gain = 1.0
        if dropout > 0.0:
            keeps = fast_dropout(torch.ones_like(values), dropout) > 0
            codes[:, : x.size(1)].masked_fill_(~keeps, 0)
            gain = 1.0 / (1.0 - dropout)
        factors = column_factors(inverse)
        return InputRows(codes, x.size(1), inverse, gain, values.sum(1), factors)

    def extra_repr(self) -> str:
        """Form of the input, and number of columns."""
        kind = self.kind
        if kind is None:
            return "not looked at yet"
        return kind if is_lazy(self.mean) else f"{kind}, {self.mean.numel()} columns"


def _unit(moments: Moments, kind: InputKind | None, share: float) -> Tensor:
    size = max(moments.mean.numel(), 1)
    if kind == "activation":  # the bits are halves
        return moments.rows.new_full((), 2 / math.sqrt(size))
    return (moments.present.sum() / share).clamp(1.0, size).rsqrt()


def _offset(moments: Moments, kind: InputKind | None, share: float) -> Tensor:
    if kind == "activation":
        return filled(moments.mean.numel(), MIDDLE, moments.mean)
    # Multiples of 2^-16, whose sums are exact in any order.
    means = (moments.present / share).clamp(max=1.0)
    return (means * OFFSET_STEPS).round() / -OFFSET_STEPS


def _pattern(
    x: Tensor,
    dropout: float,
    gain: float | None,
    offset: Tensor,
    unit: Tensor,
    has_gradient: bool,
) -> InputWords:
    """Bits of a pattern; ``gain`` makes up for entries that an earlier dropout dropped."""
    size, kept = x.size(1), 1.0
    # Times 0, rows are NaN where one of their values is not finite.
    operands = (x, filled(size, TINY, x), filled(size, 0.0, x))
    words, total = torch.ops.bitgnn.pack_scaled(*operands)
    factor = WINDOW / math.sqrt(max(x.numel(), 1))
    window = _of_all(torch.linalg.vector_norm(x) * factor, x) if has_gradient else None
    if dropout > 0.0:
        keep, kept = keep_words(words.size(0), size, dropout, words)
        words, gain = words & keep, (1.0 if gain is None else gain) / kept
    return InputWords(words, size, True, gain, offset, None, False, total, window, unit, kept)


def _activation(
    x: Tensor, dropout: float, gain: float | None, offset: Tensor, unit: Tensor
) -> InputWords:
    """Bits of an activation; entries that an earlier dropout dropped are unset bits."""
    size, factor = x.size(1), WINDOW / math.sqrt(max(x.numel(), 1))
    words, total, window = torch.ops.bitgnn.activation_bits(x, TINY, factor)
    window = _of_all(window, x)
    raised, kept = None, 1.0
    if dropout > 0.0:
        keep, kept = keep_words(words.size(0), size, dropout, words)
        if gain is None:
            # Bits that the layer's own dropout takes are in the middle.
            raised = words | (all_words(size, words) ^ keep)
        # Behind another dropout both take bits in its way.
        words, gain = words & keep, (1.0 if gain is None else gain) / kept
    return InputWords(words, size, True, gain, offset, raised, True, total, window, unit, kept)


def _of_all(window: Tensor, x: Tensor) -> Tensor:
    """The window of all ranks' entries, whose squares count by their numbers."""
    spread = spread_graph()
    if spread is None:
        return window
    return spread.mean_of(window.square(), x.numel()).sqrt()


def _key(x: Tensor) -> Tensor:
    """Means of columns, which tell batches apart."""
    return x.detach().float().mean(0).nan_to_num()
