"""The shortcut without parameters of residual networks: strided pixels, zeros for new channels."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

__all__ = ["ChannelShortcut"]


class ChannelShortcut(nn.Module):
    """``x[:, :, ::stride, ::stride]`` with channels of zeros behind its own.

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
