"""Layers that a swap leaves in floats, with reasons; the report of a model that stays as it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch_geometric.nn
from torch import nn
from torch_geometric.nn import MessagePassing

from bitgnn.convert.reporting import BinarizeReport
from bitgnn.convert.walker import is_inside
from bitgnn.nn import BinaryLinear

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
