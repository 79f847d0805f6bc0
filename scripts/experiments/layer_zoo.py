"""Trains two layers of many kinds in a plain loop, in floats and as binarize() makes them.

Kept are test accuracies, the share of the weights that is binary or in 8 bits, and whether the
frozen model equals the trained one on every node. Finished runs are not done again.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from kept_runs import run_and_keep, study_parser
from plain_loop import DROPOUT, EPOCHS, HIDDEN, LEARNING_RATE, held
from torch import nn
from torch.nn import functional
from torch_geometric import nn as pyg

import bitgnn

GRAPHS = (
    "Cora", "CiteSeer", "PubMed", "Cora 60/20/20", "CiteSeer 60/20/20", "Cora_ML", "Photo",
    "Minesweeper",
)  # fmt: skip
SEEDS, WEIGHT_DECAY = 3, 5e-4
HEADS = 8


def mlp(inputs: int, outputs: int) -> nn.Module:
    """An MLP of two maps, as GIN has it."""
    return pyg.MLP([inputs, HIDDEN, outputs], dropout=0.0)


def attention(kind: Any, inputs: int, outputs: int) -> nn.Module:
    """Eight heads side by side; one where they would not divide the class scores."""
    heads = HEADS if outputs == HIDDEN else 1
    made: nn.Module = kind(inputs, outputs // heads, heads=heads)
    return made


def with_head(inputs: int, outputs: int) -> nn.Module:
    """A GCN layer and an MLP behind it, the last one of which is the head."""
    parts = [
        (pyg.GCNConv(inputs, HIDDEN), "x, e -> x"),
        nn.ReLU(),
        (mlp(HIDDEN, outputs), "x -> x"),
    ]
    made: nn.Module = pyg.Sequential("x, e", parts)
    return made


LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "GCNConv": pyg.GCNConv,
    "GATConv": lambda a, b: attention(pyg.GATConv, a, b),
    "GATv2Conv": lambda a, b: attention(pyg.GATv2Conv, a, b),
    "GCNConv, MLP": with_head,
    "GINConv": lambda a, b: pyg.GINConv(mlp(a, b), train_eps=True),
    "EdgeConv": lambda a, b: pyg.EdgeConv(mlp(2 * a, b)),
    "SGConv": lambda a, b: pyg.SGConv(a, b, K=2),
    "SSGConv": lambda a, b: pyg.SSGConv(a, b, alpha=0.1, K=2),
    "TAGConv": lambda a, b: pyg.TAGConv(a, b, K=2),
    "ChebConv": lambda a, b: pyg.ChebConv(a, b, K=2),
    "LEConv": pyg.LEConv,
    "ClusterGCNConv": pyg.ClusterGCNConv,
    "ResGatedGraphConv": pyg.ResGatedGraphConv,
    "TransformerConv": pyg.TransformerConv,
    "MFConv": pyg.MFConv,
    "FiLMConv": pyg.FiLMConv,
    "GENConv": pyg.GENConv,
    "GeneralConv": pyg.GeneralConv,
    "APPNP": lambda a, b: pyg.Sequential(
        "x, e", [(mlp(a, b), "x -> x"), (pyg.APPNP(10, 0.1), "x, e -> x")]
    ),
    "MLP": lambda a, b: pyg.Sequential(
        "x, e", [(mlp(a, HIDDEN), "x -> x"), (pyg.GCNConv(HIDDEN, b), "x, e -> x")]
    ),
}


class Net(nn.Module):
    """Two layers with ReLU and dropout."""

    def __init__(self, layer: str, inputs: int, classes: int) -> None:
        super().__init__()
        make = LAYERS[layer]
        self.first, self.last = make(inputs, HIDDEN), make(HIDDEN, classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Scores of every node."""
        x = functional.dropout(x, p=DROPOUT, training=self.training)
        x = functional.relu(self.first(x, edge_index))
        x = functional.dropout(x, p=DROPOUT, training=self.training)
        scores: torch.Tensor = self.last(x, edge_index)
        return scores


def cases(arguments: Any) -> Iterator[dict[str, Any]]:
    """Trainings to run; cases of one graph are adjacent."""
    for graph in arguments.graphs:
        for layer in arguments.layers:
            for seed in range(arguments.seeds):
                yield {
                    "graph": graph, "layer": layer, "seed": seed, "epochs": arguments.epochs,
                }  # fmt: skip


def run(job: tuple[dict[str, Any], str | None, str]) -> dict[str, Any]:
    """Train one kind of layer in floats and binary."""
    case, root, device = job
    torch.set_num_threads(1)
    start, graph = time.perf_counter(), held(case["graph"], root, device)
    x, edges, y = graph["x"].float(), graph["edges"], graph["y"]
    found: dict[str, Any] = {}
    for form in ("fp32", "bin"):
        torch.manual_seed(case["seed"])
        model: Any = Net(case["layer"], x.size(1), int(y.max()) + 1).to(device)
        model = bitgnn.binarize(model) if form == "bin" else model
        found[form] = _trained(model, x, edges, y, graph, case["epochs"])
    share = bitgnn.report_of(model).float_share
    with torch.no_grad():
        expected = model.eval()(x, edges).argmax(1)
    frozen = bitgnn.freeze(model)
    found["differing_nodes"] = int((frozen(x, edges).argmax(1) != expected).sum())
    seconds = time.perf_counter() - start
    return {**case, **found, "bits": 100 * (1 - (share or 0.0)), "seconds": seconds}


def _trained(
    model: nn.Module, x: Any, edges: Any, y: Any, graph: dict[str, Any], epochs: int
) -> float:
    """Test accuracy in the epoch of the best validation accuracy."""
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    best = (-1.0, 0.0)
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        scores = model(x, edges)[graph["train"]]
        functional.cross_entropy(scores, y[graph["train"]]).backward()
        optimizer.step()
        with torch.no_grad():
            right = (model.eval()(x, edges).argmax(1) == y).float()
        accuracies = tuple(100 * float(right[graph[part]].mean()) for part in ("val", "test"))
        best = max(best, accuracies, key=lambda pair: pair[0])
    return best[1]


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means by layer over graphs and seeds."""
    rows = []
    for layer in dict.fromkeys(run["layer"] for run in runs):
        own = [run for run in runs if run["layer"] == layer]
        means = {name: statistics.mean(run[name] for run in own) for name in ("fp32", "bin")}
        differing = sum(run["differing_nodes"] for run in own)
        bits = statistics.mean(run["bits"] for run in own)
        gaps: dict[str, float] = {}
        for graph in dict.fromkeys(run["graph"] for run in own):
            same = [run for run in own if run["graph"] == graph]
            gaps[graph] = statistics.mean(run["fp32"] - run["bin"] for run in same)
        worst = max(gaps, key=lambda name: gaps[name])
        rows.append({
            "layer": layer, **means, "bits": bits, "differing_nodes": differing,
            "mean_gap": statistics.mean(gaps.values()), "worst_graph": worst,
            "worst_gap": gaps[worst], "gaps": gaps,
        })  # fmt: skip
    return rows


def main() -> int:
    """Entry point."""
    parser = study_parser(__doc__, "layer_zoo.json", GRAPHS)
    parser.add_argument("--layers", nargs="+", default=list(LAYERS), choices=LAYERS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    return run_and_keep(
        cases(arguments), run, summary, arguments.output, arguments.data, arguments.device,
        arguments.workers,
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
