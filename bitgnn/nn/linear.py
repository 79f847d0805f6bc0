"""Linear with binary products: PyG's layer plus a precision."""

from __future__ import annotations

from collections.abc import Iterable

import torch_geometric.nn
from torch import Tensor

from bitgnn.nn.precision import PRESETS, LayerPrecision
from bitgnn.nn.products.binary_product import BinaryProduct, on_rows
from bitgnn.quantize import binary_sign, fast_dropout

__all__ = ["Linear"]


class Linear(BinaryProduct, torch_geometric.nn.Linear):
    r"""PyG's ``Linear`` whose product can be binary.

    * ``"fp32"``: :math:`X W^\top + b`, PyG's own code.
    * ``"full"`` (``"FBF"``): :math:`\alpha_i m_o\,\mathrm{sgn}(X_i)\cdot\mathrm{sgn}(W_o) + b_o`
      with :math:`\alpha_i = \mathrm{mean}|X_i|`, :math:`m_o = \mathrm{mean}|W_o|` (Bi-GCN).
    * ``"bin"`` (``"FBB"``): the sign of that, +1 and -1.
    * letters ``"xyz"``: activation, weight and output. A B activation is used by its sign alone; an
      F weight is used as it is; a B output is a sign; a T activation is ternary, {-1, 0, +1} times
      a learnt scale.
    * a :class:`~bitgnn.nn.LayerPrecision` also places norms and hardtanh; its aggregation letters
      mean nothing here. ``hidden_norm`` acts before the bias, ``output_norm`` after it.

    Source: Wang et al., "Bi-GCN: Binary Graph Convolutional Network", CVPR 2021.

    Args:
        in_channels: size of each input sample, or -1 to take it from the first input.
        out_channels: size of each output sample.
        bias: add a bias, in front of the sign where the output is one.
        weight_initializer: as in PyG; binary weights start at N(0, 1 / in) whatever it says.
        bias_initializer: as in PyG; beside binary weights it starts at 0.
        precision: ``"fp32"``, ``"full"``, ``"bin"``, three letters, or a LayerPrecision.
        dropout: probability of dropping an activation in training; in binary forms it acts on the
            binarised activation.

    Raises:
        ValueError: unknown precision or ``dropout`` outside [0, 1).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        bias: bool = True,
        weight_initializer: str | None = None,
        bias_initializer: str | None = None,
        precision: str | LayerPrecision = "fp32",
        dropout: float = 0.0,
    ) -> None:
        self._set_precision(LayerPrecision.parse_linear(precision), dropout)
        super().__init__(in_channels, out_channels, bias, weight_initializer, bias_initializer)
        self._add_norms(in_channels, out_channels)

    @property
    def precision(self) -> str:
        """Name or the three letters of the layer's precision, without its options."""
        letters = self.letters.bmm
        return next((name for name, pair in PRESETS.items() if pair[:3] == letters), letters)

    def _products(self) -> Iterable[torch_geometric.nn.Linear]:
        return (self,)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer.

        Args:
            x: ``[*, in_channels]`` floats.

        Returns:
            ``[*, out_channels]`` floats; +1 and -1 if the output letter is B.

        Raises:
            TypeError: ``x`` is no tensor.
            ValueError: the width of ``x`` is not ``in_channels``.
        """
        letters = self.letters
        if letters.is_float:
            out: Tensor = super().forward(fast_dropout(x, self.dropout, self.training))
            return out
        u = self._prepare(x)
        weight = self._ready(self, u)
        between = (self.bias, self.hidden_norm, self.output_norm)
        if letters.bmm[2] == "B" and all(part is None for part in between):
            return self._product(u, weight, sign_output=True)
        out = self._product(u, weight)
        if self.hidden_norm is not None:
            out = on_rows(self.hidden_norm, out)
        if self.bias is not None:
            out = out + self.bias
        if self.output_norm is not None:
            out = on_rows(self.output_norm, out)
        return binary_sign(out, letters.surrogate) if letters.bmm[2] == "B" else out
