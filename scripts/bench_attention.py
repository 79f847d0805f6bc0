"""Times frozen two-layer GAT and GATv2 models beside every form of PyG's: JSON.

Graphs have the sizes of real ones and random edges; features are dense, or 0/1 for the citation
graphs. PyG's model gets its self loops beforehand; TF32 is on.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.utils import to_torch_csr_tensor

import bitgnn
import bitgnn.nn
from bench.cases import Case, Contender, Goal
from bench.command import exits_with_status, parse, run_benchmark
from bench.tables.timings import attention_table
from bench.tasks import SEED
from bitgnn.data import synthetic


class Graph(NamedTuple):
    """Nodes, edges, features, classes, and share of features that are set (1: dense ones)."""

    nodes: int
    edges: int
    features: int
    classes: int
    density: float


GRAPHS = {
    "Cora": Graph(2708, 10556, 1433, 7, 0.0127),
    "PubMed": Graph(19717, 88648, 500, 3, 0.1),
    "Flickr": Graph(89250, 899756, 500, 7, 1.0),
    "Reddit": Graph(232965, 114615892, 602, 41, 1.0),
}
QUICK = {"small": Graph(50, 200, 40, 3, 1.0)}
LAYERS = ("GATConv", "GATv2Conv")
HEADS = ((8, 8), (4, 64))
SMALL = 1000
"""Nodes of the batch on which the binary model settles what it reads."""
GOAL = Goal("ratio", 5.0)


class Net(nn.Module):
    """Heads side by side, then one for the classes."""

    def __init__(self, owner: Any, kind: str, graph: Graph, heads: int, channels: int, **kw: Any):
        super().__init__()
        layer = getattr(owner, kind)
        self.c1 = layer(graph.features, channels, heads=heads, **kw)
        self.c2 = layer(heads * channels, graph.classes, heads=1, concat=False, **kw)

    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        """Scores of the classes."""
        return self.c2(functional.elu(self.c1(x, edge_index)), edge_index)


def frozen_model(kind: str, graph: Graph, x: Tensor, shape: tuple[int, int]) -> Any:
    """A frozen model that took two training steps on a few nodes."""
    net = Net(bitgnn.nn, kind, graph, *shape)
    nodes = min(SMALL, graph.nodes)
    edges = torch.randint(0, nodes, (2, 5 * nodes))
    with torch.enable_grad():
        for _ in range(2):
            net(x[:nodes].cpu(), edges).square().mean().backward()
    return bitgnn.freeze(net.eval(), check=False).to(x.device)


def contenders(
    graph: Graph, kind: str, shape: tuple[int, int], arguments: argparse.Namespace
) -> Iterator[Contender]:
    """The frozen model and the forms of PyG's, each with the bytes of model, graph and call."""
    device = arguments.device
    torch.manual_seed(SEED)
    edges = synthetic(graph.nodes, graph.edges, 1, 2).edge_index.to(device)
    x = torch.randn(graph.nodes, graph.features)
    x = (x if graph.density == 1 else (torch.rand_like(x) < graph.density).float()).to(device)
    loops = torch.arange(graph.nodes, device=device).repeat(2, 1)

    def ours() -> Callable[[], Any]:
        frozen = frozen_model(kind, graph, x, shape)
        prepared = frozen.prepare_graph(edges, x.size(0))
        return lambda: frozen(x, prepared)

    def pyg(form: str, compiled: bool) -> Callable[[], Any]:
        net = Net(torch_geometric.nn, kind, graph, *shape, add_self_loops=False).to(device).eval()
        given: Any = torch.cat([edges, loops], 1)
        if form == "CSR":
            given = to_torch_csr_tensor(given.flip(0), size=(graph.nodes, graph.nodes))
        model = torch.compile(net) if compiled else net
        return lambda: model(x, given)

    yield measured("bitgnn", True, ours, device)
    for form in ("edges", "CSR"):
        for compiled in (False,) if arguments.quick else (False, True):
            name = f"PyG, {form}{', compiled' if compiled else ''}"
            yield measured(name, False, partial(pyg, form, compiled), device)


def measured(
    name: str, is_ours: bool, make: Callable[[], Callable[[], Any]], device: str
) -> Contender:
    """A contender whose record has the most bytes that it held on a GPU beyond the inputs."""

    def make_and_weigh() -> Callable[[], Any]:
        if device != "cuda":
            return make()
        before = torch.cuda.memory_allocated()
        call = make()
        torch.cuda.reset_peak_memory_stats()
        call()
        found.details["bytes"] = torch.cuda.max_memory_allocated() - before
        return call

    found = Contender(name, is_ours, make_and_weigh)
    return found


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark of attention."""

    def extend(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--graphs", nargs="+", default=list(GRAPHS)[:3], choices=GRAPHS)

    names = {"cpu": "attention_cpu", "cuda": "attention_cuda"}
    arguments = parse("Times frozen GAT models beside PyG's.", names, argv, extend)
    warnings.filterwarnings("ignore", message=".*[Ss]parse CSR.*")
    torch.backends.cuda.matmul.allow_tf32 = True
    graphs = QUICK if arguments.quick else {name: GRAPHS[name] for name in arguments.graphs}

    def cases() -> Iterator[Case]:
        for name, graph in graphs.items():
            for kind in LAYERS:
                for shape in HEADS:
                    make = partial(contenders, graph, kind, shape, arguments)
                    title = f"{kind}, {shape[0]} heads of {shape[1]}"
                    yield Case(name, title, make, goals=(GOAL,), profiled=True)

    return run_benchmark(arguments, cases(), attention_table)


if __name__ == "__main__":
    raise SystemExit(main())
