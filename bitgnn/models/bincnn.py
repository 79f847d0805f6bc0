"""BinCNN, a classifier of vehicles, and its four binarisations of images."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from bitgnn.models.image_networks import INPUT_STEP, ImageNetwork, NetworkPrecision, scaled
from bitgnn.nn import BinaryConv2d, BinaryLinear
from bitgnn.quantize import Surrogate, grey, local_binary_patterns

InputBinarization = Literal["none", "rgb", "grey", "lbp"]

JUST_BELOW_ZERO = -(2.0**-20)
"""Added to a scaled sum of signs, it turns 0 and nothing else."""


class RGBThreshold(nn.Module):
    r"""``x + T`` with a learned ``T`` for each channel, before a layer that takes signs."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """``[N, channels, H, W]`` floats like ``x``."""
        return x + self.threshold


class GreyThreshold(RGBThreshold):
    """``grey(x) + T`` with one learned ``T``: one channel in place of three."""

    def __init__(self) -> None:
        super().__init__(1)

    def forward(self, x: Tensor) -> Tensor:
        """``[N, 1, H, W]`` floats of ``x`` ``[N, 3, H, W]``."""
        return super().forward(grey(x))


class LocalBinaryPatterns(nn.Module):
    """Three neighbours of a pixel, see :func:`~bitgnn.quantize.local_binary_patterns`."""

    def forward(self, x: Tensor) -> Tensor:
        """``[N, 3, H, W]`` of +1 and -1 of ``x`` ``[N, 3, H, W]``; no gradient flows."""
        return local_binary_patterns(x)


class BinCNN(ImageNetwork):
    """Two 5x5 convolutions with pools of 2, then 100-100 linear units; no batch norms.

    Weights have their mean magnitude as scale, without which no gradient would pass the signs of
    sums of hundreds.

    Source: Khan et al., "Binarized Convolutional Neural Networks for Efficient Inference on GPUs",
    EUSIPCO 2018.

    Args:
        inputs: ``"none"``: the first layer takes its images in full precision; ``"rgb"``: their
            signs after :class:`RGBThreshold`; ``"grey"``: after :class:`GreyThreshold`;
            ``"lbp"``: :class:`LocalBinaryPatterns`.
        classes: outputs.
        channels: of the convolutions.
        dense: outputs of the two hidden linear layers.
        image: channels, height and width of an image.
        precision: ``"binary"``, or ``"fp32"`` for the same structure with ReLU and biases, which
            takes images as they are.
        input_step: fixed-point step of the input of ``inputs="none"``.
        strict_sign: signs are +1 above 0 only, as in the paper, and not at 0: a fixed bias too
            small to change another sign.
        padding_value: -1 for pixels outside that count as -1, as in the paper, in front of every
            convolution of signs; 0 leaves them out.
        surrogate: slope in place of the sign's derivative; the paper's is ``"identity"``.

    Raises:
        ValueError: an unknown precision or binarisation of the input, images that do not suit it,
            or an impossible step or padding value.
    """

    def __init__(
        self,
        inputs: InputBinarization = "rgb",
        classes: int = 4,
        channels: int = 32,
        dense: int = 100,
        image: tuple[int, int, int] = (3, 96, 96),
        precision: NetworkPrecision = "binary",
        input_step: float = INPUT_STEP,
        strict_sign: bool = False,
        padding_value: Literal[0, -1] = 0,
        surrogate: Surrogate = "ste",
    ) -> None:
        for name, value, choices in (
            ("inputs", inputs, get_args(InputBinarization)),
            ("precision", precision, get_args(NetworkPrecision)),
        ):
            if value not in choices:
                raise ValueError(f"BinCNN: {name} must be one of {choices}, got {value!r}")
        if min(image) < 1 or min(image[1:]) < 4 or (inputs in ("grey", "lbp") and image[0] != 3):
            raise ValueError(
                "BinCNN: an image must have at least 4x4 pixels, and three channels to make grey "
                f"of, got {list(image)}"
            )
        binary = precision == "binary"
        conv: Any = partial(BinaryConv2d, surrogate=surrogate) if binary else nn.Conv2d
        linear: Any = partial(BinaryLinear, surrogate=surrogate) if binary else nn.Linear
        activation = [] if binary else [nn.ReLU()]
        bias = strict_sign or not binary
        outside = {"padding_value": padding_value} if binary else {}
        step = {"input_step": input_step} if binary and inputs == "none" else outside
        in_channels = 1 if binary and inputs == "grey" else image[0]
        fronts: dict[str, nn.Module] = {
            "rgb": RGBThreshold(image[0]), "grey": GreyThreshold(), "lbp": LocalBinaryPatterns(),
        }  # fmt: skip
        front = fronts.get(inputs if binary else "none", nn.Identity())
        first = conv(in_channels, channels, 5, padding=2, bias=bias, **step)
        second = conv(channels, channels, 5, padding=2, bias=bias, **outside)
        features = [front, first, *activation, nn.MaxPool2d(2)]
        features += [second, *activation, nn.MaxPool2d(2)]
        size = channels * (image[1] // 4) * (image[2] // 4)
        classifier = [linear(size, dense, bias=bias), *activation]
        classifier += [linear(dense, dense, bias=bias), *activation]
        classifier += [linear(dense, classes, bias=not binary)]
        super().__init__(image, precision, nn.Sequential(*features), nn.Sequential(*classifier))
        if binary and strict_sign:
            for layer in self.modules():
                if isinstance(layer, BinaryConv2d | BinaryLinear) and layer.bias is not None:
                    nn.init.constant_(layer.bias, JUST_BELOW_ZERO).requires_grad_(False)

    def learn(self, part: Literal["weights", "threshold"]) -> Self:
        """Choose the parameters that are trained: the weights, or the input's threshold T alone.

        The paper trains the weights on training images, then T on the validation images. An
        optimizer is made after each choice, of all parameters.

        Raises:
            ValueError: an unknown part, or no T to learn: ``inputs`` is neither ``"rgb"`` nor
                ``"grey"``, or the precision is ``"fp32"``.
        """
        front = self.features[0]
        if part not in ("weights", "threshold"):
            raise ValueError(f"BinCNN: part must be 'weights' or 'threshold', got {part!r}")
        if part == "threshold" and not isinstance(front, RGBThreshold):
            raise ValueError(f"BinCNN: no threshold to learn behind {type(front).__name__}")
        for name, parameter in self.named_parameters():
            is_threshold, is_fixed = name == "features.0.threshold", name.endswith("bias")
            if not is_fixed or self.precision == "fp32":
                parameter.requires_grad_(is_threshold == (part == "threshold"))
        return self


def bincnn(
    precision: NetworkPrecision = "binary",
    classes: int = 4,
    width: float = 1.0,
    image_size: int = 96,
    input_step: float = INPUT_STEP,
    inputs: InputBinarization = "rgb",
    strict_sign: bool = False,
    padding_value: Literal[0, -1] = 0,
    surrogate: Surrogate = "ste",
) -> BinCNN:
    """32C5-P2-32C5-P2-100-100-4 of 96x96 pixels. See :class:`BinCNN`."""
    image = (3, image_size, image_size)
    channels, dense = scaled(32, width), scaled(100, width)
    return BinCNN(
        inputs, classes, channels, dense, image, precision, input_step, strict_sign,
        padding_value, surrogate,
    )  # fmt: skip
