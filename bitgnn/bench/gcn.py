"""The network benchmark: frozen binary GCNs against PyG's GCN, whole forward, time and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn.bench.cases import Case, Skipped
from bitgnn.bench.memory import peak_allocation, stored_bytes
from bitgnn.bench.pyg import PyGGCN, graph_forms
from bitgnn.bits import BitAdjacency
from bitgnn.convert import freeze
from bitgnn.data import DataError, load_planetoid
from bitgnn.inference import FrozenModel
from bitgnn.models import GCN

SEED = 0
HIDDEN = 64
# What is aimed at for the "bin" form on Cora.
PLANETOID = ("Cora", "CiteSeer", "PubMed")
GOAL_GRAPH = "Cora"
GOALS = {"fp32": 8.0, "packed": 20.0}
GOAL_MEMORY = 18.0


@dataclass(frozen=True)
class NodeTask:
    """A graph with node features, as the benchmark needs it.

    Attributes:
        name: Shown in tables.
        x: float32 ``[N, K]``.
        edge_index: int64 ``[2, E]``.
        num_classes: Width of the output.
    """

    name: str
    x: Tensor
    edge_index: Tensor
    num_classes: int


def synthetic_task(nodes: int = 300, edges: int = 1500, features: int = 100) -> NodeTask:
    """A small random task, only to see that the benchmark runs."""
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(nodes, features, generator=generator)
    # Distinct edges without loops: PyG's CSR form treats duplicates and loops differently.
    source, destination = torch.randint(nodes, (2, edges), generator=generator).unique(dim=1)
    edge_index = torch.stack([source, destination])[:, source != destination]
    return NodeTask(f"synthetic ({nodes} nodes)", x, edge_index, 7)


def planetoid_tasks(
    data_root: Path | None, names: Iterable[str] = PLANETOID
) -> tuple[list[NodeTask], list[Skipped]]:
    """Cora, CiteSeer and PubMed or some of them, see :func:`bitgnn.data.load_planetoid`.

    Returns:
        The graphs that could be read, and for each other one the reason.
    """
    tasks: list[NodeTask] = []
    skipped: list[Skipped] = []
    for name in names:
        try:
            data = load_planetoid(name, data_root)
        except DataError as error:
            skipped.append(Skipped("GCN", name, str(error)))
        else:
            tasks.append(NodeTask(name, data.x, data.edge_index, int(data.y.max()) + 1))
    return tasks, skipped


def baselines(task: NodeTask) -> dict[str, Callable[[], Tensor]]:
    """PyG's forward for every form of the graph that is installed, caches already filled."""
    return {name: partial(_run, *parts) for name, parts in _baseline_parts(task).items()}


def _baseline_parts(task: NodeTask) -> dict[str, tuple[nn.Module, Tensor, Any]]:
    found: dict[str, tuple[nn.Module, Tensor, Any]] = {}
    for name, graph in graph_forms(task.edge_index, task.x.size(0)).items():
        torch.manual_seed(SEED)
        model = PyGGCN([task.x.size(1), HIDDEN, task.num_classes])
        _run(model, task.x, graph)
        found[f"PyG {name}"] = (model, task.x, graph)
    return found


@torch.inference_mode()
def _run(model: nn.Module, x: Any, graph: Any) -> Tensor:
    scores: Tensor = model(x, graph)
    return scores


@dataclass(frozen=True)
class Frozen:
    """A frozen network with its prepared inputs and the network it was frozen from."""

    model: FrozenModel
    emulated: GCN
    graph: Any
    inputs: dict[str, Any]


def frozen(task: NodeTask, precision: str) -> Frozen:
    """A binary GCN with random weights and the task's own input statistics, frozen."""
    torch.manual_seed(SEED)
    model = GCN(task.x.size(1), HIDDEN, task.num_classes, precision=precision)
    # One pass with a cumulative average makes the running statistics those of the data.
    if model.norm is not None:
        model.norm.momentum = None
    with torch.no_grad():
        model(task.x, task.edge_index)
    model.eval()
    packed = freeze(model)
    graph = packed.prepare_graph(task.edge_index, task.x.size(0))
    inputs = {"fp32": task.x, "packed": packed.pack_features(task.x)}
    if isinstance(inputs["packed"], BitAdjacency):  # the set bits alone; show the words as well
        inputs["dense packed"] = packed.pack_features(task.x, layout="dense")
    return Frozen(packed, model, graph, inputs)


def _agrees(network: Frozen, task: NodeTask, x: Any) -> bool:
    """Whether frozen and emulated scores differ by float rounding at most."""
    expected = _run(network.emulated, task.x, task.edge_index)
    return torch.allclose(network.model(x, network.graph), expected, rtol=1e-4, atol=1e-4)


def cases(tasks: Iterable[NodeTask], cold: bool) -> Iterator[Case]:
    """Every precision and form of input against every form of PyG's GCN.

    Args:
        tasks: Graphs to run on.
        cold: Named in the cases; goals are for warm caches.
    """
    caches = "cold caches" if cold else "warm caches"
    for task in tasks:
        pyg = baselines(task)
        for precision in ("bin", "full"):
            network = frozen(task, precision)
            for kind, x in network.inputs.items():
                wanted = task.name == GOAL_GRAPH and precision == "bin" and not cold
                yield Case(
                    "GCN",
                    f"{task.name}, {precision}, {kind} features, {caches}",
                    partial(network.model, x, network.graph),
                    pyg,
                    target=GOALS.get(kind) if wanted else None,
                    check=partial(_agrees, network, task, x),
                    details={"nodes": task.x.size(0), "edges": task.edge_index.size(1)},
                )


def memory(tasks: Iterable[NodeTask]) -> list[dict[str, Any]]:
    """Bytes that one forward needs: weights, normalised graph, features, and the peak on top.

    PyG's smallest form is the baseline; its unnormalised graph is not counted, since the cached
    one could replace it.
    """
    entries = []
    for task in tasks:
        forms = {
            name: _bytes((model, x), partial(_run, model, x, graph))
            for name, (model, x, graph) in _baseline_parts(task).items()
        }
        best = min(forms, key=lambda name: forms[name]["total"])
        for precision in ("bin", "full"):
            network = frozen(task, precision)
            for kind, x in network.inputs.items():
                ours = _bytes(
                    (network.model, network.graph, x), partial(network.model, x, network.graph)
                )
                wanted = (task.name, precision, kind) == (GOAL_GRAPH, "bin", "packed")
                entries.append(
                    {
                        "name": f"{task.name}, {precision}, {kind} features",
                        "target": GOAL_MEMORY if wanted else None,
                        "ours": ours["total"],
                        "baseline": forms[best]["total"],
                        "best_baseline": best,
                        "ours_parts": ours,
                        "baselines_parts": forms,
                    }
                )
    return entries


def _bytes(kept: tuple[Any, ...], forward: Callable[[], Any]) -> dict[str, int]:
    forward()
    stored, peak = stored_bytes(*kept), peak_allocation(forward)
    return {"stored": stored, "peak_allocation": peak, "total": stored + peak}
