"""Precisions of whole models: what "bin" and "full" mean layer by layer."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import nn

from bitgnn.nn import LayerPrecision

__all__ = ["HasPrecision", "model_letters"]


@runtime_checkable
class HasPrecision(Protocol):
    """A whole model that knows its own binary forms, as those of ``bitgnn.models`` do."""

    precision: str

    def with_precision(self, precision: Any) -> nn.Module:
        """A copy with the same weights in another precision."""


def model_letters(precision: str | LayerPrecision, count: int) -> list[str | LayerPrecision]:
    """Precision of each layer of a chain.

    ``"bin"`` hands bits from layer to layer, ``FBB+BBB``, ``BBB+BBB``, ..., ``BBF+FBF``: the last
    layer aggregates floats, since class scores need them. Anything else holds for every layer.

    Args:
        precision: of the model.
        count: number of layers.

    Returns:
        One precision a layer.
    """
    if precision != "bin" or count == 0:
        return [precision] * count
    if count == 1:
        return ["FBF+FBF"]
    return ["FBB+BBB", *["BBB+BBB"] * (count - 2), "BBF+FBF"]
