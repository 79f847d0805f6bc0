"""Students before they learn: fresh weights, more hidden channels, and their binary form."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GAE, MessagePassing

from bitgnn.convert import Plan, binarize, report_of
from bitgnn.convert.binarizing import run_example
from bitgnn.convert.configs import Config, GraphConfig
from bitgnn.convert.swap.graphs import with_letters
from bitgnn.distillation.batches import Batched
from bitgnn.distillation.calling import DistillError, Inputs, arguments_of, call
from bitgnn.distillation.problems import Problem
from bitgnn.nn.roles.tape import found_producers, leave_mark

INPUTS = ("in_channels", "in_features")
OUTPUTS = ("out_channels", "out_features")
NORMS = ("num_features", "normalized_shape", "num_channels", "num_parameters")
"""Names by which layers say the size of what they read, give, or hand through."""
READ = (*INPUTS, *NORMS)
ROWS = 2
"""Of a batch, enough to see what a model does with it."""
IMAGES = 3
"""Dimensions from which on the channels may be the second one."""
REMEDY = "make a wider model yourself and pass it as widen"


def binary_student(model: nn.Module, precision: Any, problem: Problem) -> nn.Module:
    """The binary form of a model, its layers settled on the data.

    The precision is that of :func:`bitgnn.distill`; a plan changes the letters of ``"bin"``.
    """
    try:
        if isinstance(precision, Plan):
            result = with_letters(binary_student(model, "bin", problem), precision.letters)
            if not isinstance(problem, Batched) and not isinstance(model, GAE):
                run_example(result, _example(model, problem))
            return result
        if isinstance(problem, Batched):
            return _with_bits(problem.binary(model, precision))
        if isinstance(precision, Config) and not isinstance(precision, GraphConfig):
            raise DistillError(
                f"precision must be a GraphConfig for graphs, got {type(precision).__name__}"
            )
        if not isinstance(model, GAE):
            return _with_bits(binarize(model, precision, example=_example(model, problem)))
        result = binarize(model, precision)
        example = _example(model.encoder, problem)
        result.encoder = _with_bits(binarize(model.encoder, precision, example=example))
        return result
    except DistillError:
        raise
    except ValueError as error:
        raise DistillError(str(error)) from error


def _with_bits(student: nn.Module) -> nn.Module:
    """The student, refused if it has no binary layer and so nothing to learn."""
    report = report_of(student)
    if not report.swapped:
        raise DistillError(f"binarize: {report.warnings[-1]}")
    return student


def _example(model: nn.Module, problem: Problem) -> Any:
    """Example input in the form that :func:`bitgnn.binarize` takes."""
    args, named = arguments_of(model, problem.example)
    if not named:
        return tuple(args)
    names = list(inspect.signature(model.forward).parameters)
    return {**dict(zip(names, args, strict=False)), **named}


def described(precision: Any, problem: Problem) -> str:
    """A precision as a checkpoint records it."""
    if isinstance(precision, Plan):
        return json.dumps(dict(precision.letters), sort_keys=True)
    return problem.described(precision) if isinstance(problem, Batched) else str(precision)


def widened(model: nn.Module, data: Inputs, factor: float) -> nn.Module:
    """A copy with ``factor`` times the hidden channels and fresh weights.

    Layers give ``factor`` times the channels, except those whose results are the model's, and all
    read what arrives. They are made anew from the arguments that they keep as attributes; a
    depthwise convolution stays depthwise, other convolutions keep their number of groups.
    """
    if isinstance(data, Tensor):
        data = data[:ROWS]
    elif isinstance(data, Mapping):
        data = {name: value[:ROWS] for name, value in data.items()}
    result = copy.deepcopy(model).eval()
    layers = _layers(result)
    places, last, shape = _flow(result, data, layers)
    growing = {name for name in places.keys() - last if _key(layers[name], OUTPUTS) is not None}
    if not growing:
        raise DistillError(
            f"widen: {type(model).__name__} has no hidden channels between two layers that say "
            f"their sizes; {REMEDY}"
        )
    found = _grow(result, data, {n: layers[n] for n in places}, places, growing, factor)
    if found != shape:
        raise DistillError(
            f"widen: {type(model).__name__} gives {list(found)} in place of {list(shape)} with "
            f"{factor:g} times the hidden channels; {REMEDY}"
        )
    result = fresh(result)
    hidden = getattr(result, "hidden_channels", None)
    if isinstance(hidden, int):
        result.hidden_channels = _grown(hidden, factor)
    return result.train(model.training)


def _grow(
    model: nn.Module,
    data: Inputs,
    layers: dict[str, nn.Module],
    places: dict[str, int],
    growing: set[str],
    factor: float,
) -> torch.Size:
    """Run a model and widen its layers in place as inputs arrive; return the result's shape.

    ``places`` has the dimension of each layer's input that holds its channels; those in ``growing``
    give ``factor`` times as many.
    """
    seen = ["its beginning"]

    def fit(name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            seen.append(f"{name} ({type(module).__name__})")
            wanted: dict[str, Any] = {}
            key = _key(module, READ)
            if key is not None:
                size = getattr(module, key)
                arrives = _arriving(size, key, _first(args, kwargs), places[name])
                if arrives != size:
                    wanted[key] = arrives
            if name in growing:
                key = str(_key(module, OUTPUTS))
                wanted[key] = _grown(getattr(module, key), factor)
            if wanted:  # the layer stands where it is called from: it takes the new one's place
                made = _remade(module, wanted, name)
                object.__setattr__(module, "__dict__", made.__dict__)

        return hook

    handles = [m.register_forward_pre_hook(fit(n), with_kwargs=True) for n, m in layers.items()]
    try:
        with torch.no_grad():
            return call(model, data).shape
    except DistillError:
        raise
    except Exception as error:
        raise DistillError(
            f"widen: {type(model).__name__} does not run with {factor:g} times the hidden "
            f"channels, at or behind {seen[-1]} ({type(error).__name__}: {error}); {REMEDY}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()


def fresh(model: nn.Module) -> nn.Module:
    """A copy with reset parameters, as far as layers have ``reset_parameters``."""
    result = copy.deepcopy(model)
    for module in result.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
    return result


def _layers(model: nn.Module) -> dict[str, nn.Module]:
    """Layers with sizes; those inside a graph layer are left to it."""
    sized = {
        name: module
        for name, module in model.named_modules()
        if _key(module, (*READ, *OUTPUTS)) is not None
        # Shortcuts and norms without parameters are layers if nothing is inside.
        and ([*module.parameters()] or not [*module.children()])
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


def _key(module: nn.Module, names: tuple[str, ...]) -> str | None:
    """The first attribute name under which the layer has a size."""
    return next((name for name in names if getattr(module, name, None) is not None), None)


def _grown(size: Any, factor: float) -> Any:
    if isinstance(size, tuple | list):
        return type(size)(_grown(part, factor) for part in size)
    return round(size * factor) if size > 1 else size


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The tensor that a layer reads, or a pair of them."""
    return next((v for v in (*args, *kwargs.values()) if isinstance(v, Tensor | tuple)), None)


def _arriving(size: Any, key: str, x: Any, place: int) -> Any:
    """Input size, in the form in which a layer states it."""
    if key == "normalized_shape":
        return tuple(x.shape[-len(size) :])
    if isinstance(size, tuple | list):
        parts = x if isinstance(x, tuple) else (x,) * len(size)
        sizes = zip(size, parts, strict=True)
        return type(size)(_arriving(part, key, value, place) for part, value in sizes)
    x = x[0] if isinstance(x, tuple) else x
    is_shared = size < 0 or (key == "num_parameters" and size == 1)
    return size if is_shared or not isinstance(x, Tensor) else x.size(place)


def _flow(
    model: nn.Module, data: Inputs, layers: dict[str, nn.Module]
) -> tuple[dict[str, int], set[str], torch.Size]:
    """Channel dimensions of the layers that ran and of the result, and the result's shape."""
    places: dict[str, int] = {}
    names = {module: name for name, module in layers.items()}

    def look(module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        x = _first(args, kwargs)
        x = x[0] if isinstance(x, tuple) else x
        key = _key(module, READ)
        size = None if key is None else getattr(module, key)
        is_second = isinstance(x, Tensor) and x.dim() >= IMAGES and x.size(1) == size
        if isinstance(module, MessagePassing) or key == "in_features":
            is_second = False
        places[names[module]] = 1 if is_second else -1
        is_new = isinstance(result, Tensor) and result is not x
        if is_new and _key(module, OUTPUTS) is not None:
            leave_mark(module, result)

    handles = [m.register_forward_hook(look, with_kwargs=True) for m in layers.values()]
    try:
        with torch.enable_grad():
            found = call(model, data)
    finally:
        for handle in handles:
            handle.remove()
    return places, {names[layer] for layer in found_producers(found)}, found.shape


def _remade(module: nn.Module, sizes: dict[str, Any], name: str) -> nn.Module:
    """A layer of the same class and arguments with other sizes."""
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
            # Wrappers of PyG keep the layer that has the other arguments.
            inner = getattr(module, "module", None)
            value = getattr(inner, key, getattr(module, key, None))
            if value is not None and key not in ("device", "dtype"):
                wanted[key] = value
    if isinstance(module, MessagePassing) and module.flow != "source_to_target":
        wanted["flow"] = module.flow
    inputs = getattr(module, "in_channels", None)
    if inputs != 1 and getattr(module, "groups", None) == inputs and "in_channels" in sizes:
        wanted["groups"] = sizes["in_channels"]  # depthwise
    try:
        made: nn.Module = type(module)(**wanted)
    except Exception as error:
        raise DistillError(
            f"widen: {name} ({type(module).__name__}) cannot be made anew with {sizes} "
            f"({type(error).__name__}: {error}); {REMEDY}"
        ) from error
    like = next(module.parameters(), next(module.buffers(), None))
    if like is not None:
        made = made.to(like.device, like.dtype if like.is_floating_point() else None)
    return made.train(module.training)
