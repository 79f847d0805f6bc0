"""The quantiser of one activation: kind, level and learnt scale."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from bitgnn.quantize.levels import (
    Operand,
    Rounding,
    check_level,
    initial_scale,
    positive_scale,
    quantised,
)

Kind = Literal["ternary", "bool", "sign"]


class ActivationQuantizer(nn.Module):
    r"""Activations as integers q, to be multiplied by a learnt scale s behind the product.

    * ``"ternary"``: :math:`q = \mathrm{clip}(\lfloor x / s + 1/2 \rfloor, -L, L)`, in training on
      the way to L = 1, where q is in {-1, 0, +1}.
    * ``"bool"``: the same in [0, L], for what is never negative.
    * ``"sign"``: :math:`q = \mathrm{sgn}(x)`, whatever the level; binary activations to compare
      with.

    The scale starts from :math:`2\,\mathrm{mean}|x| / \sqrt{L}` of the first activations seen in
    training, or of those given to :meth:`initialize`; gradients are LSQ's, see
    :func:`bitgnn.quantize.levels`.

    Args:
        kind: which values.
        level: L, or None for activations that are not quantised.
        device: of the scale.

    Attributes:
        scale: 0-d parameter, float32; 0 as long as it is not set.

    Raises:
        TypeError: ``level`` is no integer.
        ValueError: unknown kind, or ``level`` is below 1.
    """

    def __init__(self, kind: Kind = "ternary", level: int | None = 1, device: Any = None) -> None:
        super().__init__()
        if kind not in get_args(Kind):
            raise ValueError(
                f"ActivationQuantizer: kind must be one of {get_args(Kind)}, got {kind!r}"
            )
        self.kind: Kind = kind
        self.level = level
        self._is_set = False
        self.scale = nn.Parameter(torch.zeros((), dtype=torch.float32, device=device))

    @property
    def level(self) -> int | None:
        """Largest integer; None for activations as they are."""
        return self._level

    @level.setter
    def level(self, level: int | None) -> None:
        self._level = None if level is None else check_level("ActivationQuantizer", level)

    @property
    def rounding(self) -> Rounding | None:
        """What activations are rounded to; None for activations as they are."""
        if self._level is None:
            return None
        if self.kind == "sign":
            return Rounding(-1, 1, True)
        return Rounding(-self._level if self.kind == "ternary" else 0, self._level)

    @property
    def is_set(self) -> bool:
        """Whether the scale has a value, which may have been copied into it from outside."""
        looked_at = type(self.scale) is nn.Parameter and not self.scale.is_meta
        if not self._is_set and looked_at and not torch.compiler.is_compiling():
            self._is_set = bool(self.scale.detach() != 0)
        return self._is_set

    def reset_parameters(self) -> None:
        """Forget the scale."""
        nn.init.zeros_(self.scale)
        self._is_set = False

    @torch.no_grad()
    def initialize(self, x: Tensor, valid: Tensor | None = None) -> None:
        r"""Set the scale to :math:`2\,\mathrm{mean}|x| / \sqrt{L}`; it may be set anew.

        Args:
            x: activations of any shape; without NaN, and not all 0.
            valid: bool that broadcasts to ``x``: values that count; None for all.

        Raises:
            ValueError: the scale would not be positive and finite (looked at on the CPU).
        """
        self._start(x, valid)
        if not self._is_set:
            raise ValueError(
                f"ActivationQuantizer: x must have values other than 0, got {list(x.shape)}"
            )

    @torch.no_grad()
    def _start(self, x: Tensor, valid: Tensor | None) -> None:
        """Set the scale, if ``x`` tells one; the GPU is not waited for."""
        level = 1 if self.kind == "sign" else self._level or 1
        scale = initial_scale(x, level, self.kind != "bool", valid)
        self._is_set = x.numel() > 0
        if scale.device.type == "cpu" and not torch.compiler.is_compiling():
            value = float(scale)
            if not math.isfinite(value):
                raise ValueError(
                    f"ActivationQuantizer: x must be finite, got NaN or infinity in {list(x.shape)}"
                )
            self._is_set = value > 0
        self.scale.copy_(scale)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Integers ``q``, float32 like ``x``, and the scale s; ``s q`` is the activation.

        Args:
            x: floats of any shape; NaN becomes 0.
            valid: which of them count for a scale that starts here.

        Returns:
            q, and s as a positive 0-d float32 tensor; ``x`` itself and 1 with level None.

        Raises:
            ValueError: the scale is not set and the module is in evaluation.
        """
        rounding = self.rounding
        if rounding is None:
            return x, torch.ones((), device=x.device)
        unset = not self.is_set
        if unset and not self.training:
            raise ValueError(
                "ActivationQuantizer: the scale is not set; call the model in training mode, "
                "initialize(x), or load trained parameters"
            )
        if unset:
            self._start(x, valid)
        return quantised(x, self.scale, rounding)

    def operand(self, x: Tensor, valid: Tensor | None = None) -> Operand:
        """What :meth:`forward` gives, without gradients, for a product that has its own."""
        with torch.no_grad():
            q, scale = self(x, valid)
        if torch.compiler.is_compiling():
            x = x.view_as(x)  # dynamo refuses functions of the same tensor twice
        return Operand(x, self.scale, q, scale, self.rounding)

    def quantize(self, x: Tensor) -> Tensor:
        """The integers alone."""
        return self(x)[0]

    def frozen_scale(self, name: str) -> Tensor:
        """The scale as frozen forms hold it, 0-d float32, or a ValueError about ``name``."""
        if self.kind != "sign" and self._level != 1:
            raise ValueError(
                f"freeze: {name} must have level 1, got {self._level}; train it down to there"
            )
        value = float(self.scale.detach())
        if not self.is_set or not math.isfinite(value):
            raise ValueError(
                f"freeze: the scale of {name} must be set and finite, got {value}"
                + ("" if self.is_set else "; it was never set: train or initialize first")
            )
        return positive_scale(self.scale.detach()).clone()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """As torch's, but a checkpoint of a float layer has no scale, which stays as it is."""
        key = prefix + "scale"
        if key not in state_dict:
            return
        super()._load_from_state_dict(state_dict, prefix, *args)
        # Loaded tensors may be as little set as this one was.
        self._is_set = self.scale.is_meta or bool(self.scale != 0)

    def extra_repr(self) -> str:
        """Kind and level."""
        return f"{self.kind}, level={self._level}"
