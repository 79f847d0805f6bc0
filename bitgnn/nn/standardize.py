"""Per-node standardisation, the input step of the inductive Bi-GCN models."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["NodeStandardize"]

EPSILON = 1e-4


class NodeStandardize(nn.Module):
    r""":math:`(x - \mathrm{mean}(x)) / (\mathrm{std}(x) + 10^{-4})` of each row, unbiased std.

    It has no parameters and no statistics: every node is standardised by its own features. A row
    of one feature, which has no std, becomes 0. The mean is summed in float64: rounded to the dtype
    of ``x`` it does not depend on the order, so that frozen models find the same signs.

    Source: Wang et al., "Bi-GCN: Binary Graph Convolutional Network", CVPR 2021 (training code).
    """

    def forward(self, x: Tensor) -> Tensor:
        """Standardise.

        Args:
            x: ``[*, K]`` floats.

        Returns:
            Tensor like ``x``.
        """
        centred = x - x.mean(dim=-1, keepdim=True, dtype=torch.float64).to(x.dtype)
        if x.size(-1) < 2 or x.size(0) == 0:
            return centred
        return centred / (torch.std(x, dim=-1, keepdim=True) + EPSILON)
