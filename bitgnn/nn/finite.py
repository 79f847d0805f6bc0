"""What a sign would hide of features: rows with NaN or infinity; and what is no float tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitgnn._checks import check_type, name_type
from bitgnn.bits import BitAdjacency
from bitgnn.nn.aggregate import aggregate

__all__ = ["check_features", "nonfinite_neighbours", "nonfinite_rows"]


@torch.no_grad()
def nonfinite_rows(x: Tensor) -> Tensor:
    r"""0 for each row of finite values, NaN for the others.

    :math:`r_i = 0 \cdot \max_k x_{ik} + 0 \cdot \min_k x_{ik}`. On bits NaN is -1 and infinity +1
    or -1, so that scores of spoilt features look like any others. A layer that adds :math:`r` to
    its product hands on NaN where a float layer would; that holds for F activations already, whose
    row scale is NaN or infinite. It costs two reductions of ``x`` in training's floats, some
    per cent of a product with 16 outputs, and no wait for a GPU. Frozen layers, which read each
    feature once, do not look: ``pack_features(check_finite=True)`` does.

    Args:
        x: ``[*, K]`` floats.

    Returns:
        ``[*, 1]`` floats of the dtype of ``x``; constants, through which no gradient flows.
    """
    if x.size(-1) == 0:
        return x.new_zeros(*x.shape[:-1], 1)
    return x.amax(-1, keepdim=True) * 0 + x.amin(-1, keepdim=True) * 0


@torch.no_grad()
def nonfinite_neighbours(rows: Tensor, adjacency: BitAdjacency) -> Tensor:
    """0 for each destination all of whose sources are finite, NaN for the others.

    One column more than the aggregation has; what a layer adds to an aggregation of signs.

    Args:
        rows: ``[N, 1]`` floats of :func:`nonfinite_rows`.
        adjacency: ``[M, N]`` pattern.

    Returns:
        ``[M, 1]`` floats of the dtype of ``rows``.

    Raises:
        ValueError: ``rows`` are not the columns of ``adjacency``.
    """
    return aggregate(rows, adjacency, use_row=False, use_col=False)


def check_features(owner: str, x: Any) -> None:
    """Require features that a layer can read: a tensor of floats, dense or sparse.

    Args:
        owner: name of the layer, for messages.
        x: features.

    Raises:
        TypeError: ``x`` is an array or matrix of another library, or holds integers or booleans.
    """
    check_type(
        isinstance(x, Tensor),
        lambda: (
            f"{owner}: x must be a tensor of floats, got {name_type(x)}"
            + (", which torch.from_numpy(x).float() makes one" if _is_numpy(x) else "")
            + (", whose x.toarray() torch.from_numpy takes" if hasattr(x, "toarray") else "")
        ),
    )
    check_type(
        x.is_floating_point(),
        lambda: f"{owner}: x must hold floats, got {x.dtype}, which x.float() makes floats",
    )


def _is_numpy(x: Any) -> bool:
    return type(x).__module__ == "numpy" and hasattr(x, "__array__")
