"""Steps of full-batch training on rows of several ranks, and sums of scores over ranks."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional

from bitgnn._capture import capturing
from bitgnn.distributed import ShardedAdjacency, parallelize
from bitgnn.nn import GCNConv, GraphConv, SAGEConv

LAYERS = {"GCN": GCNConv, "GraphSAGE": SAGEConv, "GraphConv": GraphConv}
MESSAGES = {"bf16": torch.bfloat16, "fp32": torch.float32}
SCORES = (128, 1000)
"""Images and classes of an ensemble's scores."""
CALLS = 100
"""Sums of scores in one repeat."""
Timed = Callable[[Callable[[], Any], torch.device, int], list[float]]


class Stack(torch.nn.Module):
    """Layers of one kind in the default precision."""

    def __init__(self, layer: str, widths: list[int]) -> None:
        super().__init__()
        pairs = itertools.pairwise(widths)
        self.convs = torch.nn.ModuleList(LAYERS[layer](*pair, precision="bin") for pair in pairs)

    def forward(self, x: torch.Tensor, edge_index: Any) -> torch.Tensor:
        """Scores of the nodes."""
        for conv in self.convs:
            x = conv(x, edge_index)
        return x


def training_record(
    layer: str, messages: str, widths: list[int], graph: ShardedAdjacency, mesh: DeviceMesh,
    timed: Timed, repeats: int,
) -> dict[str, Any]:  # fmt: skip
    """Milliseconds of a step with all nodes, features of -1 and +1, and the losses of the first."""
    torch.manual_seed(0)
    device, rows = graph.device, graph.places.rows
    assert graph.x is not None
    x = graph.x.to_float()
    y = (graph.own_nodes() % widths[-1]).to(device)
    parallel = parallelize(Stack(layer, widths), mesh, messages=MESSAGES[messages]).train()
    optimizer = torch.optim.Adam(parallel.parameters(), 0.01)
    count = graph.total(torch.tensor(float(rows), device=device))
    losses: list[torch.Tensor] = []

    def step() -> None:
        optimizer.zero_grad()
        loss = functional.cross_entropy(parallel(x, graph), y, reduction="sum")
        loss = graph.total(loss) / count
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    repeated = timed(step, device, repeats)
    return {
        "model": layer, "messages": messages, "ms": statistics.median(repeated),
        "repeats_ms": repeated, "losses": [float(loss) for loss in losses],
    }  # fmt: skip


def scores_record(device: torch.device, timed: Timed, repeats: int) -> dict[str, Any]:
    """Microseconds of the sum over ranks of the scores of an ensemble's members."""
    scores = torch.ones(SCORES, device=device)
    run: Callable[[], Any] = lambda: [dist.all_reduce(scores) for _ in range(CALLS)]  # noqa: E731
    found = {"called_us": statistics.median(timed(run, device, repeats)) * 1e3 / CALLS}
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with capturing(graph):
            run()
        found["captured_us"] = statistics.median(timed(graph.replay, device, repeats)) * 1e3 / CALLS
    return {"scores": list(SCORES), "ranks": dist.get_world_size(), **found}
