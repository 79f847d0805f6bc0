"""binarize() for convolutional and fully connected networks: torch's layers for binary ones."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from bitgnn.convert.configs import ImageConfig
from bitgnn.convert.handlers import handles
from bitgnn.convert.network.lower import lower_images
from bitgnn.convert.network.trace import trace_model
from bitgnn.convert.network.values import Value
from bitgnn.convert.reporting import BinarizeReport
from bitgnn.convert.swap.keeping import carry_over, copied, why_float
from bitgnn.convert.swap.relu import normalise_calls, relu_warnings, replace_activations
from bitgnn.convert.walker import check_names, outermost, put_everywhere
from bitgnn.nn import BinaryConv2d, BinaryLinear

SWAPPED = (nn.Conv2d, nn.Linear)
OTHER_LAYERS = (
    nn.Conv1d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Bilinear,
    nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase,
)  # fmt: skip
MOST_WEIGHTS = 65535
"""Weights of an output whose sums of 16-bit integers fit 32 bits."""
_GRAPHS = {"edge_index", "adj_t", "edge_label_index"}
"""Names of arguments that no network of images has, but a decoder of links."""
FEW = 0.1
"""Share of all weights up to which a layer at either end stays in floats."""


def _may_swap(module: nn.Module) -> bool:
    """True for a layer of torch or a user's subclass of one."""
    return isinstance(module, SWAPPED) and not type(module).__module__.startswith("bitgnn.")


def is_for_images(model: nn.Module) -> bool:
    """True if a model has layers of torch to swap, no graph layers and no graph to take."""
    modules = list(model.modules())
    if any(isinstance(module, MessagePassing) for module in modules):
        return False
    takes_graph = not _GRAPHS.isdisjoint(inspect.signature(model.forward).parameters)
    if takes_graph and not any(isinstance(module, nn.Conv2d) for module in modules):
        return False
    return any(_may_swap(module) for module in modules)


@handles("binarize", ImageConfig)
def binarize_images(model: nn.Module, config: ImageConfig) -> tuple[nn.Module, BinarizeReport]:
    """A copy of a model whose convolutions and linear layers are binary, with the weights kept."""
    known = outermost(model, _may_swap)
    check_names(config.skip, known)
    firsts, lasts = _ends(model, list(known))
    lasts = [name for name in lasts if isinstance(known[name], nn.Linear)]
    left = _left(model, known, config, firsts, lasts)
    result = copied(model)
    layers: dict[str, str] = {}
    for name in (name for name in known if name not in left):
        layer: Any = result.get_submodule(name)
        step = config.input_step if name in firsts else None
        weight, bias = layer.weight, layer.bias is not None
        where = {"device": weight.device, "dtype": weight.dtype}
        options = {"bias": bias, "scale": config.scale, "input_step": step, **where}
        new: nn.Module
        if isinstance(layer, nn.Linear):
            new = BinaryLinear(layer.in_features, layer.out_features, **options)
        else:
            new = BinaryConv2d(
                layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride,
                layer.padding, layer.dilation, layer.groups, padding_mode=layer.padding_mode,
                **options,
            )  # fmt: skip
        new = carry_over(layer, new)
        if config.last == "norm" and name in lasts:
            norm = nn.BatchNorm1d(layer.out_features, **where)
            new = nn.Sequential(new, norm.train(layer.training))
        result = put_everywhere(result, layer, new)
        layers[name] = "BBF" if step is None else "FBF"
    if not layers:
        left |= {
            name: f"{type(layer).__name__} is binary already"
            for name, layer in model.named_modules()
            if isinstance(layer, BinaryConv2d | BinaryLinear)
        }
        reasons = "; ".join(f"{name or 'the model itself'}: {why}" for name, why in left.items())
        text = f"the model stays as it is: it has no layer to swap; {reasons}"
        return result, BinarizeReport({}, left, (text,))
    for name, module in model.named_modules():
        if isinstance(module, OTHER_LAYERS):
            left.setdefault(name, f"{type(module).__name__} has no binary form here")
    # As in bitgnn.models: nothing stands between the sums, or their norm, and the sign.
    replaced = replace_activations(result, config.activation)
    if config.activation != "keep":
        replaced |= normalise_calls(result)
    return result, BinarizeReport(layers, left, relu_warnings(result), replaced)


def _left(
    model: nn.Module,
    known: Mapping[str, nn.Module],
    config: ImageConfig,
    firsts: list[str],
    lasts: list[str],
) -> dict[str, str]:
    """Reasons why layers that could be binary stay in floats, by name; the first reason counts."""
    found = {name: why_float(layer) for name, layer in known.items()}
    sizes: dict[nn.Module, int] = {
        layer: layer.weight.numel()
        for layer in model.modules()
        if isinstance(layer, SWAPPED) and not is_uninitialized_parameter(layer.weight)
    }
    total = sum(sizes.values())
    first = "binary" if config.first == "auto" and config.input_step is None else config.first
    for where, names, wanted in (("first", firsts, first), ("last", lasts, config.last)):
        for name in names:
            size = sizes.get(known[name], 0)
            if wanted == "keep":
                found[name] = found[name] or f"it is the {where} layer"
            elif wanted == "auto" and size <= FEW * total:
                few = f"it is the {where} layer and has {size} of {total} weights"
                found[name] = found[name] or few
    if config.input_step is not None:
        found |= {name: found[name] or _why_not_first(known[name]) for name in firsts}
    found |= dict.fromkeys(config.skip, "named in skip")
    return {name: reason for name, reason in found.items() if reason is not None}


def _why_not_first(layer: nn.Module) -> str | None:
    """Reason why a layer cannot read fixed point, or None if it can."""
    if isinstance(layer, nn.Conv2d) and layer.groups > 1:
        return f"as a first layer it has no fixed-point form in {layer.groups} groups"
    weights = next(layer.parameters())[0].numel()
    if weights > MOST_WEIGHTS:
        return f"as a first layer it has {weights} weights an output, more than {MOST_WEIGHTS}"
    return None


def _ends(model: nn.Module, names: list[str]) -> tuple[list[str], list[str]]:
    """Layers that read the input, and layers that nothing but the scores reads.

    Where the model cannot be traced, the first and the last in the order of its modules.
    """
    try:
        network = lower_images(trace_model(model))
    except ValueError:
        return names[:1], names[-1:]
    assert network.scores is not None
    known = set(names)
    stack = [layer for layer in _layers_behind([network.scores], known) if layer is not None]
    lasts = {layer.layer for layer in stack}
    firsts = set()
    seen: set[Value] = set()
    while stack:
        layer = stack.pop()
        if layer in seen:
            continue
        seen.add(layer)
        for source in _layers_behind(layer.inputs, known):
            if source is None:
                firsts.add(layer.layer)
            else:
                stack.append(source)
    return [n for n in names if n in firsts], [n for n in names if n in lasts]


def _layers_behind(values: Collection[Value], names: Collection[str]) -> Iterator[Value | None]:
    """The next layers that values are made of, and None for the input."""
    seen: set[Value] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.kind == "input":
            yield None
        elif value.layer in names and value.kind in ("conv", "linear", "product", "call"):
            yield value
        else:
            stack.extend(value.inputs)
