"""Counts the bits of a layer that were constant in recent training, at next to no cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.quantize.looked_up_linear import InputWords

EVERY = 16
"""Number of training forwards of which one is looked at."""
LEAST_ROWS = 8
"""Fewest rows to judge by: fewer may be alike by chance."""


class ConstantBits(NamedTuple):
    """How many of ``size`` bits had one value in all rows of a batch in training."""

    constant: int
    size: int
    rows: int


class SeenBits:
    """Records for each bit of a training batch if it was ever 0 and ever 1.

    Every 16th forward is looked at, and replaces what was known; evaluation tells nothing, so that
    it changes nothing. What is kept are two words of 32 bits for every 32 bits of a row.
    """

    def __init__(self) -> None:
        self._low: Tensor | None = None
        self._high: Tensor | None = None
        self._size = self._rows = self._trained = 0

    def is_due(self, source: Tensor) -> bool:
        """True if the bits made of ``source`` are to be added; call it once in each forward."""
        if type(source) not in (Tensor, torch.nn.Parameter):
            return False
        if source.is_cuda and torch.cuda.is_current_stream_capturing():
            return False
        self._trained += 1
        return self._trained % EVERY == 1

    def add(self, words: Tensor, size: int) -> None:
        """Look at a forward that is due: int32 ``[N, ceil(size / 32)]``."""
        if words.size(0) == 0 or words.is_meta:
            return
        self._low = _joined(words, torch.bitwise_and)
        self._high = _joined(words, torch.bitwise_or)
        self._size, self._rows = size, words.size(0)

    @property
    def constant(self) -> ConstantBits | None:
        """The counts; None where fewer than 8 rows were looked at."""
        if self._low is None or self._high is None or self._rows < LEAST_ROWS:
            return None
        varying = torch.ops.bitgnn.unpack((self._low ^ self._high).unsqueeze(0), self._size)
        return ConstantBits(int((varying < 0).sum()), self._size, self._rows)


class NotesBits:
    """Mixin of layers that record which of their bits were recently constant in training."""

    training: bool
    _seen: dict[str, SeenBits]

    def constant_bits(self) -> dict[str, ConstantBits]:
        """Number of bits that had one value in all rows of the last batch looked at in training.

        By what they are: ``"input"``, ``"root input"`` of a bipartite graph's destinations, and
        ``"hidden"`` before an aggregation of bits. Compiled forwards are not looked at.
        """
        found = {what: seen.constant for what, seen in self._seen.items()}
        return {what: constant for what, constant in found.items() if constant is not None}

    def forget_constant_bits(self) -> None:
        """Forget the recorded bits, which came from weights that were replaced."""
        self._seen.clear()

    def _note_words(self, what: str, words: InputWords, source: Tensor) -> None:
        """Remember packed bits, now and then."""
        if self._is_due(what, source):
            self._seen[what].add(words.words, words.size)

    def _note_signs(self, what: str, x: Tensor) -> None:
        """Remember the signs of ``[*, K]`` floats, now and then."""
        if self._is_due(what, x):
            words = torch.ops.bitgnn.pack(x.detach().reshape(-1, x.size(-1)).float())
            self._seen[what].add(words, x.size(-1))

    def _is_due(self, what: str, source: Tensor) -> bool:
        if not self.training or torch.compiler.is_compiling():
            return False
        return self._seen.setdefault(what, SeenBits()).is_due(source)


def _joined(words: Tensor, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """All rows joined into one, halves at a time; the middle one of an odd number counts twice."""
    words = words.detach()
    while words.size(0) > 1:
        half = (words.size(0) + 1) // 2
        words = join(words[:half], words[-half:])
    return words[0]
