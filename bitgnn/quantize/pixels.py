"""Colour images as grey ones and as local binary patterns, in front of a binarisation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import handle_torch_function, has_torch_function_unary

__all__ = ["COLOURS", "grey", "local_binary_patterns"]

COLOURS = 3
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in grey (ITU-R BT.601)."""
RING = ((0, 0), (1, 2), (2, 0))
"""Row and column, in a 3x3 window, of every third pixel clockwise from the top left."""


def grey(x: Tensor) -> Tensor:
    """The luma ``[N, 1, H, W]`` of red, green and blue ``[N, 3, H, W]`` (ITU-R BT.601).

    Args:
        x: floats.
    """
    if has_torch_function_unary(x):  # torch.fx keeps it whole
        out: Tensor = handle_torch_function(grey, (x,), x)
        return out
    red, green, blue = (x[:, c : c + 1] * weight for c, weight in enumerate(LUMA))
    return red + green + blue


def local_binary_patterns(x: Tensor) -> Tensor:
    """Three of a pixel's neighbours in grey, as +1 where they exceed it and -1 elsewhere.

    The three are every third of the ring of eight, clockwise from the top left; at the border the
    image continues as it ends. No gradient flows.

    Source: Ojala et al., "Multiresolution Gray-Scale and Rotation Invariant Texture Classification
    with Local Binary Patterns", TPAMI 2002, in the form of BinCNN.

    Args:
        x: floats ``[N, 3, H, W]``.

    Returns:
        ``[N, 3, H, W]`` of the dtype of ``x``.
    """
    if has_torch_function_unary(x):
        out: Tensor = handle_torch_function(local_binary_patterns, (x,), x)
        return out
    centre = grey(x)
    height, width = x.shape[2], x.shape[3]
    frame = functional.pad(centre, (1, 1, 1, 1), mode="replicate")
    ring = [frame[:, :, i : i + height, j : j + width] for i, j in RING]
    return 2 * (torch.cat(ring, 1) > centre).to(x.dtype) - 1
