"""Refuses models, data and loaders that nothing can be learnt with, and says which and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data.data import BaseData
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from bitgnn._checks import name_type
from bitgnn.distillation.calling import Inputs, call
from bitgnn.distillation.errors import DistillError
from bitgnn.distillation.objectives import Objective, Values

__all__ = [
    "check_anew",
    "check_graph",
    "check_model",
    "check_options",
    "check_targets",
    "columns_of",
    "is_dataset",
    "labels_of",
    "length_of",
    "rows_of",
]

MATRIX = 2


def check_model(model: Any) -> None:
    """Refuse what cannot be trained.

    Raises:
        TypeError: it is no module.
        DistillError: it has no parameters, they are on several devices or on none, or not finite.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"distill: model must be a torch.nn.Module, got {type(model).__name__}")
    parameters = dict(model.named_parameters())
    if not parameters:
        raise DistillError(f"model must have parameters, {type(model).__name__} has none")
    devices = sorted({str(value.device) for value in parameters.values()})
    if len(devices) > 1 or devices == ["meta"]:
        raise DistillError(f"model must be on one device with its data, got {', '.join(devices)}")
    for name, value in parameters.items():
        if not is_uninitialized_parameter(value) and not bool(torch.isfinite(value).all()):
            raise DistillError(f"model must have finite weights, found NaN or infinity in {name}")


NUMBER = int | float | None
TYPES: Mapping[str, tuple[Any, str]] = {
    "widen": (NUMBER | nn.Module, "a number, a model or None"),
    "budget": (NUMBER, "seconds or None"),
    "seed": (int, "an int"),
    "trained": (bool | None, "a bool or None"),
    "log": (str | PathLike | None, "a path or None"),
    "recipe": (Mapping | None, "a mapping of fields or None"),
}
MOST_SEED = 2**32 - 1


def check_options(**options: Any) -> None:
    """Refuse options of :func:`bitgnn.distill` of a wrong type or out of range.

    Raises:
        TypeError: a wrong type.
        ValueError: out of range.
    """
    for name, (kinds, said) in TYPES.items():
        value = options[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and name != "trained"):
            raise TypeError(f"distill: {name} must be {said}, got {type(value).__name__}")
    widen, epochs, budget, seed = (options[n] for n in ("widen", "epochs", "budget", "seed"))
    if isinstance(widen, int | float) and not 1 <= widen < float("inf"):
        raise ValueError(f"distill: widen must be at least 1, got {widen}")
    if epochs is not None and (type(epochs) is not int or epochs < 1):
        raise ValueError(f"distill: epochs must be a positive integer or None, got {epochs!r}")
    if budget is not None and not budget > 0:
        raise ValueError(f"distill: budget must be positive seconds or None, got {budget!r}")
    if not 0 <= seed <= MOST_SEED:
        raise ValueError(f"distill: seed must be 0 to {MOST_SEED}, got {seed}")


def rows_of(value: Any, count: int, name: str, device: torch.device) -> Tensor:
    """Indices of a mask or of indices.

    Args:
        value: bool ``[count]`` or int64 indices.
        count: rows there are.
        name: of the argument, for messages.
        device: of the result.

    Raises:
        DistillError: it is neither, empty, or has an index out of range.
    """
    if not isinstance(value, Tensor):
        raise DistillError(f"{name} must be a mask or indices, got {type(value).__name__}")
    if value.dtype == torch.bool:
        if value.shape != (count,):
            raise DistillError(
                f"{name} must be bool [{count}], got {list(value.shape)}; of several splits "
                "choose one"
            )
        rows = value.nonzero().flatten()
    elif value.dtype == torch.int64 and value.dim() == 1:
        rows = value
        if rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < count:
            raise DistillError(
                f"{name} must be indices in 0 to {count - 1}, got {int(rows.min())} to "
                f"{int(rows.max())}"
            )
    else:
        raise DistillError(
            f"{name} must be bool or int64 of one dimension, got {value.dtype} {list(value.shape)}"
        )
    if rows.numel() == 0:
        raise DistillError(f"{name} is empty")
    return rows.to(device)


def check_graph(data: BaseData, name: str = "data") -> None:
    """Refuse features that no layer can learn from, and edges between nodes that there are not.

    Raises:
        DistillError: ``x`` is missing, no tensor, empty, or has NaN or infinity; ``edge_index`` is
            of another type, or out of range.
    """
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
    if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < x.size(0):
        raise DistillError(
            f"{name}.edge_index must be nodes 0 to {x.size(0) - 1}, got {int(edges.min())} to "
            f"{int(edges.max())}"
        )


def check_targets(y: Tensor, objective: Objective, outputs: int, name: str) -> None:
    """Refuse classes that the model has no score for, and values that are not finite.

    Raises:
        DistillError: a class is out of range, or a value NaN or infinity.
    """
    if objective.metric == Values.metric and not bool(torch.isfinite(y).all()):
        raise DistillError(f"{name}: labels must be finite, found NaN or infinity")
    if y.is_floating_point() or not y.numel():
        return
    low, high = int(y.min()), int(y.max())
    if low < 0:
        raise DistillError(f"{name} holds rows without a label (y < 0)")
    if high >= outputs:
        raise DistillError(
            f"{name}: labels must be classes 0 to {outputs - 1}, one a column of the model's "
            f"scores, got {low} to {high}"
        )


def columns_of(model: nn.Module, data: Inputs, rows: int, what: str) -> int:
    """Columns of the scores that a model gives for a graph or batch.

    Args:
        model: tried in evaluation.
        data: what it takes.
        rows: that there must be.
        what: they are, for messages.

    Raises:
        DistillError: the model does not take the data, or gives something else.
    """
    was = model.training
    try:
        with torch.no_grad():
            found = call(model.eval(), data)
    except DistillError:
        raise
    except Exception as error:
        raise DistillError(
            f"model does not take data, {_shapes(data)} ({type(error).__name__}: {error})"
        ) from error
    finally:
        model.train(was)
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
    """Whether samples are taken by number; everything else is iterated over in batches."""
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


def check_anew(data: Any, name: str) -> None:
    """Refuse what no epoch can be made of.

    Raises:
        DistillError: it is a single batch, an iterator, or cannot be iterated over.
    """
    is_one = isinstance(data, Tensor | Mapping | BaseData | str)
    if is_one or not (is_dataset(data) or isinstance(data, Iterable)):
        raise DistillError(f"{name} must be a loader or a dataset, got {name_type(data)}")
    if isinstance(data, Iterator):
        raise DistillError(
            f"{name} must give its batches anew in every epoch, got an iterator "
            f"({type(data).__name__})"
        )


def length_of(loader: Any) -> int:
    """Batches of an epoch; those of a loader that does not tell are counted."""
    try:
        return max(len(loader), 1)
    except TypeError:
        return max(sum(1 for _ in loader), 1)


def labels_of(graphs: Sequence[BaseData], name: str = "data") -> Tensor:
    """Labels of graphs, one row each.

    Raises:
        DistillError: a graph has none, or another number of them.
    """
    found = []
    for i, graph in enumerate(graphs):
        if getattr(graph, "y", None) is None:
            raise DistillError(f"{name} must have y in every graph, got one without")
        found.append(torch.as_tensor(graph.y).view(1, -1))
        if found[i].shape != found[0].shape:
            raise DistillError(
                f"{name} must have as many labels in every graph, got {found[0].numel()} and "
                f"{found[i].numel()}"
            )
    y = torch.cat(found)
    return y if y.is_floating_point() else y.long()
