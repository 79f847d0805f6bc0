"""Precision names and operator letters of a layer: what is binary where."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["PRESETS", "LayerPrecision"]

PRESETS = {"fp32": "FFF+FFF", "full": "FBF+FBF", "bin": "FBB+BBF"}
"""Names a layer accepts beside explicit letters, and the letters they stand for."""

_LETTERS = re.compile(r"([FB]{3})\+([FB]{3})")


@dataclass(frozen=True)
class LayerPrecision:
    """Letters of the two products of a graph layer.

    Attributes:
        bmm: activation, weight and output of the dense product; F full precision, B bits.
        bspmm: activation, adjacency and output of the aggregation.
    """

    bmm: str
    bspmm: str

    @classmethod
    def parse(cls, precision: str) -> LayerPrecision:
        """Read ``"fp32"``, ``"full"``, ``"bin"`` or letters such as ``"FBB+BBF"``.

        Args:
            precision: preset name or letters, dense product first.

        Returns:
            The letters.

        Raises:
            TypeError: ``precision`` is not a string.
            ValueError: it is neither a preset nor letters, or the dense product hands over
                something other than what the aggregation takes.
        """
        if not isinstance(precision, str):
            raise TypeError(f"precision must be a string, got {type(precision).__name__}")
        match = _LETTERS.fullmatch(PRESETS.get(precision, precision))
        if match is None:
            raise ValueError(
                "precision must be 'fp32', 'full', 'bin' or letters such as 'FBB+BBF', "
                f"got {precision!r}"
            )
        bmm, bspmm = match.groups()
        if bmm[2] != bspmm[0]:
            raise ValueError(
                f"precision {precision!r}: the output of BMM ({bmm[2]}) must be the activation "
                f"of BSpMM ({bspmm[0]})"
            )
        return cls(bmm, bspmm)

    @property
    def is_float(self) -> bool:
        """Whether nothing in the layer is binary."""
        return self.bmm == "FFF" and self.bspmm == "FFF"

    @property
    def is_float_linear(self) -> bool:
        """Whether the dense product is the plain float one."""
        return self.bmm == "FFF"

    def __str__(self) -> str:
        letters = f"{self.bmm}+{self.bspmm}"
        return next((name for name, preset in PRESETS.items() if preset == letters), letters)
