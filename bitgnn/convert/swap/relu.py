"""ReLUs before binary layers, which make every sign +1: modules are replaced, calls normalised."""

from __future__ import annotations

from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from bitgnn.convert.configs import Activation
from bitgnn.convert.layerwise import packed_copy
from bitgnn.convert.network.graph_rows import SUPPORTED
from bitgnn.convert.network.lower import is_image_network, lower_images, lower_model
from bitgnn.convert.network.trace import trace_model
from bitgnn.convert.network.values import canonical, is_nowhere_negative, ordered
from bitgnn.convert.walker import put_everywhere
from bitgnn.nn import BinaryConv2d

RELU_MODULES = (nn.ReLU, nn.ReLU6)
POOLED = ("max_pool", "avg_pool", "adaptive_avg_pool", "mean_pixels", "flatten")
"""Kinds of values of images that are nowhere negative where what they read is not."""
BEHIND = "put a batch norm behind it"
CURE = f"remove it, set activation='drop' in the configuration, or {BEHIND}"
CALL_CURE = f"remove the call, make it an nn.ReLU, which activation='drop' takes out, or {BEHIND}"


def relu_warnings(model: nn.Module) -> tuple[str, ...]:
    """Warnings about binary layers whose input is never negative, one for each ReLU.

    A network of images that cannot be traced has one that says so.
    """
    of_images = is_image_network(model)
    if of_images:
        try:
            lower_images(trace_model(model))
        except ValueError as error:
            reason = str(error).removeprefix("freeze: ")
            return (f"a ReLU in front of a sign would stay and make every bit +1; {reason}",)
    fed: dict[str, dict[str, None]] = {}
    for relu, layer in _feeders(model):
        fed.setdefault(relu, {})[layer] = None
    modules = dict(model.named_modules())
    return tuple(
        f"ReLU ({relu}) feeds the sign of {', '.join(layers)}: no value is negative there, so "
        f"every bit would be +1; {CURE if of_images or relu in modules else CALL_CURE}"
        for relu, layers in fed.items()
    )


def replace_activations(model: nn.Module, activation: Activation) -> dict[str, str]:
    """Replace activations of PyG's models and ReLU modules that feed a sign, in place.

    Returns the replacements by name.
    """
    if activation == "keep":
        return {}
    clip = activation == "hardtanh"
    names = [
        f"{name}.act" if name else "act"
        for name, module in model.named_modules()
        if isinstance(module, BasicGNN) and module.act is not None
    ]
    modules = dict(model.named_modules())
    feeding = dict.fromkeys(relu for relu, _ in _feeders(model))
    names += [n for n in feeding if isinstance(modules.get(n), RELU_MODULES) and n not in names]
    for name in names:
        put_everywhere(model, model.get_submodule(name), nn.Hardtanh() if clip else nn.Identity())
    return dict.fromkeys(names, "Hardtanh" if clip else "Identity")


def normalise_calls(model: nn.Module) -> dict[str, str]:
    """Put a batch norm before layers of images that take signs of a ReLU call's result, in place.

    A call is the user's code, which stays as it is; signs around the mean tell its values apart.
    Returns the additions by name.
    """
    modules = dict(model.named_modules())
    found: dict[str, str] = {}
    for name in dict.fromkeys(layer for relu, layer in _feeders(model) if relu not in modules):
        layer = modules[name]
        is_conv = isinstance(layer, BinaryConv2d)
        size = layer.in_channels if is_conv else layer.in_features
        kind = nn.BatchNorm2d if is_conv else nn.BatchNorm1d
        weight = next(layer.parameters())
        norm = kind(size, device=weight.device, dtype=weight.dtype).train(layer.training)
        put_everywhere(model, layer, nn.Sequential(norm, layer))
        found[f"ReLU call before {name}"] = f"followed by {kind.__name__}"
    return found


def _feeders(model: nn.Module) -> list[tuple[str, str]]:
    """Pairs of a non-negative function and the layer whose sign reads it; none without a trace."""
    parts = {"": model}
    # Modules inside of graph layers that a trace keeps whole, such as MLPs.
    for name, layer in model.named_modules():
        if isinstance(layer, MessagePassing) and not isinstance(layer, SUPPORTED):
            prefix = f"{name}." if name else ""
            parts |= {f"{prefix}{child}.": module for child, module in layer.named_children()}
    found = []
    for prefix, part in parts.items():
        try:
            pairs = _feeders_of(part)
        except ValueError:
            continue
        found += [(f"{prefix}{relu}", f"{prefix}{layer}") for relu, layer in pairs]
    return found


def _feeders_of(model: nn.Module) -> list[tuple[str, str]]:
    network = lower_model(model, {}, packed_copy)
    assert network.scores is not None
    found = []
    for value in ordered(network.scores):
        if value.kind == "product" and value.attributes.get("input_step") is None:
            source = canonical(value.inputs[0])
            while source.kind in POOLED:
                source = canonical(source.inputs[0])
            if is_nowhere_negative(source):
                found.append((source.layer, value.layer))
    return found
