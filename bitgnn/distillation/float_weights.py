"""Binary layers that multiply by their weights themselves: the first stage of two."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from bitgnn.nn import BinaryConv2d, BinaryLinear
from bitgnn.quantize import binary_sign, row_scale

__all__ = ["binary_layers", "use_float_weights"]

BinaryLayer = BinaryConv2d | BinaryLinear


class FloatWeightConv2d(BinaryConv2d):
    """:class:`~bitgnn.nn.BinaryConv2d` with float weights; its input is binarised."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to ``[N, C, H, W]`` or ``[C, H, W]``."""
        return self._conv_forward(_binarised(self, input), _weight(self), self.bias)


class FloatWeightLinear(BinaryLinear):
    """:class:`~bitgnn.nn.BinaryLinear` with float weights; its input is binarised."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to ``[*, in_features]``."""
        return functional.linear(_binarised(self, input), _weight(self), self.bias)


FORMS: tuple[tuple[type[nn.Module], type[nn.Module]], ...] = (
    (BinaryConv2d, FloatWeightConv2d),
    (BinaryLinear, FloatWeightLinear),
)


def _binarised(layer: BinaryLayer, x: Tensor) -> Tensor:
    """The input's signs; of a first layer the input itself."""
    if layer.input_step is None:
        return binary_sign(x, layer.surrogate)
    return x if x.is_floating_point() else x.to(layer.weight.dtype)


def _weight(layer: BinaryLayer) -> Tensor:
    """Weights of the magnitude that their signs have in the binary layer."""
    weight = layer.weight
    if layer.scale:
        return weight
    scale = row_scale(weight.flatten(1)).clamp(min=1e-12)
    return weight / scale.view(-1, *(1 for _ in weight.shape[1:]))


def binary_layers(model: nn.Module) -> list[nn.Module]:
    """The model's layers whose weights can be binary or float."""
    kinds = tuple(kind for forms in FORMS for kind in forms)
    return [module for module in model.modules() if type(module) in kinds]


def use_float_weights(model: nn.Module, wanted: bool) -> None:
    """Let binary layers multiply by float weights, or by signs again.

    Layers change class where they stand, so that parameters, optimizers and hooks stay theirs.

    Args:
        model: with binary layers.
        wanted: whether weights are floats.
    """
    new = dict(FORMS) if wanted else {later: first for first, later in FORMS}
    for layer in binary_layers(model):
        layer.__class__ = new.get(type(layer), type(layer))
