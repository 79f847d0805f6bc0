"""How a model takes what a graph or a batch holds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch_geometric.data.data import BaseData

from bitgnn.distillation.errors import DistillError

__all__ = ["Inputs", "arguments_of", "call", "moved", "scores_in", "tensors_of"]

Inputs: TypeAlias = BaseData | Tensor | Mapping[str, Tensor]
"""A graph, images, or tensors of a text by name."""

OPTIONAL = ("edge_weight", "edge_attr", "batch")
"""Attributes that a forward takes where it has a place for them, needed or not."""
OTHER_NAMES = {"features": "x", "feat": "x", "edges": "edge_index", "adj_t": "edge_index"}
TEXT_NAMES = {"ids": "input_ids", "mask": "attention_mask"}


def arguments_of(forward: Callable[..., Any], data: Inputs) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a forward in order and by name, each the attribute of its name.

    A forward with one argument that is no attribute takes the data object itself, and one of images
    the tensor. Of a mapping it takes the tensors whose names it has; ``ids`` and ``mask`` stand for
    ``input_ids`` and a bool ``attention_mask``.

    Args:
        forward: a model, or a method of it such as ``encode``.
        data: graph or batch.

    Raises:
        DistillError: the forward needs something that the data lacks.
    """
    if isinstance(forward, nn.Module):
        forward = forward.forward
    if isinstance(data, Tensor):
        return [data], {}
    if isinstance(data, Mapping):
        return [], _named_tensors(forward, data)
    owner = getattr(forward, "__self__", None)
    parameters = [
        parameter
        for parameter in inspect.signature(forward).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    if len(needed) == 1 and _attribute(data, needed[0].name) is None:
        return [data], {}
    if not parameters:  # forward(*args, **kwargs) of PyG's autoencoders
        return [data.x, data.edge_index], {}
    arguments: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in parameters:
        value = _attribute(data, parameter.name)
        if parameter.default is not parameter.empty:
            takes = parameter.name in OPTIONAL and getattr(
                owner, f"supports_{parameter.name}", True
            )
            if takes and value is not None:
                named[parameter.name] = value
        elif value is None:
            raise DistillError(
                f"data must have the attribute {parameter.name}, which the forward of "
                f"{type(owner).__name__} takes, got {data}"
            )
        else:
            arguments.append(value)
    return arguments, named


def _attribute(data: BaseData, name: str) -> Any:
    value = getattr(data, name, None)
    if value is None and name in OTHER_NAMES:
        value = getattr(data, OTHER_NAMES[name], None)
    return value


def _named_tensors(forward: Callable[..., Any], data: Mapping[str, Tensor]) -> dict[str, Tensor]:
    parameters = inspect.signature(forward).parameters
    named = {
        name: data[TEXT_NAMES.get(name, name)]
        for name in parameters
        if TEXT_NAMES.get(name, name) in data
    }
    if "mask" in named and "mask" not in data:
        named["mask"] = named["mask"].bool()
    missing = [
        name
        for name, parameter in parameters.items()
        if name not in named
        and parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if missing or not named:
        raise DistillError(
            f"data must hold {', '.join(missing or parameters)}, which the forward of the model "
            f"takes, got {list(data)}"
        )
    return named


def call(forward: Callable[..., Any], data: Inputs) -> Tensor:
    """The scores that a forward gives for a graph or batch.

    Raises:
        DistillError: it is no tensor, or the data lacks an argument.
    """
    arguments, named = arguments_of(forward, data)
    return scores_in(forward(*arguments, **named))


def scores_in(found: Any) -> Tensor:
    """The tensor of scores in a result, which may have them as ``logits``.

    Raises:
        DistillError: there is none.
    """
    found = getattr(found, "logits", found)
    if not isinstance(found, Tensor):
        raise DistillError(
            f"model must return one tensor of scores, got {type(found).__name__}; wrap it in a "
            "module that returns the scores alone"
        )
    return found


def tensors_of(data: Inputs) -> dict[str, Any]:
    """Everything in a graph or batch by name."""
    if isinstance(data, Tensor):
        return {"images": data}
    return dict(data) if isinstance(data, Mapping) else data.to_dict()


def moved(data: Any, device: torch.device) -> Any:
    """Data whose tensors are on a device; the given object stays where it is."""
    if isinstance(data, Tensor):
        return data.to(device)
    if isinstance(data, Mapping):
        return {name: value.to(device) for name, value in data.items()}
    return data.clone().to(device) if _is_elsewhere(data, device) else data


def _is_elsewhere(data: BaseData, device: torch.device) -> bool:
    return any(
        isinstance(value, Tensor) and value.device != device for value in data.to_dict().values()
    )
