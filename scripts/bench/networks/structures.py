"""The networks of TCBNN as plain torch networks: batch norm folded, ReLU in place of signs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

CIFAR, IMAGENET = (3, 32, 32), (3, 224, 224)
CIFAR_CLASSES, IMAGENET_CLASSES = 10, 1000
EXPANSION = 4
"""Channels behind a bottleneck for each one inside."""


@dataclass(frozen=True)
class Structure:
    """One network.

    Attributes:
        name: as the papers say it.
        key: short name for command lines, and of the maker in ``bitgnn.models.IMAGE_NETWORKS``.
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
    """Convolutions and a shortcut of type A: every other pixel, zeros for new channels."""

    def __init__(self, channels: int, inner: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        if bottleneck:
            layers = [
                *_convolution(channels, inner, 1),
                *_convolution(inner, inner, 3, stride),
                nn.Conv2d(inner, EXPANSION * inner, 1),
            ]
        else:
            layers = [*_convolution(channels, inner, 3, stride), nn.Conv2d(inner, inner, 3, 1, 1)]
        self.body = nn.Sequential(*layers)
        self.stride = stride
        self.new_channels = inner * (EXPANSION if bottleneck else 1) - channels

    def forward(self, x: Tensor) -> Tensor:
        """``relu(body(x) + shortcut(x))``."""
        shortcut = x
        if self.stride != 1 or self.new_channels:
            shortcut = x[:, :, :: self.stride, :: self.stride]
            shortcut = functional.pad(shortcut, (0, 0, 0, 0, 0, self.new_channels))
        return functional.relu(self.body(x) + shortcut)


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


def _resnet(
    kernel: int, stages: Iterable[tuple[int, int]], dense: Iterable[int], bottleneck: bool = False
) -> nn.Module:
    """One convolution, stages of (blocks, channels) that halve the image, then linear layers."""
    counts = list(stages)
    channels = counts[0][1]
    layers = _convolution(3, channels, kernel, 4 if kernel == 7 else 2)
    for stage, (blocks, inner) in enumerate(counts):
        for i in range(blocks):
            stride = 2 if stage and not i else 1
            layers.append(Block(channels, inner, stride, bottleneck))
            channels = inner * (EXPANSION if bottleneck else 1)
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
            partial(_resnet, 3, ((2, 128), (2, 256), (2, 512)), (4 * 4 * 512, 512, 10)),
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
            partial(
                _resnet, 7, ((2, 64), (2, 128), (2, 256), (2, 512)), (7 * 7 * 512, 512, 1000)
            ),
        ),
        Structure(
            "ResNet-50", "resnet50", IMAGENET, IMAGENET_CLASSES, 512,
            partial(
                _resnet, 7, ((3, 64), (4, 128), (6, 256), (3, 512)), (7 * 7 * 2048, 512, 1000),
                bottleneck=True,
            ),
        ),
    )
}  # fmt: skip
"""By key, in the order of the papers."""
