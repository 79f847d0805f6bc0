"""What plans are set against: the teacher in PyG's own float layers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.utils import to_torch_csr_tensor

from bitgnn.convert.plan import ModelShape
from bitgnn.measure.memory import cuda_peak_allocation, peak_allocation, stored_bytes
from bitgnn.measure.pyg import graph_forms
from bitgnn.measure.timing import Clock
from bitgnn.tune.accuracy import Score, logits_of, score_logits
from bitgnn.tune.workload import Workload

PYG = "PyG fp32"
MESSAGE_LIMIT = 2 * 2**30
"""Bytes of messages beyond which graphs are not given as an edge index, unless it is the only
form."""
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Baseline:
    """A float model in the form of the graph that is fastest for it.

    Attributes:
        name: with the form of the graph.
        run: one forward.
        score: of its logits.
        memory: bytes of weights, features and graph, and of the allocator's peak on top.
    """

    name: str
    run: Callable[[], Tensor]
    score: Score
    memory: float


def baseline_of(workload: Workload) -> Baseline:
    """The float model of a workload, with the graph whose second forward takes least time."""
    model = copy.deepcopy(workload.model).eval()  # it keeps graphs
    clock = Clock(workload.device.type)
    found = []
    for form, graph in _forms(workload).items():
        _forget_graphs(model)
        run = partial(logits_of, model, workload.x, graph)
        run()
        found.append((clock.elapsed(run), form, graph))
    _, form, graph = min(found, key=lambda entry: entry[0])
    _forget_graphs(model)
    run = partial(logits_of, model, workload.x, graph)
    score = score_logits(workload, run())
    peak = cuda_peak_allocation if workload.x.is_cuda else peak_allocation
    memory = stored_bytes(model, workload.x, graph) + peak(run)
    return Baseline(f"{PYG} ({form})", run, score, float(memory))


def _forms(workload: Workload) -> dict[str, Any]:
    graph, nodes = workload.edge_index, workload.num_nodes
    if not isinstance(graph, Tensor) or graph.layout != torch.strided:
        return {"as given": graph}
    if workload.edge_weight is not None:
        csr = to_torch_csr_tensor(graph.flip(0), workload.edge_weight, (nodes, nodes))
        return {"torch CSR": csr}
    forms = graph_forms(graph, nodes)
    shapes = ModelShape.of(workload.model).layers
    widest = max(max(shape.in_channels, shape.out_channels) for shape in shapes)
    if graph.size(1) * widest * FLOAT_BYTES > MESSAGE_LIMIT:
        forms.pop("edge_index")
    return forms


def _forget_graphs(model: nn.Module) -> None:
    """PyG's layers normalise once, as they do where a user has them keep it."""
    for layer in model.modules():
        if isinstance(layer, torch_geometric.nn.GCNConv):
            layer.cached = layer.normalize
            layer._cached_edge_index = layer._cached_adj_t = None
