"""Networks of BitGNN's tables 4 and 5 as the paper has them: inductive GCN, SAGE, GraphSAINT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn

from bench.cases import Case, Contender, WrongResultError
from bench.models.contenders import memory_of
from bench.models.networks import PyGGraphSAINT
from bench.models.ours import Frozen, check, inputs_of
from bench.models.peers import FP32, HALVES, TF32, Arithmetic, forward_of, with_values
from bench.tasks import QUICK_GRAPH, SEED, NodeTask, load_task
from bitgnn import models
from bitgnn.convert import freeze
from bitgnn.measure.pyg import graph_forms
from bitgnn.measure.timing import Clock

GROUP = "graphs, tables 4 and 5"
INDUCTIVE, SAGE, SAINT = "inductive GCN", "GraphSAGE", "GraphSAINT"
HIDDEN = {"flickr": 256, "reddit": 128, QUICK_GRAPH: 64}
"""Widths of the paper, by graph."""
MAKERS: dict[str, Callable[..., nn.Module]] = {
    INDUCTIVE: partial(models.GCN, inductive=True),
    SAGE: models.GraphSAGE,
    SAINT: partial(models.GraphSAINT, aggr="add"),
}


class PyGMeans(nn.Module):
    """PyG's ``SAGEConv`` in layers with ReLU between them, with or without the root term."""

    def __init__(self, sizes: tuple[int, ...], root_weight: bool) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            torch_geometric.nn.SAGEConv(*pair, root_weight=root_weight) for pair in pairwise(sizes)
        )

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        """Class scores ``[N, C]``."""
        for i, conv in enumerate(self.convs):
            x = conv(x.relu() if i else x, graph)
        return x


def inductive_cases(device: str, root: Path | None, quick: bool = False) -> Iterator[Case]:
    """The three networks on Flickr's graph and on one of Reddit's size; a CPU has the former."""
    graphs = (QUICK_GRAPH,) if quick else ("flickr", "reddit") if device == "cuda" else ("flickr",)
    load = lru_cache(maxsize=1)(_task)
    for graph in graphs:
        for kind in MAKERS:
            yield Case(
                GROUP,
                f"{kind}, {graph}",
                partial(_contenders, kind, partial(load, graph, device, root)),
                details={"model": kind, "graph": graph, "hidden": HIDDEN[graph]},
            )


def _task(graph: str, device: str, root: Path | None) -> NodeTask:
    return replace(load_task(graph, device, root), hidden=HIDDEN[graph], hidden_by_model={})


def _contenders(kind: str, load: Callable[[], NodeTask]) -> Iterator[Contender]:
    task = load()
    # Messages of Reddit's edges do not fit: CSR is the form that runs everywhere.
    graph = graph_forms(task.edge_index, task.num_nodes)["torch CSR"]
    for arithmetic in (TF32, HALVES[0]) if task.x.is_cuda else (FP32,):
        make = partial(_peer, kind, task, graph, arithmetic)
        yield _measured(f"PyG CSR int32 {arithmetic.name}", False, make)
    for form in ("bin", "full"):
        yield _measured(form, True, partial(_ours, kind, task, form), ranked=form == "bin")


def _measured(
    name: str,
    ours: bool,
    make: Callable[[], tuple[Callable[[], Tensor], tuple[Any, ...]]],
    ranked: bool = True,
) -> Contender:
    """A contender that also records the bytes that it keeps and that a call takes at most."""
    contender = Contender(name, ours, lambda: print, ranked=ranked)

    def made() -> Callable[[], Tensor]:
        call, kept = make()
        call()
        device = next(t for t in kept if isinstance(t, Tensor)).device.type
        contender.details["memory"] = memory_of(call, kept, Clock(device))
        return call

    contender.make = made
    return contender


def _peer(
    kind: str, task: NodeTask, graph: Tensor, arithmetic: Arithmetic
) -> tuple[Callable[[], Tensor], tuple[Any, ...]]:
    torch.manual_seed(SEED)
    sizes = task.x.size(1), task.hidden, task.num_classes
    model: nn.Module
    if kind == SAINT:
        model = PyGGraphSAINT(*sizes, aggr="add")
    else:
        model = PyGMeans(sizes, root_weight=kind == SAGE)
    dtype = arithmetic.dtype
    model, x = model.to(task.x.device, dtype).eval(), task.x.to(dtype)
    sparse = with_values(graph, dtype, narrow=True)
    return partial(forward_of, model, x, sparse, arithmetic.tf32), (x, model, sparse)


def _ours(kind: str, task: NodeTask, form: str) -> tuple[Callable[[], Tensor], tuple[Any, ...]]:
    """The frozen network on packed features, equal to the network that it was frozen from."""
    torch.manual_seed(SEED)
    sizes = task.x.size(1), task.hidden, task.num_classes
    emulated = MAKERS[kind](*sizes, precision=form).to(task.x.device).eval()
    packed = freeze(emulated, check=False)  # random weights
    network = Frozen(packed, emulated, inputs_of(packed, task))
    if not check(network, "packed", task)["passed"]:
        raise WrongResultError
    x, graph = network.inputs["packed"]
    return partial(packed, x, graph), (x.words, packed, graph)
