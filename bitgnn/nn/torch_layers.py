"""Layers with torch's signatures: BinaryLinear, BinaryConv2d, shortcuts and standardised rows."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.bits import BitImages, BitTensor
from bitgnn.nn.inputs.float_inputs import check_input, require_floats, unpacked
from bitgnn.ops.conv_shape import Pair
from bitgnn.quantize import (
    Surrogate,
    binary_conv2d,
    binary_sign,
    fixed_conv2d,
    fixed_linear,
    row_scale,
)
from bitgnn.quantize.fixed import check_step

EPSILON = 1e-4


class _BinaryOptions:
    """Mixin with the options that binary layers add to torch's."""

    scale: bool
    surrogate: Surrogate
    input_step: float | None
    weight: Tensor

    def _set_options(self, scale: bool, surrogate: Surrogate, input_step: float | None) -> None:
        self.scale = scale
        self.surrogate = surrogate
        step = None if input_step is None else check_step(type(self).__name__, input_step)
        self.input_step = step

    def extra_repr(self) -> str:
        """Torch's description, and what is not the default of the binary options."""
        step = "" if self.input_step is None else f", input_step={self.input_step}"
        theirs: str = super().extra_repr()  # type: ignore[misc]
        return theirs + ("" if self.scale else ", scale=False") + step


class BinaryLinear(_BinaryOptions, nn.Linear):
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
        surrogate: ``"ste"``, ``"approx"`` or ``"identity"``.
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
        self._set_options(scale, surrogate, input_step)

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


class BinaryConv2d(_BinaryOptions, nn.Conv2d):
    r"""torch's ``Conv2d`` on signs: :math:`m_o\,(\mathrm{sgn}(X) \star \mathrm{sgn}(W_o)) + b_o`.

    :math:`m_o = \mathrm{mean}|W_o|`, or 1 with ``scale=False``. Padded taps are left out of the
    sum, as zeros are, or are -1 with ``padding_value=-1``; 0 counts as +1 and NaN as -1. Parameters
    are torch's: float ``weight`` ``[O, C / groups, kh, kw]`` and ``bias``, so that checkpoints of
    ``Conv2d`` load. Gradients pass the signs straight through where
    :func:`~bitgnn.quantize.surrogate_slope` lets them.

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
        scale: as in :class:`BinaryLinear`, like the following ones.
        surrogate: ``"ste"``, ``"approx"`` or ``"identity"``.
        input_step: of a network's first layer, a power of two.
        padding_value: 0, or -1 for pixels outside that count as -1, as in BinCNN's code.

    Raises:
        TypeError: ``input_step`` is no number.
        ValueError: ``input_step`` is no power of two, ``padding_value`` is neither 0 nor -1, or is
            -1 beside ``input_step`` or another ``padding_mode``, or as in torch.
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
        padding_value: Literal[0, -1] = 0,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip
        self._set_options(scale, surrogate, input_step)
        if padding_value not in (0, -1):
            raise ValueError(f"BinaryConv2d: padding_value must be 0 or -1, got {padding_value!r}")
        if padding_value and (input_step is not None or padding_mode != "zeros"):
            raise ValueError(
                "BinaryConv2d: padding_value=-1 is for signs with padding_mode='zeros', got "
                f"input_step={input_step} and padding_mode={padding_mode!r}"
            )
        self.padding_value = padding_value

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
        x, padding = self._padded(x)
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

    def _padded(self, x: Tensor) -> tuple[Tensor, Any]:
        """The input with its frame, and the padding that is left to the convolution."""
        sides = self._reversed_padding_repeated_twice
        if self.padding_value:
            return functional.pad(x, sides, value=self.padding_value), 0
        if self.padding_mode != "zeros":
            return functional.pad(x, sides, mode=self.padding_mode), 0
        return x, self.padding

    def extra_repr(self) -> str:
        """Torch's description, and what is not the default of the binary options."""
        return super().extra_repr() + (", padding_value=-1" if self.padding_value else "")

    def pack_weight(self) -> BitImages:
        """The weights' signs as bits, with their scale if the layer has one; on the CPU."""
        return BitImages.from_float(self.weight.detach(), scale="mean" if self.scale else None)


def _is_channels_last(x: Tensor) -> bool:
    """True if the format is only channels_last; one channel or one pixel has both formats."""
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


class ChannelShortcut(nn.Module):
    """``x[:, :, ::stride, ::stride]`` with channels of zeros after its own.

    The identity where neither the stride nor the number of channels changes anything. Integers stay
    integers, so that a frozen model adds such a shortcut to the sums of a binary convolution.

    Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, option A.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output, at least as many.
        stride: between the pixels that are kept, in both directions.

    Raises:
        TypeError: an argument is no int.
        ValueError: ``out_channels`` is below ``in_channels``, or a number below 1.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        name = "ChannelShortcut"
        numbers = {"in_channels": in_channels, "out_channels": out_channels, "stride": stride}
        for which, value in numbers.items():
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name}: {which} must be an int, got {value!r}")
            if value < 1:
                raise ValueError(f"{name}: {which} must be at least 1, got {value}")
        if out_channels < in_channels:
            raise ValueError(
                f"{name}: out_channels must be at least in_channels, {in_channels}, "
                f"got {out_channels}"
            )
        self.in_channels, self.out_channels, self.stride = in_channels, out_channels, stride

    def forward(self, input: Tensor) -> Tensor:
        """Apply the shortcut.

        Args:
            input: ``[N, in_channels, H, W]`` of any dtype.

        Returns:
            ``[N, out_channels, ceil(H / stride), ceil(W / stride)]`` like ``input``.

        Raises:
            ValueError: ``input`` has another shape.
        """
        if input.dim() != 4 or input.size(1) != self.in_channels:
            raise ValueError(
                f"ChannelShortcut: input must be [N, {self.in_channels}, H, W], "
                f"got {list(input.shape)}"
            )
        out = input if self.stride == 1 else input[:, :, :: self.stride, :: self.stride]
        new = self.out_channels - self.in_channels
        return functional.pad(out, (0, 0, 0, 0, 0, new)) if new else out

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.in_channels}, {self.out_channels}, stride={self.stride}"


class NodeStandardize(nn.Module):
    r""":math:`(x - \mathrm{mean}(x)) / (\mathrm{std}(x) + 10^{-4})` of each row, unbiased std.

    It has no parameters and no statistics: every node is standardised by its own features. A row
    of one feature, which has no std, becomes 0. The mean is summed in float64: rounded to the dtype
    of ``x`` it does not depend on the order, so that frozen models find the same signs.

    Source: Wang et al., "Bi-GCN: Binary Graph Convolutional Network", CVPR 2021 (training code).
    """

    def forward(self, x: Tensor) -> Tensor:
        """Standardise.

        Args:
            x: ``[*, K]`` floats.

        Returns:
            Tensor like ``x``.

        Raises:
            TypeError: ``x`` holds no floats.
        """
        require_floats("NodeStandardize", "x", x)
        centred = x - x.mean(dim=-1, keepdim=True, dtype=torch.float64).to(x.dtype)
        if x.size(-1) < 2 or x.size(0) == 0:
            return centred
        return centred / (torch.std(x, dim=-1, keepdim=True) + EPSILON)
