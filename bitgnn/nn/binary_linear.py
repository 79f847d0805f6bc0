"""Linear with binary activations and weights, in the place of torch's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.bits import BitTensor
from bitgnn.nn.float_inputs import check_input, unpacked
from bitgnn.quantize import Surrogate, binary_sign, fixed_linear, row_scale
from bitgnn.quantize.fixed import check_step

__all__ = ["BinaryLinear"]


class BinaryLinear(nn.Linear):
    r"""torch's ``Linear`` on signs: :math:`m_o\,\mathrm{sgn}(X)\cdot\mathrm{sgn}(W_o) + b_o`.

    :math:`m_o = \mathrm{mean}|W_o|`, or 1 with ``scale=False``; 0 counts as +1 and NaN as -1.
    Parameters are torch's, so that checkpoints of ``Linear`` load. Gradients pass the signs
    straight through where :func:`~bitgnn.quantize.surrogate_slope` lets them, and the scale by its
    derivative. :class:`bitgnn.nn.Linear` has letters, norms, row scales and Bi-GCN's gradients.

    For inference the same values, bit for bit, come from packed weights, and bits for the next
    layer from ``bmm.bbb``; ``bitgnn.freeze`` does so for whole networks::

        ops.bmm.bbf(BitTensor.from_float(x), layer.pack_weight(), bias=layer.bias)

    Args:
        in_features: as in torch, and so on up to ``dtype``.
        out_features: outputs O.
        bias: add a bias.
        device: of the parameters.
        dtype: of the parameters.
        scale: multiply by the mean magnitude of each output's weights.
        surrogate: ``"ste"`` or ``"approx"``.
        input_step: a power of two makes this a network's first layer: its input is not binarised
            but rounded to 16-bit multiples of the step (:func:`~bitgnn.quantize.fixed_point`).

    Raises:
        TypeError: ``input_step`` is no number.
        ValueError: ``input_step`` is no power of two.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        scale: bool = True,
        surrogate: Surrogate = "ste",
        input_step: float | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self.scale = scale
        self.surrogate: Surrogate = surrogate
        self.input_step = None if input_step is None else check_step("BinaryLinear", input_step)

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer.

        Args:
            input: ``[*, in_features]`` floats or packed; uint8 too in a first layer.

        Returns:
            ``[*, out_features]`` floats of the input's dtype, of the weight's for uint8.

        Raises:
            TypeError: ``input`` is no dense tensor, or holds integers other than uint8 in front of
                a first layer.
            ValueError: the last size of ``input`` is not ``in_features``.
        """
        input = unpacked(input)
        check_input("BinaryLinear", input, self.input_step is not None)
        if input.dim() == 0 or input.size(-1) != self.in_features:
            raise ValueError(
                f"BinaryLinear: input must be [*, {self.in_features}], got {list(input.shape)}"
            )
        if self.input_step is not None:
            out = fixed_linear(
                input, self.weight, self.input_step, scale=self.scale, surrogate=self.surrogate
            )
            out = out.to(input.dtype if input.is_floating_point() else self.weight.dtype)
            return out if self.bias is None else out + self.bias
        # Sums of signs are exact in float32; autocast would round them.
        with torch.autocast(input.device.type, enabled=False):
            signs = binary_sign(input, self.surrogate), binary_sign(self.weight, self.surrogate)
            out = functional.linear(*(s.float() for s in signs))
            if self.scale:
                out = row_scale(self.weight).float() * out
        out = out.to(input.dtype)
        return out if self.bias is None else out + self.bias

    def pack_weight(self) -> BitTensor:
        """The weights' signs as bits, with their scale if the layer has one."""
        return BitTensor.from_float(self.weight.detach(), scale="mean" if self.scale else None)

    def extra_repr(self) -> str:
        """Torch's description, and what is not the default of the binary options."""
        step = "" if self.input_step is None else f", input_step={self.input_step}"
        return super().extra_repr() + ("" if self.scale else ", scale=False") + step
