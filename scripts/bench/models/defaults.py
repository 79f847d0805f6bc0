"""Default networks as a user gets them: PyG's model swapped, trained in a plain loop, frozen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import bitgnn
from bench.cases import Case, Contender, Record
from bench.experiments import plain_loop
from bench.models.case import Networks
from bench.models.ours import SPARSE, Frozen, inputs_of
from bench.models.peers import FP32, HALVES, PYG, TF32, Peer
from bench.tasks import HIDDEN, SEED, NodeTask, load_task
from bitgnn.inference import FrozenModel, call_by_call
from bitgnn.measure.timing import Clock

FORM = "bin"
LAYERS = {"GCN": "GCNConv", "GraphSAGE": "SAGEConv"}
OWN_FEATURES = ("Cora", "CiteSeer", "PubMed", "Photo", "CS")
DENSE = tuple(
    f"{name}{plain_loop.DENSE}128"
    for name in ("Cora 60/20/20", "CiteSeer 60/20/20", *OWN_FEATURES[2:])
)
"""The same graphs with projections of their features, as dense as embeddings are, and with labels
enough for these."""
LARGE = {
    "cpu": ("flickr", "arxiv", "products_eighth", "reddit_eighth"),
    "cuda": ("flickr", "arxiv", "products", "reddit"),
}
"""By device: real sizes with made-up features or structure, smaller where memory is slow."""
WEIGHT_DECAY = 5e-4
STEPS, STEP_NODES = 5, 20_000
"""Training of networks without labels, on so many nodes: times do not depend on what is learnt."""
ZEROS = 0.5
"""Share of zeros from which on features are also timed as a sparse tensor."""
SCORES = 1e-4
"""Tolerance of scores whose float sums have another order."""


def load_default(key: str, device: str, data_root: Path | None) -> NodeTask:
    """A graph of the plain loop by its name there, or one of the other benchmarks."""
    if key not in plain_loop.GRAPHS:
        return load_task(key, device, data_root)
    graph = {name: value.to(device) for name, value in plain_loop.read(key, data_root).items()}
    x, edges = graph.pop("x"), graph.pop("edges")
    classes = int(graph["y"].max()) + 1
    return NodeTask(key, x.float().contiguous(), edges, classes, HIDDEN, labelled=graph)


def plain_case(kind: str, graph: str, form: str, seed: int) -> Record:
    """A training as the plain loop describes it."""
    return {
        "graph": graph, "layer": LAYERS[kind], "layers": 2, "form": form,
        "weight_decay": WEIGHT_DECAY, "seed": seed,
    }  # fmt: skip


def freeze_default(kind: str, form: str, task: NodeTask) -> Frozen:
    """Train a swapped model of PyG's and freeze it.

    On real features and labels that is the plain loop's training with its first seed; on others a
    few steps on a part of the graph.
    """
    if task.labelled:
        case = plain_case(kind, task.name, form, SEED)
        graph = {"x": task.x, "edges": task.edge_index, **task.labelled}
        model = plain_loop.untrained(case, graph)
        training = {**case, **plain_loop.train(model, graph, case)}
    else:
        model, training = _briefly_trained(kind, form, task), {}
    model.eval()
    frozen = bitgnn.freeze(model, check=False)  # checked on every node below
    inputs = inputs_of(frozen, task)
    if not task.x.is_cuda and int((task.x == 0).sum()) >= ZEROS * task.x.numel():
        inputs[SPARSE] = (task.x.to_sparse_csr(), inputs["floats"][1])
    return Frozen(frozen, model, inputs, training)


def _briefly_trained(kind: str, form: str, task: NodeTask) -> nn.Module:
    torch.manual_seed(SEED)
    sizes = [task.x.size(1), task.hidden_channels(kind), task.num_classes]
    model: nn.Module = plain_loop.Tutorial(LAYERS[kind], sizes)
    for conv in model.convs:  # type: ignore[union-attr]
        conv.cached = False  # the part of the graph is not the graph
    model = bitgnn.binarize(model, form).to(task.x.device)
    nodes = min(STEP_NODES, task.num_nodes)
    edges = task.edge_index[:, (task.edge_index < nodes).all(0)]
    y = torch.arange(nodes, device=task.x.device) % task.num_classes
    optimizer = torch.optim.Adam(model.parameters(), lr=plain_loop.LEARNING_RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        functional.cross_entropy(model(task.x[:nodes], edges), y).backward()
        optimizer.step()
    return model


@torch.inference_mode()
def check_default(network: Frozen, features: str, task: NodeTask) -> Record:
    """Compare classes of a frozen network with those of the trained one, on every node."""
    # The trained model has kept its graph where it may; others take the prepared one.
    graph = task.edge_index if task.labelled else network.graph
    expected = network.emulated(task.x, graph)
    scores = network.model(*network.inputs[features])
    classes = scores.argmax(1)
    differing = int((classes != expected.argmax(1)).sum())
    found = {
        "passed": differing == 0 and torch.allclose(scores, expected, SCORES, SCORES),
        "exact": torch.equal(scores, expected),
        "differing_nodes": differing,
        "largest_difference": float((scores - expected).abs().nan_to_num().max()),
    }
    if task.labelled:
        test = task.labelled["test"]
        found["test"] = 100 * float((classes == task.labelled["y"])[test].float().mean())
    return found


def is_contender(on_cuda: bool, peer: Peer) -> bool:
    """True if PyG's best may be this form: a few never are, and take most of the time.

    On a GPU those are messages of single edges, unless compiled; on a CPU what is compiled, 16 bits
    but bfloat16, and single edges in fp32.
    """
    is_edges = peer.name.startswith("edge_index")
    if peer.family != PYG or on_cuda:
        return peer.family == PYG and not is_edges
    return peer.name.endswith("bf16") or (
        peer.name.endswith("fp32") and not is_edges and "compile" not in peer.name
    )


def default_networks(device: str) -> Networks:
    """How default networks are made and judged on a device; the last one made is kept."""
    takes = partial(is_contender, device == "cuda")
    freeze = lru_cache(maxsize=1)(freeze_default)
    return Networks((FORM,), freeze, check_default, takes, unfrozen=False)


@dataclass(frozen=True)
class FirstProduct:
    """Only the product of a GCN's first layer: packed signs, from floats and from packed rows.

    Attributes:
        graph: key of the graph.
        load: the graph.
        freeze: the network.
    """

    graph: str
    load: Callable[[], NodeTask]
    freeze: Callable[[str, str, NodeTask], Frozen]

    group = "first product"

    @property
    def name(self) -> str:
        """Model and graph."""
        return f"GCN on {self.graph}"

    def run(self, clock: Clock, repeats: int) -> Record:
        """Time it against PyG's product in each arithmetic."""
        task = self.load()
        details = {
            "graph_name": task.name, "nodes": task.num_nodes, "features": task.x.size(1),
            "hidden": task.hidden_channels("GCN"), "threads": torch.get_num_threads(),
        }  # fmt: skip
        return Case(self.group, self.name, self._contenders, details=details).run(clock, repeats)

    def _contenders(self) -> list[Contender]:
        task = self.load()
        network = self.freeze("GCN", FORM, task)
        weight = torch.randn(task.hidden_channels("GCN"), task.x.size(1), device=task.x.device)
        found = [
            Contender(name, True, partial(_first_product, network.model, *network.inputs[name]))
            for name in ("floats", "packed")
        ]
        for arithmetic in (FP32, TF32, *HALVES) if task.x.is_cuda else (FP32, *HALVES):
            make = partial(_linear, task.x, weight, arithmetic.dtype, arithmetic.tf32)
            found.append(Contender(f"{PYG} {arithmetic.name}", False, make))
        return found


def _first_product(model: FrozenModel, x: Any, graph: Any) -> Callable[[], None]:
    """The calls of a forward up to its first product."""
    wanted: list[Callable[[], None]] = []
    for steps, call in call_by_call.repeatable_calls(model, x, graph):
        wanted.append(call)
        if any(step.kind.startswith("bmm") for step in steps):
            break

    @torch.inference_mode()
    def run() -> None:
        for call in wanted:
            call()

    return run


def _linear(x: Tensor, weight: Tensor, dtype: torch.dtype, tf32: bool) -> Callable[[], Tensor]:
    x, weight = x.to(dtype), weight.to(dtype)

    @torch.inference_mode()
    def run() -> Tensor:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        try:
            return functional.linear(x, weight)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    return run
