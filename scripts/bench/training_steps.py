"""Times a training step of whole models and its peak memory: fp32 by PyG, and binary layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor
from torch_geometric.utils import to_torch_csr_tensor

import bitgnn
from bench.graphs import heavy_tailed_graph, load_flickr
from bitgnn.bits import BitAdjacency
from bitgnn.data import DataError, load
from bitgnn.measure.memory import cuda_peak_allocation, peak_allocation
from bitgnn.measure.timing import Clock

__all__ = ["AS_GRAPH", "LAYERS", "SIZES", "Size", "measured_cases"]

HIDDEN, DROPOUT, LABELLED = 64, 0.5, 0.1
FEATURES_SET = 0.02
"""Share of the features of a bag of words that are set."""
WARM_UP = 5
AS_GRAPH = ", CUDA graph"
"""End of the name of a contender whose step is one."""
MOST_NEIGHBOURS = 50
"""Maximum degree of a random graph, in mean degrees."""


class Size(NamedTuple):
    """Size of a data set.

    Attributes:
        nodes: their number.
        edges: their number.
        features: of a node.
        classes: their number.
        is_bag: features are bags of words, else dense.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    is_bag: bool


SIZES = {
    "Cora": Size(2708, 10556, 1433, 7, True),
    "Flickr": Size(89250, 899756, 500, 7, True),
    "a quarter of products": Size(612257, 30929570, 100, 47, False),
    "a quarter of Reddit": Size(58241, 28653973, 602, 41, False),
}
LAYERS = {"GCNConv": "sym", "SAGEConv": "mean"}
"""Layers of the models, and how an adjacency is normalised for them."""


class TwoLayers(nn.Module):
    """A model of two layers with ReLU between them, and dropout before each."""

    def __init__(self, layer: str, size: Size) -> None:
        super().__init__()
        kind = getattr(torch_geometric.nn, layer)
        options = {"cached": True} if layer == "GCNConv" else {}
        widths = size.features, HIDDEN, size.classes
        self.convs = nn.ModuleList(kind(*pair, **options) for pair in pairwise(widths))

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        """Scores of every node."""
        for number, conv in enumerate(self.convs):
            x = functional.relu(x) if number else x
            x = conv(functional.dropout(x, DROPOUT, self.training), graph)
        return x


def _edges_of(name: str, size: Size, root: str | None, device: str) -> Tensor:
    """The edges of a data set that is there, else random ones."""
    try:
        if name == "Cora":
            found: Tensor = load(name, root).edge_index
            return found.to(device)
        if name == "Flickr":
            return load_flickr(root).edge_index().to(device)
    except DataError:
        pass
    most = MOST_NEIGHBOURS * max(1, size.edges // size.nodes)
    graph = heavy_tailed_graph(size.nodes, size.edges, max_degree=most, seed=0, device=device)
    rows = torch.repeat_interleave(
        torch.arange(size.nodes, device=device), graph.rowptr.diff(), output_size=graph.num_edges
    )
    return torch.stack([graph.indices, rows])


def _features(size: Size, device: str) -> Tensor:
    if size.is_bag:
        return (torch.rand(size.nodes, size.features, device=device) < FEATURES_SET).float()
    return torch.randn(size.nodes, size.features, device=device)


def _graphs_of(edges: Tensor, nodes: int, layer: str) -> Iterator[tuple[str, str, Any]]:
    """Contender, precision and graph; each graph is made only once its turn comes."""
    yield "PyG, edge_index", "fp32", edges
    yield "PyG, torch CSR", "fp32", to_torch_csr_tensor(edges.flip(0), size=(nodes, nodes))
    if WITH_TORCH_SPARSE:
        sparse = SparseTensor.from_edge_index(edges.flip(0), sparse_sizes=(nodes, nodes))
        yield "PyG, SparseTensor", "fp32", sparse
    yield "bitgnn, edge_index", "bin", edges
    adjacency = BitAdjacency.from_edge_index(
        edges, nodes, normalize=LAYERS[layer], add_self_loops=layer == "GCNConv"
    )
    yield "bitgnn, BitAdjacency", "bin", adjacency


def _step_of(
    layer: str, precision: str, size: Size, x: Tensor, graph: Any, y: Tensor, captured: bool
) -> Callable[[], None]:
    """A step of a model that has been trained and evaluated for a few steps.

    With ``captured`` a CUDA graph can hold it, the optimizer's part as well.
    """
    torch.manual_seed(0)
    model: nn.Module = TwoLayers(layer, size)
    if precision != "fp32":
        model = bitgnn.binarize(model, precision)
    model = model.to(x.device)
    labelled = torch.arange(max(1, int(LABELLED * size.nodes)), device=x.device)
    # Widths may change in the first forward.
    functional.cross_entropy(model(x, graph)[labelled], y[labelled]).backward()
    options: dict[str, Any] = {"lr": 0.01, "weight_decay": 5e-4, "capturable": captured}
    optimizer = torch.optim.Adam(model.parameters(), **options)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(x, graph)[labelled], y[labelled]).backward()
        optimizer.step()

    step()
    model.eval()
    with torch.no_grad():
        model(x, graph)
    model.train()
    for _ in range(WARM_UP):
        step()
    return step


def _reason(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "out of memory"
    return str(error).partition("\n")[0]


def measured_cases(
    names: Sequence[str], root: str | None, device: str, repeats: int
) -> Iterator[dict[str, Any]]:
    """One entry a graph and layer: by contender, times of a step and bytes at its peak.

    On a GPU each contender has another beside it whose step is captured as a CUDA graph; the bytes
    are those of a step from Python.
    """
    clock = Clock(device)
    peak = cuda_peak_allocation if device == "cuda" else peak_allocation
    for name in names:
        torch.manual_seed(0)
        size = SIZES[name]
        edges = _edges_of(name, size, root, device)
        x = _features(size, device)
        y = torch.randint(size.classes, (size.nodes,), device=device)
        for layer in LAYERS:
            ready: dict[str, Any] = {}
            peaks: dict[str, int] = {}
            failed: dict[str, str] = {}
            ways = ("", AS_GRAPH) if device == "cuda" else ("",)
            each = _graphs_of(edges, size.nodes, layer)
            for plain, precision, graph, way in ((*one, way) for one in each for way in ways):
                contender = plain + way
                try:
                    step = _step_of(layer, precision, size, x, graph, y, bool(way))
                    peaks[contender] = peak(step)
                    ready[contender] = clock.prepare(step, captured=bool(way))
                # Memory, a sparse form without gradients, or a step that waits for the GPU.
                except RuntimeError as error:
                    failed[contender] = _reason(error)
                    clock.recover()
            times, broken = clock.rounds(ready, repeats)
            failed |= {contender: _reason(error) for contender, error in broken.items()}
            yield {
                "graph": name, "layer": layer, "nodes": size.nodes, "edges": edges.size(1),
                "features": size.features, "failed": failed,
                "forms": {
                    contender: {"time": timing.to_dict(), "peak_bytes": peaks[contender]}
                    for contender, timing in times.items()
                },
            }  # fmt: skip
            ready.clear()
            clock.recover()
