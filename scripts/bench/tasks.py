"""The graphs of the whole-model benchmark: real ones where present, and named synthetic ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.graphs import REDDIT, heavy_tailed_graph, load_flickr
from bitgnn import models
from bitgnn.data import load

SEED = 0
HIDDEN = 64
QUICK_GRAPH = "tiny"
MODELS = ("GCN", "GraphSAGE", "GraphSAINT")
FLICKR_FEATURES, FLICKR_CLASSES, FLICKR_HIDDEN = 500, 7, 256
REDDIT_FEATURES, REDDIT_CLASSES, REDDIT_HIDDEN, REDDIT_SAGE_HIDDEN = 602, 41, 128, 256
EIGHTH = (29_120, 14_300_000, 2_707)
"""Nodes, edges and largest in-degree of Reddit, divided by 8."""
ARXIV = (169_343, 1_166_243, 13_161)
PRODUCTS = (2_449_029, 123_718_280, 17_481)
PRODUCTS_EIGHTH = (306_129, 15_464_785, 2_185)
"""Nodes, edges and largest in-degree of ogbn-arxiv, of ogbn-products and of that divided by 8."""
ARXIV_FEATURES, ARXIV_CLASSES, ARXIV_HIDDEN = 128, 40, 256
PRODUCTS_FEATURES, PRODUCTS_CLASSES, PRODUCTS_HIDDEN = 100, 47, 128


@dataclass(frozen=True, eq=False)
class NodeTask:
    """A graph with node features, as the benchmark needs it; equal only to itself.

    Attributes:
        name: shown in tables; says what is made up.
        x: float32 ``[N, K]``.
        edge_index: int64 ``[2, E]``.
        num_classes: width of the output.
        hidden: hidden width.
        hidden_by_model: hidden widths of models that have another one here.
        labelled: ``"y"``, int64 ``[N]``, and boolean masks ``"train"``, ``"val"``, ``"test"``;
            empty where features or labels are made up.
    """

    name: str
    x: Tensor
    edge_index: Tensor
    num_classes: int
    hidden: int = HIDDEN
    hidden_by_model: Mapping[str, int] = field(default_factory=dict)
    labelled: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        """Nodes of the graph."""
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        """Edges of the graph as it is given."""
        return self.edge_index.size(1)

    def hidden_channels(self, kind: str) -> int:
        """Hidden width of a model of this kind."""
        return self.hidden_by_model.get(kind, self.hidden)


def synthetic_task(nodes: int = 300, edges: int = 1500, features: int = 100) -> NodeTask:
    """A small random task, only to see that the benchmark runs."""
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(nodes, features, generator=generator)
    # Distinct edges without loops: PyG's CSR form treats duplicates and loops differently.
    source, destination = torch.randint(nodes, (2, edges), generator=generator).unique(dim=1)
    edge_index = torch.stack([source, destination])[:, source != destination]
    return NodeTask(f"synthetic ({nodes} nodes)", x, edge_index, 7)


def untrained_model(task: NodeTask, kind: str, precision: str) -> nn.Module:
    """A binary model with random weights and the features' statistics, fast as a trained one."""
    torch.manual_seed(SEED)
    hidden = task.hidden_channels(kind)
    model = getattr(models, kind)(task.x.size(1), hidden, task.num_classes, precision=precision)
    model = model.to(task.x.device)
    norm = getattr(model, "norm", None)
    if norm is not None:
        # One pass with a cumulative average makes the running statistics those of the data.
        norm.momentum = None
        with torch.no_grad():
            norm(task.x)
    made: nn.Module = model.eval()
    return made


def _planetoid(name: str, device: str, data_root: Path | None) -> NodeTask:
    data = load(name, data_root)
    classes = int(data.y.max()) + 1
    return NodeTask(name, data.x.to(device), data.edge_index.to(device), classes)


def _flickr(device: str, data_root: Path | None) -> NodeTask:
    graph = load_flickr(data_root)
    generator = torch.Generator(device).manual_seed(SEED)
    x = torch.randn(graph.num_nodes, FLICKR_FEATURES, generator=generator, device=device)
    name = "Flickr (made-up features)"
    return NodeTask(name, x, graph.edge_index().to(device), FLICKR_CLASSES, FLICKR_HIDDEN)


def _made_up(
    size: tuple[int, int, int],
    name: str,
    widths: tuple[int, int, int],
    device: str,
    by_model: Mapping[str, int] | None = None,
) -> NodeTask:
    """A synthetic graph without loops and duplicates; widths of features, hidden and classes."""
    nodes, edges, degree = size
    features, hidden, classes = widths
    graph = heavy_tailed_graph(nodes, edges, max_degree=degree, seed=SEED, device=device)
    rows = torch.repeat_interleave(torch.arange(nodes, device=device), graph.rowptr.diff())
    # Ordered by row and column, so equal neighbours are duplicates: every form of the graph then
    # holds the same edges.
    distinct = graph.indices != rows
    distinct[1:] &= (graph.indices[1:] != graph.indices[:-1]) | (rows[1:] != rows[:-1])
    edge_index = torch.stack([graph.indices[distinct], rows[distinct]])
    generator = torch.Generator(device).manual_seed(SEED)
    x = torch.randn(nodes, features, generator=generator, device=device)
    return NodeTask(name, x, edge_index, classes, hidden, by_model or {})


def _reddit_like(size: tuple[int, int, int], name: str, device: str) -> NodeTask:
    widths = REDDIT_FEATURES, REDDIT_HIDDEN, REDDIT_CLASSES
    return _made_up(size, name, widths, device, {"GraphSAGE": REDDIT_SAGE_HIDDEN})


def _arxiv_like(size: tuple[int, int, int], name: str, device: str) -> NodeTask:
    return _made_up(size, name, (ARXIV_FEATURES, ARXIV_HIDDEN, ARXIV_CLASSES), device)


def _products_like(size: tuple[int, int, int], name: str, device: str) -> NodeTask:
    return _made_up(size, name, (PRODUCTS_FEATURES, PRODUCTS_HIDDEN, PRODUCTS_CLASSES), device)


def _tiny(device: str, data_root: Path | None) -> NodeTask:
    task = synthetic_task()
    x, edge_index = task.x.to(device), task.edge_index.to(device)
    return NodeTask(task.name, x, edge_index, task.num_classes)


Loader = Callable[[str, Path | None], NodeTask]

GRAPHS: Mapping[str, Loader] = {
    QUICK_GRAPH: _tiny,
    "cora": lambda device, root: _planetoid("Cora", device, root),
    "citeseer": lambda device, root: _planetoid("CiteSeer", device, root),
    "pubmed": lambda device, root: _planetoid("PubMed", device, root),
    "flickr": _flickr,
    "reddit_eighth": lambda device, root: _reddit_like(
        EIGHTH, "synthetic, an eighth of Reddit", device
    ),
    "reddit": lambda device, root: _reddit_like(REDDIT, "synthetic, Reddit's size", device),
    "arxiv": lambda device, root: _arxiv_like(ARXIV, "synthetic, arxiv's size", device),
    "products_eighth": lambda device, root: _products_like(
        PRODUCTS_EIGHTH, "synthetic, an eighth of products", device
    ),
    "products": lambda device, root: _products_like(PRODUCTS, "synthetic, products' size", device),
}
"""Loaders by key: take the device and the data folder."""


def load_task(key: str, device: str, data_root: Path | None) -> NodeTask:
    """The graph of this key on ``device``."""
    return GRAPHS[key](device, data_root)
