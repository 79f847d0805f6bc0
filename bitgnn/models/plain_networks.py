"""Networks of layers in a row: MLP, the VGG of CIFAR-10, VGG-16 and AlexNet."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bitgnn.models.image_network import (
    INPUT_STEP,
    ImageNetwork,
    Layers,
    NetworkPrecision,
    scaled,
)

CIFAR_STAGES = ((2, 128), (2, 256), (2, 512))
VGG16_STAGES = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))


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
        super().__init__(image, precision, layers.images(), layers.dense([*widths, classes]))

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of each image.

        Args:
            x: ``[N, C, H, W]`` or ``[N, C * H * W]`` floats.

        Returns:
            ``[N, classes]`` floats.

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
        super().__init__(image, precision, layers.images(), layers.dense([*dense, classes]))


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
        ValueError: an unknown precision, a size below 1, an impossible step, or an image too small
            for the pools.
    """

    def __init__(
        self,
        channels: Sequence[int] = (128, 256, 256, 256, 256),
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
        super().__init__(image, precision, layers.images(), layers.dense([*dense, classes]))


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
    return _vgg(CIFAR_STAGES, 1024, precision, classes, width, image_size, input_step)


def vgg16(
    precision: NetworkPrecision = "binary",
    classes: int = 1000,
    width: float = 1.0,
    image_size: int = 224,
    input_step: float | None = INPUT_STEP,
) -> VGG:
    """VGG-16 for ImageNet. See :class:`VGG`."""
    return _vgg(VGG16_STAGES, 4096, precision, classes, width, image_size, input_step)


def alexnet(
    precision: NetworkPrecision = "binary",
    classes: int = 1000,
    width: float = 1.0,
    image_size: int = 224,
    input_step: float | None = INPUT_STEP,
) -> AlexNet:
    """128C11/4-P2-256C5-P2-3x256C3-P2-4096-4096 for ImageNet. See :class:`AlexNet`."""
    channels = [scaled(c, width) for c in (128, 256, 256, 256, 256)]
    dense = (scaled(4096, width),) * 2
    return AlexNet(channels, dense, classes, (3, image_size, image_size), precision, input_step)


def _vgg(
    stages: Sequence[tuple[int, int]],
    dense: int,
    precision: NetworkPrecision,
    classes: int,
    width: float,
    image_size: int,
    input_step: float | None,
) -> VGG:
    narrow = [(count, scaled(channels, width)) for count, channels in stages]
    image = (3, image_size, image_size)
    return VGG(narrow, (scaled(dense, width),) * 2, classes, image, precision, input_step)
