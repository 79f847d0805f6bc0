"""Calls of a model with the contents of a graph or batch; refusal of data that no model takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data.data import BaseData

from bitgnn._checks import name_type

Inputs: TypeAlias = BaseData | Tensor | Mapping[str, Tensor]
"""A graph, images, or tensors of a text by name."""

OPTIONAL = ("edge_weight", "edge_attr", "batch")
"""Attributes that a forward takes where it has a place for them, needed or not."""
OTHER_NAMES = {"features": "x", "feat": "x", "edges": "edge_index", "adj_t": "edge_index"}
TEXT_NAMES = {"ids": "input_ids", "mask": "attention_mask"}
MATRIX = 2


class DistillError(ValueError):
    """Model or data cannot be distilled; the message names argument, found and expected."""


def arguments_of(forward: Callable[..., Any], data: Inputs) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a forward in order and by name: each is the attribute of its name.

    A forward with one argument that is no attribute takes the data object itself, and one of images
    the tensor. Of a mapping it takes the tensors whose names it has; ``ids`` and ``mask`` stand for
    ``input_ids`` and a bool ``attention_mask``.
    """
    if isinstance(forward, nn.Module):
        forward = forward.forward
    if isinstance(data, Tensor):
        return [data], {}
    signature = inspect.signature(forward).parameters
    parameters = [p for p in signature.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = [p.name for p in parameters if p.default is p.empty]
    if isinstance(data, Mapping):
        named = {n: data[TEXT_NAMES.get(n, n)] for n in signature if TEXT_NAMES.get(n, n) in data}
        if "mask" in named and "mask" not in data:
            named["mask"] = named["mask"].bool()
        missing = [name for name in needed if name not in named]
        if missing or not named:
            raise DistillError(
                f"data must hold {', '.join(missing or signature)}, which the forward of the model "
                f"takes, got {list(data)}"
            )
        return [], named
    if len(needed) == 1 and _attribute(data, needed[0]) is None:
        return [data], {}
    if not parameters:  # forward(*args, **kwargs) of PyG's autoencoders
        return [data.x, data.edge_index], {}
    owner = getattr(forward, "__self__", None)
    arguments: list[Any] = []
    named = {}
    for name in (parameter.name for parameter in parameters):
        value = _attribute(data, name)
        if name not in needed:
            is_taken = name in OPTIONAL and getattr(owner, f"supports_{name}", True)
            if is_taken and value is not None:
                named[name] = value
        elif value is None:
            raise DistillError(
                f"data must have the attribute {name}, which the forward of "
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


def call(forward: Callable[..., Any], data: Inputs) -> Tensor:
    """The scores that a forward gives for a graph or batch."""
    inner = forward.module if isinstance(forward, DistributedDataParallel) else forward
    arguments, named = arguments_of(inner, data)
    return scores_in(forward(*arguments, **named))


def scores_in(found: Any) -> Tensor:
    """The tensor of scores in a result, which may have them as ``logits``."""
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
    """Copy of the data on a device."""
    if isinstance(data, Tensor):
        return data.to(device)
    if isinstance(data, Mapping):
        return {name: value.to(device) for name, value in data.items()}
    tensors = [value for value in data.to_dict().values() if isinstance(value, Tensor)]
    is_there = all(value.device == device for value in tensors)
    return data if is_there else data.clone().to(device)


def check_graph(data: BaseData, name: str = "data") -> None:
    """Refuse features from which no layer can learn, and edges of missing nodes."""
    x = getattr(data, "x", None)
    if x is None:
        raise DistillError(f"{name}.x is missing; layers need features [N, F]")
    if not callable(getattr(x, "size", None)):
        raise DistillError(f"{name}.x must be a tensor [N, F], got {type(x).__name__}")
    if isinstance(x, Tensor) and x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise DistillError(f"{name}.x must be finite, found NaN or infinity")
    if x.size(0) == 0:
        raise DistillError(f"{name}.x must have a row at least, got {list(x.shape)}")
    edges = getattr(data, "edge_index", None)
    if not isinstance(edges, Tensor) or edges.layout != torch.strided:
        return
    if edges.is_floating_point() or edges.dim() != MATRIX or edges.size(0) != MATRIX:
        raise DistillError(
            f"{name}.edge_index must be int64 [2, E], got {name_type(edges)} {list(edges.shape)}"
        )
    check_range(edges, x.size(0), f"{name}.edge_index must be nodes")


def check_range(indices: Tensor, count: int, what: str) -> None:
    """Refuse indices that are not in 0 to ``count - 1``; ``what`` begins the message."""
    if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < count:
        raise DistillError(
            f"{what} 0 to {count - 1}, got {int(indices.min())} to {int(indices.max())}"
        )


def tried(model: nn.Module, data: Inputs) -> Tensor:
    """A model's scores in evaluation; a DistillError if it does not take the data."""
    was = model.training
    try:
        with torch.no_grad():
            return call(model.eval(), data)
    except DistillError:
        raise
    except Exception as error:
        raise DistillError(
            f"model does not take data, {_shapes(data)} ({type(error).__name__}: {error})"
        ) from error
    finally:
        model.train(was)


def columns_of(model: nn.Module, data: Inputs, rows: int, what: str) -> int:
    """Columns of a model's scores, which must have a row for each of ``rows`` ``what``."""
    found = tried(model, data)
    if found.dim() != MATRIX or found.size(0) != rows:
        raise DistillError(
            f"model must return scores [{rows}, C], a row for each of {rows} {what}, got "
            f"{list(found.shape)}"
        )
    return found.size(1)


def _shapes(data: Inputs) -> str:
    if isinstance(data, Mapping):
        return ", ".join(f"{name} {list(value.shape)}" for name, value in data.items())
    return f"{data.dtype} {list(data.shape)}" if isinstance(data, Tensor) else str(data)


def is_dataset(data: Any) -> bool:
    """True for indexable samples; everything else is iterated over in batches."""
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


def check_anew(data: Any, name: str) -> None:
    """Refuse a single batch, an iterator, and objects that cannot be iterated over."""
    is_one = isinstance(data, Tensor | Mapping | BaseData | str)
    if is_one or not (is_dataset(data) or isinstance(data, Iterable)):
        raise DistillError(f"{name} must be a loader or a dataset, got {name_type(data)}")
    if isinstance(data, Iterator):
        raise DistillError(
            f"{name} must give its batches anew in every epoch, got an iterator "
            f"({type(data).__name__})"
        )


def length_of(loader: Any) -> int:
    """Number of batches of an epoch, counted if the loader has no length."""
    try:
        return max(len(loader), 1)
    except TypeError:
        return max(sum(1 for _ in loader), 1)
