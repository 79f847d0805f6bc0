"""State that a swap keeps: reasons to leave a layer alone, and hand-over to its successor."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

import torch_geometric.nn
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_leaves
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import MultiAggregation

from bitgnn.convert.network.graph_rows import SUPPORTED, row_of
from bitgnn.convert.reporting import BinarizeReport
from bitgnn.convert.walker import is_inside
from bitgnn.nn import BinaryLinear
from bitgnn.nn.binary_product import LOOKED_UP, NORMS, QUANTIZERS, STATE
from bitgnn.nn.inputs.looks_up import GAINS
from bitgnn.nn.propagation.base import kind_of

OWN = (*(f"{name}." for name in (*NORMS, *QUANTIZERS, *LOOKED_UP)), *GAINS, *STATE)
"""Prefixes of the tensors that binary layers have beside PyG's."""

COMPOSED = (torch_geometric.nn.GINConv, torch_geometric.nn.TransformerConv)
"""Layers that become ones whose parts are binary."""
_OWNERS = ("torch_geometric.", "bitgnn.nn", "torch.nn.")
_HARMLESS = ("reset_parameters", "extra_repr")
"""Methods that a subclass may have without computing something else."""
_PRODUCTS = (nn.Linear, nn.Conv2d, torch_geometric.nn.Linear)
_OF_TREES = ("_modules", "_parameters")
_TENSORS = frozenset({"weight", "bias"})
"""The tensors of linear layers and convolutions."""
_OF_RELATIONS = frozenset({"weight", "comp", "root", "bias"})


def why_float(layer: nn.Module) -> str | None:
    """Reason why no binary layer can replace this one, or None if one can."""
    if isinstance(layer, LazyModuleMixin) and layer.has_uninitialized_params():
        return "it has no weight yet; run the model once in front of binarize()"
    if any(parametrize.is_parametrized(module) for module in layer.modules()):
        return "its weight is parametrised, which a binary layer would not compute"
    for module in layer.modules():
        # A hook computes it otherwise.
        if isinstance(module, _PRODUCTS) and "weight" not in module._parameters:
            return "its weight is no parameter of its own (weight norm, pruning or the like)"
    if type(layer) is nn.modules.linear.NonDynamicallyQuantizableLinear:
        return "the attention around it reads its weight directly"
    changed = _changed_names(layer)
    if changed:
        return f"{type(layer).__name__} defines {', '.join(changed)}, which a swap would lose"
    if isinstance(layer, SUPPORTED) and _joins(layer):
        return "its aggregation hands on another width than the features have"
    if isinstance(layer, COMPOSED):  # whose nn may be anything
        return None
    if kind_of(layer) is not None:
        return None
    known = row_of(layer).tensors if isinstance(layer, SUPPORTED) else _TENSORS
    if isinstance(layer, torch_geometric.nn.RGCNConv):
        known = _OF_RELATIONS
    tensors = [*layer.named_parameters(), *layer.named_buffers()]
    extra = [n for n, _ in tensors if n not in known and not n.startswith((*OWN, "aggr_module."))]
    if extra:
        return f"it has further tensors, {', '.join(extra)}"
    return None


def _joins(layer: Any) -> bool:
    """True if a layer's product takes several aggregations side by side."""
    aggregation = layer.aggr_module
    return isinstance(aggregation, MultiAggregation) and aggregation.get_out_channels(1) != 1


def _changed_names(layer: nn.Module) -> list[str]:
    """Names that the class, or the object itself, defines beyond PyG, torch or bitgnn.nn."""
    kinds = type(layer).__mro__
    owner = next(i for i, kind in enumerate(kinds) if kind.__module__.startswith(_OWNERS))
    found = dict.fromkeys(
        name
        for kind in kinds[:owner]
        for name, value in vars(kind).items()
        if not _is_harmless(kind, name, value)
    )
    # A method put on the object hides that of its class.
    own = {name for name, value in vars(layer).items() if callable(value)}
    return [*found, *(name for name in own if callable(getattr(type(layer), name, None)))]


def _is_harmless(kind: type, name: str, value: Any) -> bool:
    if name == "__call__":
        return False
    # PyG writes its generated code into every class, from modules named after it.
    made = str(getattr(value, "__module__", "")).startswith(f"{kind.__module__}_{kind.__name__}_")
    is_special = name.startswith("__") and name.endswith("__")
    return made or is_special or name.startswith(("_orig_", "_jinja_")) or name in _HARMLESS


def carry_over(layer: nn.Module, new: nn.Module) -> nn.Module:
    """Copy parameters, hooks, attributes and mode to a binary layer from the one it replaces.

    The parameters become the very objects of ``layer``, so that tied ones stay tied and
    ``requires_grad`` stays.
    """
    modules = dict(new.named_modules())
    for path, module in layer.named_modules():
        if path and f"{path}.".startswith(OWN):
            continue
        target = modules.get(path)
        for name, parameter in module._parameters.items():
            if target is not None and target._parameters.get(name) is not None:
                target._parameters[name] = parameter
        if path and target is not None:
            _carry_attributes(module, target)
    _carry_attributes(layer, new)
    for name, child in layer._modules.items():
        if not hasattr(new, name):
            new.add_module(name, child)
    if isinstance(layer, MessagePassing) and layer.decomposed_layers > 1:
        new.decomposed_layers = layer.decomposed_layers
    return new.train(layer.training)


def _carry_attributes(layer: nn.Module, new: nn.Module) -> None:
    """Copy hooks, and attributes that the new layer lacks and that are not bound to the old one."""
    attributes, successors = vars(layer), vars(new)
    for name, value in attributes.items():
        if name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called")):
            mine = successors.get(name)
            if isinstance(mine, dict):
                kept = {k: h for k, h in value.items() if getattr(h, "__self__", None) is not layer}
                mine.update(kept)
        elif name == "_is_full_backward_hook" or not (name == "_hook" or hasattr(new, name)):
            successors[name] = value


def copied(model: nn.Module) -> Any:
    """A deep copy, including computed weights, which torch refuses to copy.

    Hooks compute them anew when the copy is called.
    """
    computed = {
        id(value): value.detach().clone()
        for module in model.modules()
        for name, held in vars(module).items()
        if name not in _OF_TREES
        for value in tree_leaves(held)
        if isinstance(value, Tensor) and not value.is_leaf
    }
    return copy.deepcopy(model, computed)


def carry_tree(model: nn.Module, new: nn.Module) -> nn.Module:
    """Give a model made anew the hooks, attributes and frozen parameters of the old one."""
    old = copied(model)
    modules, parameters = dict(old.named_modules()), dict(old.named_parameters())
    for name, module in new.named_modules():
        if name in modules:
            _carry_attributes(modules[name], module)
            module.training = modules[name].training
    for name, parameter in new.named_parameters():
        if name in parameters:
            parameter.requires_grad_(parameters[name].requires_grad)
    return new


LINEAR = (nn.Linear, torch_geometric.nn.Linear)
CONVOLUTIONS = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d,
    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip


def unchanged(
    model: nn.Module, linear: Collection[str], kept: Mapping[str, str]
) -> tuple[nn.Module, BinarizeReport]:
    """A model in which nothing becomes binary, and the report that says what would have to.

    Args:
        model: the copy that is returned.
        linear: names of the linear layers that could be binary.
        kept: why layers with a binary form stay in floats, by name.
    """
    left = {**left_alone(model, (), kept), **kept}
    for name, module in model.named_modules():
        known = is_inside(name, left) or name in left
        if not known and list(module.parameters(recurse=False)):
            left[name] = f"{type(module).__name__} has no binary form here"
    return model, BinarizeReport({}, left, (_nothing_to_swap(model, linear, kept),))


def left_alone(
    model: nn.Module, swapped: Collection[str], inside: Collection[str]
) -> dict[str, str]:
    """Why layers that nobody asked about stay in floats."""
    found: dict[str, str] = {}
    for name, module in model.named_modules():
        if name in swapped or is_inside(name, inside):
            continue
        if isinstance(module, MessagePassing):
            found[name] = f"{type(module).__name__} has no binary form here"
        elif isinstance(module, LINEAR):
            found[name] = f"{type(module).__name__} is swapped with linear=True or by name only"
    return found


def _nothing_to_swap(model: nn.Module, linear: Collection[str], kept: Mapping[str, str]) -> str:
    """Warning about a model without a layer to swap: its layers, and what would work."""
    others: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        if isinstance(module, (MessagePassing, *CONVOLUTIONS, BinaryLinear)) and name not in kept:
            others.setdefault(type(module).__name__, []).append(name or "the model itself")
    binary = ("BinaryConv2d", "BinaryLinear")
    parts = [
        f"{kind} ({', '.join(names)}) "
        + ("is binary already" if kind in binary else "has no binary form")
        for kind, names in others.items()
    ]
    parts += [f"{name or 'the model itself'} stays in floats, {why}" for name, why in kept.items()]
    if linear:
        names = ", ".join(name or "the model itself" for name in linear)
        parts.append(f"GraphConfig(linear=True) swaps its linear layers ({names})")
    if not parts:
        own = {type(m).__name__ for m in model.modules() if list(m.parameters(recurse=False))}
        parts = [f"it has {', '.join(sorted(own)) or 'no layer with weights'}"]
    return (
        "the model stays as it is: it has no GCNConv, SAGEConv or GraphConv to swap, and no Conv2d "
        f"of a network of images; {'; '.join(parts)}"
    )
