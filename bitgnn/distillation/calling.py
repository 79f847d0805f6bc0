"""How a model takes what a data object holds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data.data import BaseData

from bitgnn.distillation.errors import DistillError

__all__ = ["arguments_of", "call", "moved"]

OPTIONAL = ("edge_weight", "edge_attr", "batch")
"""Attributes that a forward takes where it has a place for them, needed or not."""
OTHER_NAMES = {"features": "x", "feat": "x", "edges": "edge_index", "adj_t": "edge_index"}


def arguments_of(forward: Callable[..., Any], data: BaseData) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a forward in order and by name, each the attribute of its name.

    A forward with one argument that is no attribute takes the data object itself.

    Args:
        forward: a model, or a method of it such as ``encode``.
        data: graph or batch.

    Raises:
        DistillError: the forward needs something that the data lacks.
    """
    if isinstance(forward, nn.Module):
        forward = forward.forward
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


def call(forward: Callable[..., Any], data: BaseData) -> Tensor:
    """The result of a forward for a graph or batch.

    Raises:
        DistillError: it is no tensor, or the data lacks an argument.
    """
    arguments, named = arguments_of(forward, data)
    found = forward(*arguments, **named)
    if not isinstance(found, Tensor):
        raise DistillError(
            f"model must return one tensor of scores, got {type(found).__name__}; wrap it in a "
            "module that returns the scores alone"
        )
    return found


def moved(data: BaseData, device: torch.device) -> BaseData:
    """A data object whose tensors are on a device; the given one stays where it is."""
    return data.clone().to(device) if _is_elsewhere(data, device) else data


def _is_elsewhere(data: BaseData, device: torch.device) -> bool:
    return any(
        isinstance(value, Tensor) and value.device.type != device.type
        for value in data.to_dict().values()
    )
