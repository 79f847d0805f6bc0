"""The networks of the papers for small images, in full precision and binary."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from bitgnn.data import ImageData
from bitgnn.models import IMAGE_NETWORKS
from experiments.images.recipe import ImageConfig

__all__ = ["build_network"]


def build_network(config: ImageConfig, form: str, data: ImageData) -> nn.Module:
    """The network of a form, with fresh weights.

    Args:
        config: names the network.
        form: ``fp32`` or ``binary``.
        data: says how many classes there are.
    """
    make: Callable[..., nn.Module] = IMAGE_NETWORKS[config.model]
    return make(precision=form, classes=len(data.classes))
