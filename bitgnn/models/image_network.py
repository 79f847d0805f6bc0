"""Base of the networks for images: their forward, and layers in binary or full precision."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

from torch import Tensor, fx, nn

from bitgnn.nn import BinaryConv2d, BinaryLinear

NetworkPrecision = Literal["binary", "fp32"]

INPUT_STEP = 2.0**-12
"""Of the first layer's input: 16 bits reach to +-8, which normalised images stay within."""


class ImageNetwork(nn.Module):
    """Base of the networks: layers on images, then layers on what they leave as one vector.

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
    0 beyond +-1, which is what a hardtanh in front of it would do.

    Args:
        owner: the network's name, for messages.
        image: channels, height and width of an image.
        precision: of all layers.
        input_step: of the first layer, see :class:`bitgnn.nn.BinaryConv2d`.

    Raises:
        ValueError: ``precision`` is neither of the two, or a size below 1.
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

    @property
    def size(self) -> int:
        """Values of what the layers so far hand on for one image."""
        return self.channels * self.height * self.width

    def convolution(self, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
        """A convolution padded to keep the size, alone; the first one takes fixed point."""
        padding = kernel // 2
        numbers = self.channels, outputs, kernel, stride, padding
        layer = (
            BinaryConv2d(*numbers, bias=False, scale=False, input_step=self._first_step())
            if self.binary
            else nn.Conv2d(*numbers, bias=False)
        )
        self.channels = outputs
        self.height = (self.height + 2 * padding - kernel) // stride + 1
        self.width = (self.width + 2 * padding - kernel) // stride + 1
        return layer

    def convolve(self, outputs: int, kernel: int = 3, stride: int = 1, pool: int = 1) -> None:
        """Add a convolution with all that belongs to it, and a max pool where ``pool`` is not 1."""
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

    def images(self) -> nn.Sequential:
        """The layers so far."""
        return nn.Sequential(*self.layers)

    def dense(self, widths: Iterable[int]) -> nn.Sequential:
        """Linear layers of ``widths`` behind what the layers so far hand on; the last gives scores.

        Binary scores are sums behind a batch norm too.
        """
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise([self.size, *widths]):
            if self.binary:
                step = self._first_step()
                layers.append(
                    BinaryLinear(inputs, outputs, bias=False, scale=False, input_step=step)
                )
                layers.append(nn.BatchNorm1d(outputs))
            else:
                layers += [nn.Linear(inputs, outputs, bias=False)]
                layers += [nn.BatchNorm1d(outputs), nn.ReLU()]
        if not self.binary:
            layers[-3:] = [nn.Linear(inputs, outputs)]
        return nn.Sequential(*layers)

    def _first_step(self) -> float | None:
        """The step of the input, once."""
        step, self._input_step = self._input_step, None
        return step
