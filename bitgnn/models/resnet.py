"""Residual networks: ResNet-14 of CIFAR-10, ResNet-18, 50, 101 and 152 of ImageNet."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from bitgnn.models.image_networks import (
    INPUT_STEP,
    ImageNetwork,
    Layers,
    NetworkPrecision,
    scaled,
)
from bitgnn.nn import ChannelShortcut

EXPANSION = 4
"""Channels of a bottleneck's output for each one inside."""

DEPTHS = {
    14: (2, 2, 2),
    18: (2, 2, 2, 2),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
"""Blocks of each stage of the networks of :func:`resnet`."""


class Block(nn.Module):
    """Convolutions with batch norms, and a shortcut around them (He et al. 2016).

    In the binary form ``s' = conv2(norm2(conv1(norm1(s)))) + shortcut(s)``: with neither scale nor
    bias every value that a shortcut carries is a sum of +-1, so that a frozen network keeps it as
    an integer. ``shortcut`` is None where the input is the first layer's, which is no integer.
    """

    def __init__(
        self, convolutions: Sequence[nn.Conv2d], shortcut: ChannelShortcut | None, binary: bool
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for convolution in convolutions:
            if binary:
                layers += [nn.BatchNorm2d(convolution.in_channels), convolution]
            else:
                layers += [convolution, nn.BatchNorm2d(convolution.out_channels), nn.ReLU()]
        self.body = nn.Sequential(*(layers if binary else layers[:-1]))
        self.shortcut = shortcut
        self.binary = binary

    def forward(self, x: Tensor) -> Tensor:
        """Sums, or activations, of the block for ``x`` ``[N, C, H, W]``."""
        out: Tensor = self.body(x)
        if self.shortcut is not None:
            out = out + self.shortcut(x)
        return out if self.binary else functional.relu(out)


class ResNet(ImageNetwork):
    r"""A first convolution, stages of residual blocks, then linear layers.

    Each stage halves the pixels but the first. Shortcuts have no parameters (type A of He et al.,
    "Deep Residual Learning for Image Recognition", CVPR 2016): strided pixels, zeros for new
    channels. In the binary form batch norms stand before the signs, after the sums, and the
    shortcuts begin after the first block, whose input are no integers.

    Args:
        stem: channels, kernel and stride of the first convolution.
        stages: (blocks, channels) of each.
        dense: outputs of the hidden linear layers.
        classes: outputs of the last.
        bottleneck: blocks of 1x1, 3x3 and 1x1 convolutions, the last of four times the channels,
            in place of two of 3x3.
        image: channels, height and width of an image.
        precision: ``"binary"``, or ``"fp32"`` for the same structure with ReLU.
        input_step: fixed-point step of the input; None binarises it too.

    Raises:
        ValueError: an unknown precision, a size below 1, an impossible step, or channels that
            become fewer from stage to stage.
    """

    def __init__(
        self,
        stem: tuple[int, int, int] = (64, 7, 4),
        stages: Sequence[tuple[int, int]] = ((2, 64), (2, 128), (2, 256), (2, 512)),
        dense: Sequence[int] = (512,),
        classes: int = 1000,
        bottleneck: bool = False,
        image: tuple[int, int, int] = (3, 224, 224),
        precision: NetworkPrecision = "binary",
        input_step: float | None = INPUT_STEP,
    ) -> None:
        layers = Layers("ResNet", image, precision, input_step)
        layers.layers.append(layers.convolution(*stem))
        if not layers.binary:
            layers.layers += [nn.BatchNorm2d(stem[0]), nn.ReLU()]
        for stage, (blocks, channels) in enumerate(stages):
            for i in range(blocks):
                inputs, stride = layers.channels, 2 if stage > 0 and i == 0 else 1
                # The convolution of 3x3 has the stride.
                numbers = [(channels, 3, stride), (channels,)]
                if bottleneck:
                    numbers = [(channels, 1), (channels, 3, stride), (EXPANSION * channels, 1)]
                convolutions = [layers.convolution(*of_one) for of_one in numbers]
                shortcut = ChannelShortcut(inputs, layers.channels, stride)
                is_first = layers.binary and stage == 0 and i == 0
                block = Block(convolutions, None if is_first else shortcut, layers.binary)
                layers.layers.append(block)
        if layers.binary:
            layers.layers.append(nn.BatchNorm2d(layers.channels))
        super().__init__(image, precision, *layers.parts([*dense, classes]))


def resnet(
    depth: int = 18,
    precision: NetworkPrecision = "binary",
    classes: int | None = None,
    width: float = 1.0,
    image_size: int | None = None,
    input_step: float | None = INPUT_STEP,
) -> ResNet:
    """A network of the papers, :class:`ResNet`, by the number of its layers.

    128C3/2-4x128C3-4x256C3-4x512C3-512 of 14 is for CIFAR-10; the others, of 18, 50, 101 and 152,
    begin with 64C7/4, end with 512 and are for ImageNet, from 50 on in bottleneck blocks.

    Args:
        depth: one of these numbers.
        precision: ``"binary"`` or ``"fp32"``.
        classes: 10 or 1000 by default, as the data set has.
        width: factor of all channels.
        image_size: height and width, 32 or 224 by default.
        input_step: fixed-point step of the input; None binarises it too.

    Raises:
        ValueError: there is no network of that depth, or as for :class:`ResNet`.
    """
    if depth not in DEPTHS:
        raise ValueError(f"resnet: depth must be one of {list(DEPTHS)}, got {depth!r}")
    small = depth == 14
    channels, kernel, stride = (128, 3, 2) if small else (64, 7, 4)
    widths = (128, 256, 512) if small else (64, 128, 256, 512)
    size = image_size or (32 if small else 224)
    return ResNet(
        (scaled(channels, width), kernel, stride),
        [(n, scaled(c, width)) for n, c in zip(DEPTHS[depth], widths, strict=True)],
        (scaled(512, width),),
        classes or (10 if small else 1000),
        depth >= 50,
        (3, size, size),
        precision,
        input_step,
    )
