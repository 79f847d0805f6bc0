"""Raw features as the model of a recipe takes them."""

from __future__ import annotations

from collections.abc import MutableMapping

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from bitgnn.train.recipe import Recipe

__all__ = ["model_input", "row_normalized", "thermometer"]

_kept: MutableMapping[Tensor, dict[tuple[bool, int | None], Tensor]] = WeakTensorKeyDictionary()


def row_normalized(x: Tensor) -> Tensor:
    """Rows divided by their sums, empty rows left alone."""
    return x / x.sum(dim=1, keepdim=True).clamp(min=1e-12)


def thermometer(x: Tensor, levels: int) -> Tensor:
    """Each column as bits that tell which of its quantiles a value exceeds.

    A sign keeps one bit of a feature; where there are few of them that is too little. Bit ``j`` of
    a column is ``x > q_j`` with the quantile at ``j / (levels + 1)``, ``j = 1 ... levels``. Bits
    that are the same for all nodes are left out.

    Args:
        x: ``[N, F]`` floats.
        levels: quantiles of a column.

    Returns:
        ``[N, K]`` zeros and ones of the dtype of ``x``, ``K <= F * levels``.
    """
    places = np.arange(1, levels + 1) / (levels + 1)
    # NumPy selects the quantiles; torch.quantile sorts, which takes four times as long.
    columns = x.t().contiguous().cpu().numpy()
    cuts = torch.from_numpy(np.quantile(columns, places, axis=1)).t().to(x)
    bits = (x.unsqueeze(2) > cuts).flatten(1)
    ones = bits.sum(dim=0)
    return bits[:, (ones > 0) & (ones < len(bits))].to(x.dtype)


def model_input(recipe: Recipe, x: Tensor) -> Tensor:
    """Features as the model of a recipe takes them; what takes long is kept as long as ``x``.

    Args:
        recipe: the recipe.
        x: ``[N, F]`` raw features.
    """
    raw, key = x, (recipe.normalize_features, recipe.thermometer)
    kept = _kept.get(raw, {})
    if key in kept:
        return kept[key]
    if recipe.normalize_features:
        x = row_normalized(x)
    if recipe.thermometer is not None:
        x = thermometer(x, recipe.thermometer)
        _kept[raw] = {**kept, key: x}
    return x
