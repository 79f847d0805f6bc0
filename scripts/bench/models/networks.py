"""PyG's models in floats for the whole-model benchmark, and Bi-GCN emulated with their layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch.nn import functional

from bench.tasks import SEED, NodeTask
from bitgnn.quantize import sgn


class PyGGCN(nn.Module):
    """PyG's ``GCNConv`` with cached normalisation and, unless signs follow, ReLU in between."""

    def __init__(self, sizes: Sequence[int], relu: bool = True) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            torch_geometric.nn.GCNConv(inputs, outputs, cached=True)
            for inputs, outputs in pairwise(sizes)
        )
        self.relu = relu

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        """Class scores ``[N, C]``; the first call fixes the graph."""
        for i, conv in enumerate(self.convs):
            x = conv(x.relu() if self.relu and i > 0 else x, graph)
        return x


class PyGGraphSAINT(nn.Module):
    """PyG's ``GraphConv`` twice and a linear map of both, as ``bitgnn.models.GraphSAINT``."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        relu: bool = True,
        aggr: str = "mean",
    ) -> None:
        super().__init__()
        self.activation = nn.ReLU() if relu else nn.Identity()
        sizes = (in_channels, hidden_channels)
        self.convs = nn.ModuleList(
            torch_geometric.nn.GraphConv(size, hidden_channels, aggr=aggr) for size in sizes
        )
        self.lin = nn.Linear(2 * hidden_channels, out_channels)

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        """Class scores ``[N, C]``."""
        first = self.activation(self.convs[0](x, graph))
        second = self.activation(self.convs[1](first, graph))
        scores: Tensor = self.lin(torch.cat([first, second], dim=-1))
        return scores


def pyg_model(kind: str, task: NodeTask, relu: bool = True) -> nn.Module:
    """PyG's float model of a kind for a task, in evaluation mode on the task's device."""
    torch.manual_seed(SEED)
    sizes = (task.x.size(1), task.hidden_channels(kind), task.num_classes)
    if kind == "GCN":
        model: nn.Module = PyGGCN(sizes, relu=relu)
    elif kind == "GraphSAGE":
        act = "relu" if relu else None
        model = torch_geometric.nn.GraphSAGE(sizes[0], sizes[1], 2, sizes[2], act=act)
    else:
        model = PyGGraphSAINT(*sizes, relu=relu)
    return model.to(task.x.device).eval()


class _SignLinear(nn.Module):
    """Bi-GCN's linear map in floats: signs of rows and of weights, each with its mean magnitude."""

    def __init__(self, linear: Any) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """``[N, K]`` floats to ``[N, M]``."""
        scale = self.weight.abs().mean(1)
        rows = x.abs().mean(1, keepdim=True)
        out = functional.linear(sgn(x), sgn(self.weight)) * (rows * scale)
        return out if self.bias is None else out + self.bias


class _Standardized(nn.Module):
    """Each feature standardised over the nodes before a model, as by the norm of Bi-GCN."""

    def __init__(self, model: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.model = model
        self.norm = nn.BatchNorm1d(x.size(1), affine=False, device=x.device)
        self.norm.running_mean, self.norm.running_var = x.mean(0), x.var(0)
        self.eval()

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        """Class scores ``[N, C]``."""
        scores: Tensor = self.model(self.norm(x), graph)
        return scores


def published_bi_gcn(kind: str, task: NodeTask) -> nn.Module:
    """PyG's model with the linear maps of its layers as Bi-GCN computes them, in floats.

    No ReLU stands between the layers: every sign after one would be +1.
    """
    model = pyg_model(kind, task, relu=False)
    for layer in model.modules():
        if isinstance(layer, torch_geometric.nn.MessagePassing):
            for name, child in list(layer.named_children()):
                if isinstance(child, torch_geometric.nn.Linear):
                    setattr(layer, name, _SignLinear(child))
    return _Standardized(model, task.x)
