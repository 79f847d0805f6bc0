"""The six networks of TCBNN as plain torch networks: batch norm folded, ReLU in place of signs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

__all__ = ["STRUCTURES", "Structure"]

CIFAR, IMAGENET = (3, 32, 32), (3, 224, 224)
CIFAR_CLASSES, IMAGENET_CLASSES = 10, 1000


@dataclass(frozen=True)
class Structure:
    """One network.

    Attributes:
        name: as the papers say it.
        key: short name for command lines, and name of the network in ``bitgnn.models``.
        image: shape of one input, without the batch.
        classes: outputs.
        many: images of a batch of which the throughput is taken.
        build: makes the plain network, convolutions with the bias that a batch norm leaves.
    """

    name: str
    key: str
    image: tuple[int, ...]
    classes: int
    many: int
    build: Callable[[], nn.Module]


class Block(nn.Module):
    """Two convolutions and a shortcut of type A: every other pixel, zeros for new channels.

    Args:
        channels: of the input.
        outputs: channels of the output.
        stride: of the first convolution and of the shortcut.
    """

    def __init__(self, channels: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, outputs, 3, stride, 1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.stride = stride
        self.new_channels = outputs - channels

    def forward(self, x: Tensor) -> Tensor:
        """``relu(conv2(relu(conv1(x))) + shortcut(x))``."""
        shortcut = x
        if self.stride != 1 or self.new_channels:
            shortcut = x[:, :, :: self.stride, :: self.stride]
            shortcut = functional.pad(shortcut, (0, 0, 0, 0, 0, self.new_channels))
        return functional.relu(self.conv2(functional.relu(self.conv1(x))) + shortcut)


def _convolution(channels: int, outputs: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(channels, outputs, kernel, stride, kernel // 2), nn.ReLU()]


def _dense(widths: Iterable[int]) -> list[nn.Module]:
    """Linear layers with ReLU between them."""
    sizes = list(widths)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return layers[:-1]


def _mlp() -> nn.Module:
    return nn.Sequential(*_dense([784, 1024, 1024, 1024, 10]))


def _vgg(stages: Iterable[tuple[int, int]], dense: Iterable[int]) -> nn.Module:
    """Stages of (convolutions, channels), each ended by a pool of 2, then linear layers."""
    layers: list[nn.Module] = []
    channels = 3
    for count, outputs in stages:
        for _ in range(count):
            layers += _convolution(channels, outputs)
            channels = outputs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), *_dense(dense))


def _alexnet() -> nn.Module:
    pool = partial(nn.MaxPool2d, 2)
    return nn.Sequential(
        *_convolution(3, 128, 11, 4), pool(), *_convolution(128, 256, 5), pool(),
        *_convolution(256, 256), *_convolution(256, 256), *_convolution(256, 256), pool(),
        nn.Flatten(), *_dense([7 * 7 * 256, 4096, 4096, IMAGENET_CLASSES]),
    )  # fmt: skip


def _resnet(kernel: int, stride: int, channels: Iterable[int], dense: Iterable[int]) -> nn.Module:
    """One convolution, then two blocks of each number of channels, then linear layers."""
    stages = list(channels)
    layers = _convolution(3, stages[0], kernel, stride)
    inputs = stages[0]
    for outputs in stages:
        layers += [Block(inputs, outputs, 1 if inputs == outputs else 2)]
        layers += [Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.Flatten(), *_dense(dense))


STRUCTURES = {
    structure.key: structure
    for structure in (
        Structure("MLP", "mlp", (784,), 10, 1024, _mlp),
        Structure(
            "CIFAR VGG", "vgg", CIFAR, CIFAR_CLASSES, 1024,
            partial(_vgg, ((2, 128), (2, 256), (2, 512)), (4 * 4 * 512, 1024, 1024, 10)),
        ),
        Structure(
            "ResNet-14", "resnet14", CIFAR, CIFAR_CLASSES, 1024,
            partial(_resnet, 3, 2, (128, 256, 512), (4 * 4 * 512, 512, 10)),
        ),
        Structure("AlexNet", "alexnet", IMAGENET, IMAGENET_CLASSES, 512, _alexnet),
        Structure(
            "VGG-16", "vgg16", IMAGENET, IMAGENET_CLASSES, 512,
            partial(
                _vgg, ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)),
                (7 * 7 * 512, 4096, 4096, 1000),
            ),
        ),
        Structure(
            "ResNet-18", "resnet18", IMAGENET, IMAGENET_CLASSES, 512,
            partial(_resnet, 7, 4, (64, 128, 256, 512), (7 * 7 * 512, 512, 1000)),
        ),
    )
}  # fmt: skip
"""By key, in the order of the papers."""
