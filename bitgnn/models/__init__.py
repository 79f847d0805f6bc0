"""Whole models built from the layers, with the presets of the papers."""

from bitgnn.models.gcn import GCN

__all__ = ["GCN"]
