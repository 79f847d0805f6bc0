"""Small convolutional networks of many structures, with norms as after training."""

import random
import warnings

import torch
from torch import Tensor, nn

import bitgnn
from bitgnn.inference import FrozenModel
from bitgnn.nn import BinaryConv2d, BinaryLinear

CHANNELS = (3, 31, 33, 64)


def trained(model: nn.Module, ties: bool = True) -> nn.Module:
    """Norms with statistics and gains of both signs, as training may leave them.

    With ``ties`` every other norm has no shift: what lies on its mean is 0 but for rounding, which
    is another on other devices.
    """
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            # Sums of an even number of signs are even: many lie on a mean exactly.
            module.running_mean.copy_(torch.randint(-3, 4, module.running_mean.shape) * 2)
            module.running_var.uniform_(0.5, 40)
            if module.affine:
                nn.init.normal_(module.weight)
                nn.init.normal_(module.bias, std=0.3)
                if ties:
                    module.bias.data[::2] = 0.0
    return model.eval()


class Block(nn.Module):
    """A residual block: two convolutions, norms behind sums, and a shortcut."""

    def __init__(self, channels: int, scale: bool, norm_inside: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        options = {"padding": 1, "bias": False, "scale": scale}
        self.conv1 = BinaryConv2d(channels, channels, 3, **options)
        self.conv2 = BinaryConv2d(channels, channels, 3, **options)
        self.norm_inside = norm_inside

    def forward(self, x: Tensor) -> Tensor:
        if self.norm_inside:
            out = self.norm1(self.conv1(x)) + x
            return self.norm2(self.conv2(out)) + out
        out = self.conv1(self.norm1(x)) + x
        return self.conv2(self.norm2(out)) + out


class Bottleneck(nn.Module):
    """1x1, grouped 3x3, 1x1 and a shortcut with a convolution of its own."""

    def __init__(self, channels: int, out: int, stride: int, groups: int, scale: bool) -> None:
        super().__init__()
        options = {"bias": False, "scale": scale}
        width = 2 * channels
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(width)
        self.norm3 = nn.BatchNorm2d(width)
        self.conv1 = BinaryConv2d(channels, width, 1, **options)
        self.conv2 = BinaryConv2d(
            width, width, 3, stride=stride, padding=1, groups=groups, **options
        )
        self.conv3 = BinaryConv2d(width, out, 1, **options)
        self.down = BinaryConv2d(channels, out, 1, stride=stride, **options)

    def forward(self, x: Tensor) -> Tensor:
        signs = self.norm1(x)
        out = self.norm3(self.conv2(self.norm2(self.conv1(signs))))
        return self.conv3(out) + self.down(signs)


class Residual(nn.Module):
    """A stem, residual blocks and linear layers."""

    def __init__(self, stem: nn.Module, blocks: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.stem, self.blocks, self.head = stem, blocks, head

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        return self.head(x.reshape(x.size(0), -1))


def plain(seed: int, scale: bool, ties: bool = True) -> tuple[nn.Module, Tensor]:
    """A VGG-like network: pools in front of norms or behind, strides, groups, activations."""
    choose = random.Random(seed)
    channels = choose.choice(CHANNELS)
    image = torch.randn(2, channels, 26, 26)
    layers: list[nn.Module] = []
    for _ in range(3):
        out, stride = choose.choice(CHANNELS), choose.choice((1, 1, 2))
        groups = channels if out == channels and choose.random() < 0.3 else 1
        kernel = choose.choice((1, 3, 5))
        layers.append(
            BinaryConv2d(
                channels, out, kernel, stride, kernel // 2,
                groups=groups, bias=choose.random() < 0.3, scale=scale,
            )
        )  # fmt: skip
        behind: list[nn.Module] = [nn.BatchNorm2d(out), nn.Hardtanh()]
        if choose.random() < 0.5:
            overlapping = choose.random() < 0.5
            pool = nn.MaxPool2d(3, 2, 1) if overlapping else nn.MaxPool2d(2)
            behind.insert(choose.choice((0, 1, 2)), pool)
        layers += behind
        channels = out
    layers += [nn.Dropout(0.3), nn.Flatten()]
    with torch.no_grad():
        features = nn.Sequential(*layers).eval()(image).size(1)
    bias = choose.random() < 0.5
    layers += [
        BinaryLinear(features, 33, bias=bias, scale=scale),
        nn.BatchNorm1d(33),
        nn.Hardtanh(),
    ]
    layers += [BinaryLinear(33, 10, bias=False, scale=scale), nn.BatchNorm1d(10)]
    return trained(nn.Sequential(*layers), ties), image


def residual(
    seed: int, scale: bool, norm_inside: bool, ties: bool = True
) -> tuple[nn.Module, Tensor]:
    """A ResNet-like network whose sums are integers without scale and norms inside blocks."""
    choose = random.Random(seed)
    channels, out = choose.choice((31, 33, 64)), choose.choice((32, 33))
    stem = BinaryConv2d(5, channels, 3, padding=1, bias=False, scale=scale)
    blocks: list[nn.Module] = [Block(channels, scale, norm_inside) for _ in range(2)]
    groups = choose.choice((1, 2))
    blocks += [Bottleneck(channels, out, 2, groups, scale), Block(out, scale, norm_inside)]
    head = nn.Sequential(
        nn.BatchNorm1d(out * 16), nn.Hardtanh(),
        BinaryLinear(out * 16, 10, bias=False, scale=scale), nn.BatchNorm1d(10),
    )  # fmt: skip
    if choose.random() < 0.5:
        norm = nn.Sequential(nn.BatchNorm2d(out), nn.Hardtanh())
        blocks.append(norm)
        head = nn.Sequential(*list(head)[2:])
    model = Residual(stem, nn.Sequential(*blocks), head)
    return trained(model, ties), torch.randn(2, 5, 8, 8)


class Net(nn.Module):
    """A network whose forward is given."""

    def __init__(self, forward, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.function = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def expected_of(model: nn.Module, x: Tensor) -> Tensor:
    """What a model gives, without gradients."""
    with torch.no_grad():
        return model(x)


def frozen_quietly(model: nn.Module, **options: object) -> FrozenModel:
    """The frozen form, whatever stays in floats."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        frozen = bitgnn.freeze(model, **options)
    assert frozen.kind == "images"
    return frozen
