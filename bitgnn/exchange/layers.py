"""Layers as the files have them: what the JSON says, what is exported, how it is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn.bits import BitTensor
from bitgnn.bits.tensor import BitImages, words_for
from bitgnn.exchange.norms import (
    NORMS,
    affine_of,
    can_hold,
    norm_roles,
    set_affine,
    set_threshold,
    threshold_of,
)
from bitgnn.nn import BinaryConv2d, BinaryLinear
from bitgnn.nn.binary_product import BinaryProduct
from bitgnn.quantize import canonical_row_scale

Layer = dict[str, Any]
"""A layer in the JSON."""
Tensors = dict[str, Tensor]

CONVOLUTION_NUMBERS = ("stride", "padding", "dilation", "groups", "padding_mode")
BISECTION_STEPS = 64
ATTEMPTS = 16


def describe(function: str, model: nn.Module) -> list[Layer]:
    """What the JSON says of each layer, in the order of the model's modules.

    Args:
        function: name for messages.
        model: the network.

    Raises:
        TypeError: ``model`` is no module.
        ValueError: it has no binary layer or cannot be traced.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"{function}: model must be a torch.nn.Module, got {type(model).__name__}")
    if not any(isinstance(m, BinaryConv2d | BinaryLinear) for m in model.modules()):
        is_of_graphs = any(isinstance(m, BinaryProduct) for m in model.modules())
        raise ValueError(
            f"{function}: model must be a network of images, with BinaryConv2d or BinaryLinear "
            f"layers, got {type(model).__name__}, which has none"
            + (" (a model of graph layers is kept by freeze() and save())" if is_of_graphs else "")
        )
    roles = norm_roles(function, model)
    layers = []
    for name, module in model.named_modules():
        found = _described(module, roles.get(name))
        if found is not None:
            layers.append({"name": name, **found})
    return layers


def _described(module: nn.Module, role: str | None) -> Layer | None:
    if isinstance(module, BinaryConv2d | BinaryLinear):
        is_convolution = isinstance(module, BinaryConv2d)
        layer: Layer = {
            "kind": "convolution" if is_convolution else "linear",
            "weight": list(module.weight.shape),
            "input_step": module.input_step,
            "scale": module.scale,
            "bias": module.bias is not None,
        }
        if is_convolution:
            numbers = {name: getattr(module, name) for name in CONVOLUTION_NUMBERS}
            layer |= {n: list(v) if isinstance(v, tuple) else v for n, v in numbers.items()}
        return layer
    if isinstance(module, NORMS) and role is not None and can_hold(module):
        return {"kind": role, "channels": module.num_features}
    state = _state(module)
    if not state:
        return None
    return {"kind": "values", "state": {n: [_name(t), list(t.shape)] for n, t in state.items()}}


def _state(module: nn.Module) -> Tensors:
    """A module's own parameters and persistent buffers."""
    own: dict[str, Tensor | None] = {**module._parameters, **module._buffers}
    left_out = module._non_persistent_buffers_set
    return {n: t for n, t in own.items() if t is not None and n not in left_out}


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def entries(layer: Layer) -> dict[str, tuple[str, list[int]]]:
    """Dtype and shape of each tensor of a layer."""
    kind = layer["kind"]
    if kind == "values":
        return {name: (dtype, shape) for name, (dtype, shape) in layer["state"].items()}
    if kind in ("threshold", "affine"):
        per_channel = [layer["channels"]]
        second = ("turned", "bool") if kind == "threshold" else ("bias", "float32")
        first = "threshold" if kind == "threshold" else "scale"
        return {first: ("float32", per_channel), second[0]: (second[1], per_channel)}
    outputs, inputs, *kernel = layer["weight"]
    words = words_for(inputs)
    found = {"words": ("int32", [outputs, *kernel, words])}
    return found | {name: ("float32", [outputs]) for name in ("scale", "bias") if layer[name]}


@torch.no_grad()
def exported(layer: Layer, module: Any) -> Tensors:
    """The tensors of a layer.

    Raises:
        ValueError: the module holds NaN or infinity, or a norm no statistics.
    """
    kind = layer["kind"]
    if kind == "threshold":
        return threshold_of(module)
    if kind == "values":
        return _state(module)
    if kind == "affine":
        found = affine_of(module)
    else:
        weight = module.weight.detach()
        _check_finite({"weight": weight})
        pack = BitImages if kind == "convolution" else BitTensor
        found = {"words": pack.from_float(weight.cpu()).words}
        if layer["scale"]:
            found["scale"] = canonical_row_scale(weight.flatten(1)).float()
        if layer["bias"]:
            found["bias"] = module.bias.float()
    _check_finite({n: t for n, t in found.items() if t.is_floating_point()})
    return found


def _check_finite(tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} must be finite, got NaN or infinity")


def importer(layer: Layer, module: Any, found: Tensors) -> Callable[[], None]:
    """What writes the tensors of a layer into its module; everything can be written.

    Raises:
        ValueError: a value is none that an export writes.
    """
    device = next(iter(_state(module).values())).device
    found = {name: tensor.to(device) for name, tensor in found.items()}
    kind = layer["kind"]
    if kind == "threshold":
        if bool(found["threshold"].isnan().any()):
            raise ValueError("threshold must not be NaN")
        return lambda: set_threshold(module, found["threshold"], found["turned"])
    if kind == "affine":
        _check_finite(found)
        return lambda: set_affine(module, found["scale"], found["bias"])
    if kind == "values":
        state = _state(module)

        def copy() -> None:
            for name, tensor in found.items():
                state[name].copy_(tensor)

        return copy
    _check_finite({n: t for n, t in found.items() if n != "words"})
    weight = _weight(layer, found["words"], found.get("scale"), module.weight)

    def write() -> None:
        module.weight.copy_(weight)
        if layer["bias"]:
            module.bias.copy_(found["bias"])

    return write


def _weight(layer: Layer, words: Tensor, scale: Tensor | None, like: Tensor) -> Tensor:
    """Weights with the signs of ``words``, whose mean magnitude is ``scale`` to the bit."""
    inputs = layer["weight"][1]
    if layer["kind"] == "convolution":
        signs = BitImages(words.cpu(), inputs).to_float().contiguous()
    else:
        signs = BitTensor(words.cpu(), inputs).to_float()
    signs = signs.to(like.device)
    if scale is None:
        return signs.to(like.dtype)
    if bool((scale < 0).any()):
        raise ValueError("scale must not be negative")
    return _with_mean(signs.flatten(1), scale, like.dtype).view_as(signs)


def _with_mean(signs: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows ``+-scale``, entries moved a little until the mean is ``scale`` to the bit.

    The mean of equal numbers may be rounded to a neighbour of theirs. It rises with the first
    entry, so bisection finds where it is right; where ties in the sum pass over the value, the
    others are spread over the next few floats.
    """
    result = torch.empty_like(signs, dtype=dtype)
    missing = torch.ones_like(scale, dtype=torch.bool)
    place = torch.arange(signs.size(1), device=signs.device)
    for attempt in range(ATTEMPTS):
        rows = (scale.unsqueeze(1) * signs).to(dtype)
        if attempt:
            rows *= 1 + (place * attempt % 7) * torch.finfo(dtype).eps
        low, high = torch.zeros_like(scale), 4 * scale
        for _ in range(BISECTION_STEPS):
            middle = (low + high) / 2
            rows[:, 0] = (middle * signs[:, 0]).to(dtype)
            below = canonical_row_scale(rows).float() < scale
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        rows[:, 0] = (high * signs[:, 0]).to(dtype)
        found = missing & (canonical_row_scale(rows).float() == scale)
        result[found] = rows[found]
        missing = missing & ~found
        if not bool(missing.any()):
            return result
    raise ValueError(f"scale has values that no {dtype} weights have as their mean")
