"""BWTAAttention of signs on bits: ternary rows that hold no 0."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitgnn.inference.bwta.attention import FrozenBWTAAttention
from bitgnn.nn.attention_forward import Attended
from bitgnn.nn.bwta_attention import BWTAAttention

__all__ = ["FrozenSignAttention", "attention_from_tensors", "frozen_attention"]


class FrozenSignAttention(FrozenBWTAAttention):
    """Attention of the signs of queries, keys and values, called as ``BWTAAttention`` is.

    Signs are packed as ternary rows; what is not negative is +1, NaN is -1. Arguments and errors
    are those of :class:`FrozenBWTAAttention`.
    """

    kind = "sign_attention"
    activation = "sign"

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> Attended:
        """As :meth:`FrozenBWTAAttention.attend`, of the signs."""
        # Beyond half of any scale, in any type.
        query, key, value = (
            torch.where(x >= 0, x.new_full((), torch.inf), x.new_full((), -torch.inf))
            for x in (query, key, value)
        )
        return super().attend(query, key, value, *args, **kwargs)


def frozen_attention(name: str, layer: BWTAAttention) -> FrozenBWTAAttention:
    """The frozen form of a trained layer, of either activation.

    Args:
        name: of the layer, for messages.
        layer: trained.

    Raises:
        ValueError: a scale is not set or not positive, or the level is not 1.
    """
    form = FrozenSignAttention if layer.activation == "sign" else FrozenBWTAAttention
    return form.from_layer(name, layer)


def attention_from_tensors(
    description: dict[str, Any], tensors: dict[str, Tensor]
) -> FrozenBWTAAttention:
    """The inverse of ``description()`` and ``state_dict()``, of either activation."""
    signs = description.get("activation") == "sign"
    form = FrozenSignAttention if signs else FrozenBWTAAttention
    return form.from_tensors(description, tensors)
