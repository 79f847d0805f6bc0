"""The kind of problem that batches pose, from the first of them: images, texts, language models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch_geometric.data.data import BaseData

from bitgnn.distillation.batches import Batched, Images, Texts
from bitgnn.distillation.calling import DistillError, is_dataset
from bitgnn.distillation.language import NextTokens, is_tokens


def batched_problem(
    data: Any, model: nn.Module, loader: Any, validation: Any, seed: int
) -> Batched | None:
    """The problem of a loader or dataset of images or texts; None for other data."""
    if isinstance(data, Iterator):
        return None
    if isinstance(data, Tensor | Mapping):
        raise DistillError(
            f"data must be a graph, or a loader or dataset of batches, got {type(data).__name__}"
        )
    first = _first(data)
    if isinstance(data, tuple | list) and isinstance(first, Tensor):
        raise DistillError(
            "data must be a graph, or a dataset of pairs (images, labels) such as TensorDataset, "
            f"got a {type(data).__name__} of tensors"
        )
    kind: type[Batched]
    if isinstance(first, Mapping) and not isinstance(first, BaseData):
        kind = NextTokens if is_tokens(first) else Texts
    elif isinstance(first, tuple | list | Tensor):
        kind = Images
    else:
        return None
    if loader is not None:
        raise DistillError("loader must be None for images and texts; pass it as data")
    return kind(data, model, validation, seed)


def _first(data: Any) -> Any:
    """The first sample of a dataset, or the first batch of anything else; None without one."""
    if is_dataset(data):
        return data[0] if len(data) else None
    if not isinstance(data, Iterable):
        return None
    for batch in data:
        return batch
    raise DistillError(f"data must hold a batch at least, got an empty {type(data).__name__}")
