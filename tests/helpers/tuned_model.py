"""A small model and graph to tune, and options that make a call short."""

import torch
from torch_geometric.nn import GCN

FEATURES, HIDDEN, CLASSES = 70, 16, 4
DROP = "accuracy drop <= 100%"
SMALL = {"pins": {"convs.0": "F*B+BBF"}, "widen": 1, "epochs": 2, "progress": False}


def float_model():
    """A float model that was not trained."""
    torch.manual_seed(0)
    return GCN(FEATURES, HIDDEN, 2, CLASSES)


def told_by_neighbours(data):
    """The graph with labels that the features of a node and its neighbours tell."""
    source, target = data.edge_index
    parts = data.x[:, :CLASSES]
    data.y = parts.index_add(0, target, parts[source]).argmax(1)
    return data


def distilled(result):
    """Points of students, not of the float model."""
    return [point for point in result.points if point.plan is not None]
