"""Functions left out of compiled graphs; apart, since marking them imports the whole compiler."""

from __future__ import annotations

from typing import Any

import torch

from bitgnn.nn.roles import waiting


@torch.compiler.disable(reason="roles are found in a first batch: train one before fullgraph")
def meet_model(layer: Any) -> None:
    """Call :func:`bitgnn.nn.roles.waiting.meet_model`."""
    waiting.meet_model(layer)
