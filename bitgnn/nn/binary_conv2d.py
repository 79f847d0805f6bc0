"""Conv2d with binary activations and weights, in the place of torch's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.bits import BitImages
from bitgnn.nn.float_inputs import check_input, unpacked
from bitgnn.ops.conv_shape import Pair
from bitgnn.quantize import Surrogate, binary_conv2d, fixed_conv2d
from bitgnn.quantize.fixed import check_step

__all__ = ["BinaryConv2d"]


class BinaryConv2d(nn.Conv2d):
    r"""torch's ``Conv2d`` on signs: :math:`m_o\,(\mathrm{sgn}(X) \star \mathrm{sgn}(W_o)) + b_o`.

    :math:`m_o = \mathrm{mean}|W_o|`, or 1 with ``scale=False``. Padded taps are left out of the
    sum, as zeros are; 0 counts as +1 and NaN as -1. Parameters are torch's: float ``weight``
    ``[O, C / groups, kh, kw]`` and ``bias``, so that checkpoints of ``Conv2d`` load. Gradients pass
    the signs straight through where :func:`~bitgnn.quantize.surrogate_slope` lets them.

    For inference the same values, bit for bit, come from packed weights, and bits for the next
    layer with its threshold (``flip`` where a batch norm's gain is negative) from ``conv.bbb``;
    ``bitgnn.freeze`` does so for whole networks::

        images, kernel = BitImages.from_float(x), layer.pack_weight()
        numbers = {"stride": layer.stride, "padding": layer.padding, ...}
        ops.conv.bbf(images, kernel, bias=layer.bias, **numbers)
        ops.conv.bbb(images, kernel, bias=layer.bias, threshold=threshold, **numbers)

    Source: Rastegari et al., "XNOR-Net", ECCV 2016 (weight scale); Li and Su, "Accelerating
    Binarized Neural Networks via Bit-Tensor-Cores in Turing GPUs", TPDS 2020 (padding).

    Args:
        in_channels: as in torch, and so on up to ``dtype``.
        out_channels: outputs O.
        kernel_size: number or pair.
        stride: number or pair.
        padding: number or pair, ``"valid"`` or ``"same"``.
        dilation: number or pair.
        groups: divides both numbers of channels.
        bias: add a bias.
        padding_mode: ``"zeros"``, which leaves padded taps out, or another of torch's, whose padded
            values are binarised.
        device: of the parameters.
        dtype: of the parameters.
        scale: multiply by the mean magnitude of each output's weights.
        surrogate: ``"ste"`` or ``"approx"``.
        input_step: a power of two makes this a network's first layer: its input is not binarised
            but rounded to 16-bit multiples of the step (:func:`~bitgnn.quantize.fixed_point`).

    Raises:
        TypeError: ``input_step`` is no number.
        ValueError: ``input_step`` is no power of two, or as in torch.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: Any = "zeros",
        device: Any = None,
        dtype: Any = None,
        *,
        scale: bool = True,
        surrogate: Surrogate = "ste",
        input_step: float | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )
        self.scale = scale
        self.surrogate: Surrogate = surrogate
        self.input_step = None if input_step is None else check_step("BinaryConv2d", input_step)

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer.

        Args:
            input: ``[N, C, H, W]`` or ``[C, H, W]`` floats; uint8 too in a first layer.

        Returns:
            ``[N, O, out height, out width]`` or ``[O, out height, out width]`` floats of the
            input's dtype, of the weight's for uint8; in channels_last where input or weight are,
            as in torch, and contiguous elsewhere.

        Raises:
            TypeError: ``input`` is no dense tensor, or holds integers other than uint8 in front of
                a first layer.
            ValueError: the shape does not fit, or the kernel is larger than the padded image.
        """
        input = unpacked(input)
        check_input("BinaryConv2d", input, self.input_step is not None)
        x = input.unsqueeze(0) if input.dim() == 3 else input
        if x.dim() != 4 or x.size(1) != self.in_channels:
            raise ValueError(
                f"BinaryConv2d: input must be [N, {self.in_channels}, H, W] or "
                f"[{self.in_channels}, H, W], got {list(input.shape)}"
            )
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            x = functional.pad(x, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        options: Any = {
            "stride": (self.stride[0], self.stride[1]),
            "padding": padding,
            "dilation": (self.dilation[0], self.dilation[1]),
            "groups": self.groups,
            "scale": self.scale,
            "surrogate": self.surrogate,
        }
        if self.input_step is None:
            out = binary_conv2d(x, self.weight, **options)
        else:
            out = fixed_conv2d(x, self.weight, self.input_step, **options)
            out = out.to(x.dtype if x.is_floating_point() else self.weight.dtype)
        if self.bias is not None:
            out = out + self.bias.view(-1, 1, 1)
        turned = _is_channels_last(x) or _is_channels_last(self.weight)
        out = out.contiguous(
            memory_format=torch.channels_last if turned else torch.contiguous_format
        )
        return out if input.dim() == 4 else out.squeeze(0)

    def pack_weight(self) -> BitImages:
        """The weights' signs as bits, with their scale if the layer has one; on the CPU."""
        return BitImages.from_float(self.weight.detach(), scale="mean" if self.scale else None)

    def extra_repr(self) -> str:
        """Torch's description, and what is not the default of the binary options."""
        step = "" if self.input_step is None else f", input_step={self.input_step}"
        return super().extra_repr() + ("" if self.scale else ", scale=False") + step


def _is_channels_last(x: Tensor) -> bool:
    """Whether the format is channels_last alone; one channel or one pixel has both formats."""
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
