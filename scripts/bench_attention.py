"""Times frozen two-layer GAT and GATv2 models against every form of PyG's, with peak memory.

Graphs have the sizes of real ones and random edges; features are dense, or 0/1 for the citation
graphs. PyG's model gets its self loops beforehand; TF32 is on.
"""

from __future__ import annotations

import argparse
import gc
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.utils import to_torch_csr_tensor

import bitgnn
import bitgnn.nn
from bitgnn.data import synthetic
from bitgnn.measure.timing import Clock


class Graph(NamedTuple):
    """Nodes, edges, features, classes, and share of features that are set (1: dense ones)."""

    nodes: int
    edges: int
    features: int
    classes: int
    density: float


GRAPHS = {
    "cora": Graph(2708, 10556, 1433, 7, 0.0127),
    "pubmed": Graph(19717, 88648, 500, 3, 0.1),
    "flickr": Graph(89250, 899756, 500, 7, 1.0),
    "reddit": Graph(232965, 114615892, 602, 41, 1.0),
}
SHAPES = {"8x8": (8, 8), "4x64": (4, 64)}
SMALL = 1000
"""Nodes of the batch on which the binary model settles what it reads."""


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
    for _ in range(2):
        net(x[:nodes].cpu(), edges).square().mean().backward()
    return bitgnn.freeze(net.eval(), check=False).to(x.device)


def pyg_forms(net: nn.Module, edges: Tensor, nodes: int, captures: bool) -> Iterator[Any]:
    """Name, model, graph, and whether the call is captured, of each form of PyG's."""
    csr = to_torch_csr_tensor(edges.flip(0), size=(nodes, nodes))
    for form, given in (("edges", edges), ("csr", csr)):
        for compiled in (False, True):
            model = torch.compile(net) if compiled else net
            for captured in (False, True) if captures else (False,):
                name = f"{form}{' compiled' if compiled else ''}{' captured' if captured else ''}"
                yield name, model, given, captured


def timed(clock: Clock, call: Callable[[], Any], captured: bool, repeats: int) -> float:
    """Median seconds of a call."""
    ready = clock.prepare(call, captured=captured)
    timings, failed = clock.rounds({"": ready}, repeats)
    for error in failed.values():
        raise error
    return timings[""].median


def peak(device: str, call: Callable[[], Any]) -> int | None:
    """Bytes that a call needs on a GPU, held ones included."""
    if device != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats()
    call()
    return torch.cuda.max_memory_allocated()


@torch.no_grad()
def measure_frozen(frozen: Any, x: Tensor, edges: Tensor, arguments: Any) -> dict[str, Any]:
    """Seconds and peak memory of a frozen model."""
    graph = frozen.prepare_graph(edges, x.size(0))
    held = peak(arguments.device, lambda: frozen(x, graph))
    call, clock = bitgnn.capture(frozen, x, graph), Clock(arguments.device)
    return {"bitgnn": timed(clock, call, False, arguments.repeats), "bitgnn peak bytes": held}


def measure(name: str, kind: str, shape: str, arguments: Any) -> dict[str, Any]:
    """One model on one graph."""
    graph, device, clock = GRAPHS[name], arguments.device, Clock(arguments.device)
    torch.manual_seed(0)
    data = synthetic(graph.nodes, graph.edges, 1, 2)
    edges = data.edge_index.to(device)
    x = torch.randn(graph.nodes, graph.features)
    x = (x if graph.density == 1 else (torch.rand_like(x) < graph.density).float()).to(device)
    found: dict[str, Any] = {"graph": name, "layer": kind, "heads": shape, "device": device}
    found |= measure_frozen(frozen_model(kind, graph, x, SHAPES[shape]), x, edges, arguments)
    clock.recover()
    with torch.no_grad():
        loops = torch.arange(graph.nodes, device=device).repeat(2, 1)
        whole = torch.cat([edges, loops], 1)
        options = {"add_self_loops": False}
        net = Net(torch_geometric.nn, kind, graph, *SHAPES[shape], **options).to(device).eval()
        times: dict[str, float | str] = {}
        for form, model, given, captured in pyg_forms(net, whole, graph.nodes, device == "cuda"):
            try:
                run = lambda model=model, given=given: model(x, given)  # noqa: E731
                times[form] = timed(clock, run, captured, arguments.repeats)
            except Exception as error:  # out of memory, or a form that PyG does not have
                times[form] = f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"
                clock.recover()
        found["PyG"] = times
    best = [seconds for seconds in times.values() if isinstance(seconds, float)]
    found["speed-up"] = min(best) / found["bitgnn"] if best else None
    gc.collect()
    return found


def main() -> None:
    """Prints a line a model, and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--graphs", nargs="+", default=["cora", "pubmed", "flickr"])
    parser.add_argument("--layers", nargs="+", default=["GATConv", "GATv2Conv"])
    parser.add_argument("--heads", nargs="+", default=list(SHAPES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.backends.cuda.matmul.allow_tf32 = True
    rows = []
    for name in arguments.graphs:
        for kind in arguments.layers:
            for shape in arguments.heads:
                rows.append(measure(name, kind, shape, arguments))
                print(json.dumps(rows[-1]), flush=True)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
