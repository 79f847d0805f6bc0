"""Finds and takes out what makes every sign of a binary layer +1: a ReLU in front of it."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from bitgnn.convert.configs import Activation
from bitgnn.convert.demands import ordered
from bitgnn.convert.graph_layers import SUPPORTED
from bitgnn.convert.images.lowering import is_image_network, lower_images
from bitgnn.convert.images.relu_calls import ReluCalls, relu_calls, without_relu_calls
from bitgnn.convert.lower import lower_trace
from bitgnn.convert.trace import Traced, trace_model
from bitgnn.convert.values import canonical, is_nowhere_negative
from bitgnn.convert.walker import put_everywhere

__all__ = ["relu_warnings", "replace_activations"]

RELU_MODULES = (nn.ReLU, nn.ReLU6)
POOLED = ("max_pool", "avg_pool", "adaptive_avg_pool", "mean_pixels", "flatten")
"""Kinds of values of images that are nowhere negative where what they read is not."""
BEHIND = "put a batch norm behind it"
CURE = f"remove it, set activation='drop' in the configuration, or {BEHIND}"
CALL_CURE = f"remove the call, make it an nn.ReLU, which activation='drop' takes out, or {BEHIND}"


def relu_warnings(model: nn.Module) -> tuple[str, ...]:
    """What to say of binary layers whose input is never negative.

    Args:
        model: the binarised model.

    Returns:
        One text for each ReLU found by tracing, or, of a network of images that cannot be traced,
        one that says so.
    """
    of_images = is_image_network(model)
    if of_images:
        try:
            lower_images(trace_model(model))
        except ValueError as error:
            reason = str(error).removeprefix("freeze: ")
            return (f"a ReLU in front of a sign would stay and make every bit +1; {reason}",)
    fed: dict[str, list[str]] = {}
    for relu, layer in _feeders(model):
        if layer not in fed.setdefault(relu, []):
            fed[relu].append(layer)
    modules = dict(model.named_modules())
    return tuple(
        f"ReLU ({relu}) feeds the sign of {', '.join(layers)}: no value is negative there, so "
        f"every bit would be +1; {CURE if of_images or relu in modules else CALL_CURE}"
        for relu, layers in fed.items()
    )


def replace_activations(
    model: nn.Module, activation: Activation, calls: bool = False
) -> dict[str, str]:
    """Replace activations of PyG's models and ReLU modules that feed a sign.

    Args:
        model: the binarised model; changed in place.
        activation: what becomes of them.
        calls: replace calls of ReLU in the code of the model as well.

    Returns:
        What stands in place of each, by name.
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
    replaced = dict.fromkeys(names, "Hardtanh" if clip else "Identity")
    for name, places in _feeding_calls(model).items() if calls else ():
        module = model.get_submodule(name)
        without_relu_calls(module, places, clip)
        where = name or type(module).__name__
        for place in places:
            replaced[f"ReLU call {place + 1} of {where}"] = "hardtanh" if clip else "dropped"
    return replaced


def _feeding_calls(model: nn.Module) -> ReluCalls:
    """The calls of ReLU directly in front of a sign, by the module in whose code they stand."""
    try:
        traced = trace_model(model)
        return relu_calls(traced, {relu for relu, _ in _feeders_of(model, traced)})
    except ValueError:
        return {}


def _feeders(model: nn.Module) -> list[tuple[str, str]]:
    """Pairs of a non-negative function and the layer whose sign reads it."""
    return [
        (f"{prefix}{relu}", f"{prefix}{layer}")
        for prefix, part in _traceable_parts(model)
        for relu, layer in _feeders_within(part)
    ]


def _traceable_parts(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The model, and modules inside of graph layers that a trace keeps whole, such as MLPs."""
    yield "", model
    for name, layer in model.named_modules():
        if isinstance(layer, MessagePassing) and not isinstance(layer, SUPPORTED):
            for child, module in layer.named_children():
                yield f"{name}.{child}." if name else f"{child}.", module


def _feeders_within(model: nn.Module) -> list[tuple[str, str]]:
    """The pairs that a trace of one forward shows; none where tracing fails."""
    try:
        return _feeders_of(model, trace_model(model))
    except ValueError:
        return []


def _feeders_of(model: nn.Module, traced: Traced) -> list[tuple[str, str]]:
    network = lower_images(traced) if is_image_network(model) else lower_trace(traced, {})
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
