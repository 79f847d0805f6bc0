"""Whole models built from the layers, with the presets of the papers."""

from bitgnn.models.gcn import GCN
from bitgnn.models.graph_sage import GraphSAGE
from bitgnn.models.graph_saint import GraphSAINT

__all__ = ["GCN", "GraphSAGE", "GraphSAINT"]
