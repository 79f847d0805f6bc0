"""Networks for images: their base, layers in either precision, and MLP, VGG and AlexNet."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

from torch import Tensor, fx, nn

from bitgnn.nn import BinaryConv2d, BinaryLinear

NetworkPrecision = Literal["binary", "fp32"]

INPUT_STEP = 2.0**-12
"""Of the first layer's input: 16 bits reach to +-8, which normalised images stay within."""
CIFAR_STAGES = ((2, 128), (2, 256), (2, 512))
VGG16_STAGES = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))
ALEXNET_CHANNELS = (128, 256, 256, 256, 256)


class ImageNetwork(nn.Module):
    """Base of the networks: layers on images, then layers on the flattened result.

    Args:
        image: channels, height and width of an image.
        precision: ``"binary"`` or ``"fp32"``, as the layers have it.
        features: layers on images.
        classifier: layers on vectors.

    Attributes:
        image: as above; a network of vectors takes images of this shape, or vectors.
        precision: as above.
    """

    def __init__(
        self,
        image: tuple[int, int, int],
        precision: NetworkPrecision,
        features: nn.Sequential,
        classifier: nn.Sequential,
    ) -> None:
        super().__init__()
        self.image = image
        self.precision = precision
        self.features = features
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of each image.

        Args:
            x: ``[N, C, H, W]`` floats, normalised.

        Returns:
            ``[N, classes]`` floats.

        Raises:
            ValueError: the images have another shape.
        """
        self._check_images(x)
        out: Tensor = self.classifier(self.features(x).flatten(1))
        return out

    def _check_images(self, x: Any) -> None:
        """Refuse images of another shape; a trace has none."""
        if isinstance(x, fx.Proxy):
            return
        if not isinstance(x, Tensor) or x.dim() != 4 or tuple(x.shape[1:]) != self.image:
            got = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            wanted = ", ".join(map(str, self.image))
            raise ValueError(
                f"{type(self).__name__}: x must be [N, {wanted}], got {got}; image_size= "
                "(or image=) makes the network for images of another size"
            )


def scaled(channels: int, width: float) -> int:
    """``channels`` times ``width``, at least 1."""
    return max(1, round(channels * width))


class Layers:
    """Builds a network layer by layer, keeping account of its channels and pixels.

    Binary layers have neither scale nor bias, since a batch norm follows each: sums stay integers.
    Theirs is the order sign, convolution, pool, batch norm; the sign's straight-through gradient is
    0 beyond +-1, which is what a hardtanh before it would do. The first layer takes its input
    in steps of ``input_step``; ``owner`` names the network in messages.
    """

    def __init__(
        self,
        owner: str,
        image: Sequence[int],
        precision: NetworkPrecision,
        input_step: float | None,
    ) -> None:
        if precision not in get_args(NetworkPrecision):
            raise ValueError(
                f"{owner}: precision must be one of {get_args(NetworkPrecision)}, got {precision!r}"
            )
        if min(image) < 1:
            raise ValueError(f"{owner}: an image must have sizes of at least 1, got {list(image)}")
        self.owner = owner
        self.binary = precision == "binary"
        self.channels, self.height, self.width = image
        self.layers: list[nn.Module] = []
        self._input_step = input_step

    def _options(self) -> dict[str, Any]:
        """Options of the next layer; the first one of a binary network takes fixed point."""
        step, self._input_step = self._input_step, None
        return {"bias": False, **({"scale": False, "input_step": step} if self.binary else {})}

    def convolution(self, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
        """A convolution padded to keep the size, without norm or activation."""
        padding = kernel // 2
        kind = BinaryConv2d if self.binary else nn.Conv2d
        layer = kind(self.channels, outputs, kernel, stride, padding, **self._options())
        self.channels = outputs
        self.height = (self.height + 2 * padding - kernel) // stride + 1
        self.width = (self.width + 2 * padding - kernel) // stride + 1
        return layer

    def convolve(self, outputs: int, kernel: int = 3, stride: int = 1, pool: int = 1) -> None:
        """Add a convolution with norm and activation, and a max pool if ``pool`` is not 1."""
        layer = self.convolution(outputs, kernel, stride)
        # In full precision the norm directly behind the convolution is what compilers fold.
        tail: list[nn.Module] = [nn.BatchNorm2d(outputs)]
        if not self.binary:
            tail.append(nn.ReLU())
        if pool != 1:
            if min(self.height, self.width) < pool:
                raise ValueError(
                    f"{self.owner}: the image is too small for its pools: "
                    f"{self.height}x{self.width} pixels are left for a pool of {pool}"
                )
            tail.insert(0 if self.binary else len(tail), nn.MaxPool2d(pool))
            self.height, self.width = self.height // pool, self.width // pool
        self.layers += [layer, *tail]

    def parts(self, widths: Iterable[int]) -> tuple[nn.Sequential, nn.Sequential]:
        """The layers so far, followed by linear layers of ``widths``; the last gives scores.

        Binary scores are sums after a batch norm too.
        """
        size = self.channels * self.height * self.width
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise([size, *widths]):
            kind = BinaryLinear if self.binary else nn.Linear
            layers += [kind(inputs, outputs, **self._options()), nn.BatchNorm1d(outputs)]
            layers += [] if self.binary else [nn.ReLU()]
        if not self.binary:
            layers[-3:] = [nn.Linear(inputs, outputs)]
        return nn.Sequential(*self.layers), nn.Sequential(*layers)


class MLP(ImageNetwork):
    """Linear layers; the first takes its input in full precision, the last gives the scores.

    Args:
        widths: outputs of the hidden layers.
        classes: outputs of the last.
        image: channels, height and width of an image; vectors of as many values will do.
        precision: ``"binary"``, or ``"fp32"`` for the same structure with ReLU.
        input_step: fixed-point step of the input; None binarises it too.

    Raises:
        ValueError: an unknown precision, a size below 1 or an impossible step.
    """

    def __init__(
        self,
        widths: Sequence[int] = (1024, 1024, 1024),
        classes: int = 10,
        image: tuple[int, int, int] = (1, 28, 28),
        precision: NetworkPrecision = "binary",
        input_step: float | None = INPUT_STEP,
    ) -> None:
        layers = Layers("MLP", image, precision, input_step)
        super().__init__(image, precision, *layers.parts([*widths, classes]))

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of each image, see :class:`ImageNetwork`; ``x`` ``[N, C * H * W]`` will do.

        Raises:
            ValueError: the images have another shape.
        """
        if not (isinstance(x, Tensor) and x.dim() == 2):
            self._check_images(x)
        out: Tensor = self.classifier(x.flatten(1))
        return out


class VGG(ImageNetwork):
    """Stages of 3x3 convolutions, each ended by a max pool of 2, then linear layers.

    Args:
        stages: (convolutions, channels) of each.
        dense: outputs of the hidden linear layers.
        classes: outputs of the last.
        image: channels, height and width of an image.
        precision: ``"binary"``, or ``"fp32"`` for the same structure with ReLU.
        input_step: fixed-point step of the input; None binarises it too.

    Raises:
        ValueError: an unknown precision, a size below 1, an impossible step, or an image too small
            for the pools.
    """

    def __init__(
        self,
        stages: Sequence[tuple[int, int]] = CIFAR_STAGES,
        dense: Sequence[int] = (1024, 1024),
        classes: int = 10,
        image: tuple[int, int, int] = (3, 32, 32),
        precision: NetworkPrecision = "binary",
        input_step: float | None = INPUT_STEP,
    ) -> None:
        layers = Layers("VGG", image, precision, input_step)
        for count, channels in stages:
            for i in range(count):
                layers.convolve(channels, pool=2 if i == count - 1 else 1)
        super().__init__(image, precision, *layers.parts([*dense, classes]))


class AlexNet(ImageNetwork):
    """11x11 and 5x5 convolutions with pools of 2, three of 3x3 and a pool, then linear layers.

    Args:
        channels: of the five convolutions.
        dense: outputs of the hidden linear layers.
        classes: outputs of the last.
        image: channels, height and width of an image.
        precision: ``"binary"``, or ``"fp32"`` for the same structure with ReLU.
        input_step: fixed-point step of the input; None binarises it too.

    Raises:
        ValueError: as of :class:`VGG`.
    """

    def __init__(
        self,
        channels: Sequence[int] = ALEXNET_CHANNELS,
        dense: Sequence[int] = (4096, 4096),
        classes: int = 1000,
        image: tuple[int, int, int] = (3, 224, 224),
        precision: NetworkPrecision = "binary",
        input_step: float | None = INPUT_STEP,
    ) -> None:
        layers = Layers("AlexNet", image, precision, input_step)
        layers.convolve(channels[0], 11, stride=4, pool=2)
        layers.convolve(channels[1], 5, pool=2)
        layers.convolve(channels[2])
        layers.convolve(channels[3])
        layers.convolve(channels[4], pool=2)
        super().__init__(image, precision, *layers.parts([*dense, classes]))


def mlp(
    precision: NetworkPrecision = "binary",
    classes: int = 10,
    width: float = 1.0,
    input_step: float | None = INPUT_STEP,
) -> MLP:
    """784-1024-1024-1024-10 for MNIST, hidden layers times ``width``. See :class:`MLP`."""
    return MLP((scaled(1024, width),) * 3, classes, (1, 28, 28), precision, input_step)


def vgg(
    precision: NetworkPrecision = "binary",
    classes: int = 10,
    width: float = 1.0,
    image_size: int = 32,
    input_step: float | None = INPUT_STEP,
) -> VGG:
    """2x128C3-P2-2x256C3-P2-2x512C3-P2-1024-1024 for CIFAR-10. See :class:`VGG`."""
    stages = [(count, scaled(channels, width)) for count, channels in CIFAR_STAGES]
    dense, image = (scaled(1024, width),) * 2, (3, image_size, image_size)
    return VGG(stages, dense, classes, image, precision, input_step)


def vgg16(
    precision: NetworkPrecision = "binary",
    classes: int = 1000,
    width: float = 1.0,
    image_size: int = 224,
    input_step: float | None = INPUT_STEP,
) -> VGG:
    """VGG-16 for ImageNet. See :class:`VGG`."""
    stages = [(count, scaled(channels, width)) for count, channels in VGG16_STAGES]
    dense, image = (scaled(4096, width),) * 2, (3, image_size, image_size)
    return VGG(stages, dense, classes, image, precision, input_step)


def alexnet(
    precision: NetworkPrecision = "binary",
    classes: int = 1000,
    width: float = 1.0,
    image_size: int = 224,
    input_step: float | None = INPUT_STEP,
) -> AlexNet:
    """128C11/4-P2-256C5-P2-3x256C3-P2-4096-4096 for ImageNet. See :class:`AlexNet`."""
    channels = [scaled(c, width) for c in ALEXNET_CHANNELS]
    dense, image = (scaled(4096, width),) * 2, (3, image_size, image_size)
    return AlexNet(channels, dense, classes, image, precision, input_step)
