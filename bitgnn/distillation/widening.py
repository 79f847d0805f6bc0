"""A copy of a model with more hidden channels, for any model of layers that say their sizes."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data.data import BaseData
from torch_geometric.nn import MessagePassing

from bitgnn.distillation.calling import call
from bitgnn.distillation.errors import DistillError
from bitgnn.nn.roles import found_producers, leave_mark

__all__ = ["reset_weights", "widened"]

INPUTS = ("in_channels", "in_features")
OUTPUTS = ("out_channels", "out_features")
NORMS = ("num_features", "normalized_shape", "num_channels", "num_parameters")
"""Names by which layers say the size of what they read, give, or hand through."""
INSIDE = ("module",)
"""Where wrappers of PyG keep the layer that has the other arguments."""


def widened(model: nn.Module, data: BaseData, factor: float) -> nn.Module:
    """A copy whose hidden channels are ``factor`` times as many, with fresh weights.

    Layers that read nothing but the input keep the size that they read, and those whose results
    are the model's keep the size that they give; everything between grows. Layers are made anew
    from the arguments that they keep as attributes.

    Args:
        model: unchanged.
        data: graph or batch that it takes.
        factor: at least 1.

    Raises:
        DistillError: a layer between does not say its size, or the result does not run; the
            message names the layer.
    """
    result = copy.deepcopy(model)
    layers = _layers(result)
    makers = {name for name, module in layers.items() if _size(module, OUTPUTS) is not None}
    before, last, shape = _flow(result, data, layers, makers)
    is_wider = False
    for name, module in layers.items():
        grows_in = bool(before.get(name))
        sizes: tuple[tuple[tuple[str, ...], bool], ...]
        if name in makers:
            sizes = (INPUTS, grows_in), (OUTPUTS, name in before and name not in last)
        else:
            sizes = (((*NORMS, *INPUTS), grows_in and not before[name] <= last),)
        wanted: dict[str, Any] = {}
        for names, grows in sizes:
            key = next((n for n in names if getattr(module, n, None) is not None), None)
            if key is not None and grows:
                wanted[key] = _grown(getattr(module, key), factor)
        if wanted:
            _replace(result, name, _remade(module, wanted, name))
            is_wider = True
    if not is_wider:
        raise DistillError(
            f"widen: {type(model).__name__} has no hidden channels between two layers that say "
            "their sizes; make a wider model yourself and pass it as widen"
        )
    reset_weights(result)
    if hasattr(result, "hidden_channels") and isinstance(result.hidden_channels, int):
        result.hidden_channels = _grown(result.hidden_channels, factor)
    try:
        with torch.no_grad():
            found = call(result.eval(), data).shape
    except Exception as error:
        raise DistillError(
            f"widen: {type(model).__name__} does not run with {factor} times the hidden channels "
            f"({type(error).__name__}: {error}); make a wider model yourself and pass it as widen"
        ) from error
    if found != shape:
        raise DistillError(
            f"widen: {type(model).__name__} gives {list(found)} in place of {list(shape)} with "
            f"{factor} times the hidden channels; make a wider model yourself and pass it as widen"
        )
    return result.train(model.training)


def reset_weights(model: nn.Module) -> None:
    """Let all layers that know how start anew."""
    for module in model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()


def _layers(model: nn.Module) -> dict[str, nn.Module]:
    """Layers with sizes and parameters; a graph layer answers for what is inside of it."""
    sized = {
        name: module
        for name, module in model.named_modules()
        if _size(module, (*INPUTS, *OUTPUTS, *NORMS)) is not None and _has_parameters(module)
    }
    inside = {
        name
        for name in sized
        for other, module in sized.items()
        if isinstance(module, MessagePassing) and name.startswith(f"{other}.")
    }
    left = {name: module for name, module in sized.items() if name not in inside}
    return {
        name: module
        for name, module in left.items()
        if not any(name != other and other.startswith(f"{name}." if name else "") for other in left)
    }


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _size(module: nn.Module, names: tuple[str, ...]) -> Any:
    return next((v for n in names if (v := getattr(module, n, None)) is not None), None)


def _grown(size: Any, factor: float) -> Any:
    if isinstance(size, tuple | list):
        return type(size)(_grown(part, factor) for part in size)
    return round(size * factor) if size > 1 else size


def _flow(
    model: nn.Module, data: BaseData, layers: dict[str, nn.Module], makers: set[str]
) -> tuple[dict[str, set[str]], set[str], torch.Size]:
    """The makers in front of each layer that ran, those of the result, and its shape."""
    before: dict[str, set[str]] = {}
    names = {module: name for name, module in layers.items()}

    def producers(tensor: Tensor) -> set[str]:
        return {names[layer] for layer in found_producers(tensor)}

    def look(name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            del module
            tensors = [v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)]
            tensors += [v for v in args if isinstance(v, tuple) for v in v if isinstance(v, Tensor)]
            before.setdefault(name, set()).update(*map(producers, tensors))

        return hook

    def mark(module: nn.Module, args: Any, result: Any) -> None:
        del args
        if isinstance(result, Tensor):
            leave_mark(module, result)

    handles = [m.register_forward_pre_hook(look(n), with_kwargs=True) for n, m in layers.items()]
    handles += [layers[name].register_forward_hook(mark) for name in makers]
    was = model.training
    try:
        with torch.enable_grad():
            found = call(model.eval(), data)
    finally:
        for handle in handles:
            handle.remove()
        model.train(was)
    return before, producers(found), found.shape


def _remade(module: nn.Module, sizes: dict[str, Any], name: str) -> nn.Module:
    """A layer of the same class and arguments but for its sizes."""
    wanted: dict[str, Any] = {}
    parameters = inspect.signature(type(module).__init__).parameters
    for key, parameter in list(parameters.items())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if key in sizes:
            wanted[key] = sizes[key]
        elif key == "bias":
            wanted[key] = getattr(module, "bias", None) is not None
        else:
            value = getattr(module, key, None)
            for inner in INSIDE:
                value = getattr(getattr(module, inner, None), key, value)
            if value is not None and key not in ("device", "dtype"):
                wanted[key] = value
    if isinstance(module, MessagePassing) and module.flow != "source_to_target":
        wanted["flow"] = module.flow
    try:
        made: nn.Module = type(module)(**wanted)
    except Exception as error:
        raise DistillError(
            f"widen: {name} ({type(module).__name__}) cannot be made anew with {sizes} "
            f"({type(error).__name__}: {error}); make a wider model yourself and pass it as widen"
        ) from error
    like = next(module.parameters())
    return made.to(like.device, like.dtype).train(module.training)


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)
