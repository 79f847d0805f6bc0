"""Counts the bits of a layer that were constant in recent forwards, at next to no cost."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.quantize.looked_up_linear import InputWords

EVERY = 16
"""Of so many forwards in training one is looked at."""
MOST = 16
"""Forwards of one evaluation that are looked at."""
LEAST_ROWS = 8
"""Of fewer rows nothing is said: they may be alike by chance."""


class ConstantBits(NamedTuple):
    """How many of ``size`` bits had one value in all rows looked at, in training or evaluation."""

    constant: int
    size: int
    rows: int
    training: bool


class SeenBits:
    """Remembers of each bit whether it was ever 0 and ever 1.

    In training every 16th forward is looked at, and replaces what was known. Forwards of an
    evaluation add up, since batches may be small; the first one behind a forward in training begins
    anew. An input that is the very tensor looked at before is not looked at again. What is kept are
    two words of 32 bits for every 32 bits of a row.
    """

    def __init__(self) -> None:
        self._low: Tensor | None = None
        self._high: Tensor | None = None
        self._size = self._rows = self._forwards = self._trained = 0
        self._training = False
        self._begins = True
        self._source: tuple[weakref.ref[Tensor], int] | None = None

    def is_due(self, training: bool, source: Tensor) -> bool:
        """Whether to look at the bits made of ``source``; called once in each forward."""
        if type(source) not in (Tensor, torch.nn.Parameter):
            return False
        if source.is_cuda and torch.cuda.is_current_stream_capturing():
            return False
        if training:
            self._begins = True
            self._trained += 1
            return self._trained % EVERY == 1
        held, version = self._source or (None, 0)
        if held is not None and held() is source and source._version == version:
            return False
        return self._begins or self._forwards < MOST

    def add(self, words: Tensor, size: int, training: bool, source: Tensor) -> None:
        """Look at a forward that is due: int32 ``[N, ceil(size / 32)]`` made of ``source``."""
        if words.size(0) == 0 or words.is_meta:
            return
        low = _joined(words, torch.bitwise_and)
        high = _joined(words, torch.bitwise_or)
        goes_on = not (training or self._begins) and self._size == size
        if goes_on and self._low is not None and self._high is not None:
            low = low & self._low.to(low.device)
            high = high | self._high.to(high.device)
        else:
            self._rows = self._forwards = 0
        self._low, self._high, self._size = low, high, size
        self._rows += words.size(0)
        self._forwards += 1
        self._training, self._begins = training, training
        counts = not training and not source.is_inference()
        self._source = (weakref.ref(source), source._version) if counts else None

    @property
    def constant(self) -> ConstantBits | None:
        """The counts so far; None where fewer than 8 rows were looked at."""
        if self._low is None or self._high is None or self._rows < LEAST_ROWS:
            return None
        varying = torch.ops.bitgnn.unpack((self._low ^ self._high).unsqueeze(0), self._size)
        number = int((varying < 0).sum())
        return ConstantBits(number, self._size, self._rows, self._training)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None}  # no copy holds the tensor itself


class NotesBits:
    """Mixin of layers that remember which of their bits were constant in the forwards of late."""

    training: bool
    _seen: dict[str, SeenBits]

    def constant_bits(self) -> dict[str, ConstantBits]:
        """Number of bits that had one value in all rows looked at in the last forwards.

        By what they are: ``"input"``, ``"root input"`` of a bipartite graph's destinations, and
        ``"hidden"`` in front of an aggregation of bits. Compiled forwards are not looked at.
        """
        found = {what: seen.constant for what, seen in self._seen.items()}
        return {what: constant for what, constant in found.items() if constant is not None}

    def forget_constant_bits(self) -> None:
        """Forget the bits that were looked at, of weights that are no longer there."""
        self._seen.clear()

    def _note_words(self, what: str, words: InputWords, source: Tensor) -> None:
        """Remember packed bits, now and then."""
        if self._is_due(what, source):
            self._seen[what].add(words.words, words.size, self.training, source)

    def _note_signs(self, what: str, x: Tensor) -> None:
        """Remember the signs of ``[*, K]`` floats, now and then."""
        if self._is_due(what, x):
            words = torch.ops.bitgnn.pack(x.detach().reshape(-1, x.size(-1)).float())
            self._seen[what].add(words, x.size(-1), self.training, x)

    def _is_due(self, what: str, source: Tensor) -> bool:
        if torch.compiler.is_compiling():
            return False
        return self._seen.setdefault(what, SeenBits()).is_due(self.training, source)


def _joined(words: Tensor, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """All rows joined into one, halves at a time; the middle one of an odd number counts twice."""
    words = words.detach()
    while words.size(0) > 1:
        half = (words.size(0) + 1) // 2
        words = join(words[:half], words[-half:])
    return words[0]
