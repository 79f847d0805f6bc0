"""Trains tutorial models with swapped layers in a plain loop: how far binary ones fall behind fp32.

One default for all graphs: the loop, its learning rate, epochs, dropout and weight decay are those
of the fp32 model. Forms "papers-fp32", "papers-full" and "papers-bin" are the papers' networks
(``bitgnn.models``) by their own recipe. Finished runs are kept in OUTPUT.jsonl and not done again.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
import torch_geometric.nn
from kept_runs import mean_tests, run_and_keep, study_parser
from torch import nn
from torch.nn import functional
from torch_geometric.utils import stochastic_blockmodel_graph

import bitgnn
from bitgnn.data import load

GRAPHS = (
    "Cora", "CiteSeer", "PubMed", "Cora 60/20/20", "CiteSeer 60/20/20", "Cora_ML", "Photo", "CS",
    "Cornell5", "Minesweeper", "Tolokers", "Flickr, made-up features", "block model, 5 classes",
    "block model, 20 classes", "Cora 60/20/20, dense 128", "CiteSeer 60/20/20, dense 128",
    "PubMed, dense 128", "Cora_ML, dense 128", "Photo, dense 128", "CS, dense 128",
    "Cornell5, dense 128", "Cora_ML, dense 8", "Photo, dense 4", "Cornell5, dense 1",
)  # fmt: skip
EPOCHS, LEARNING_RATE, DROPOUT, HIDDEN = 200, 0.01, 0.5, 64
PAPERS = "papers-"
RECIPES = {
    "GCNConv": {"model": "GCN", "learning_rate": 1e-3, "epochs": 1000, "dropout": 0.4},
    "SAGEConv": {"model": "GraphSAGE", "learning_rate": 1e-2, "epochs": 200, "dropout": 0.5},
}
"""Bi-GCN's recipes by layer: of GCN on whole graphs, and of GraphSAGE, which it trains on batches;
here the whole graph is one, and epochs are those of the plain loop. The loss chooses the epoch."""
DENSE = ", dense "
"""Mark in a graph's name before a number of dense features, projections of its own."""
SHARES = (0.6, 0.2)
BLOCK_NODES, BLOCK_FEATURES, BLOCK_DEGREE = 6000, 64, 12.0


class Tutorial(nn.Module):
    """PyG's tutorial GCN, of any depth and layer: functional ReLU and dropout between layers."""

    def __init__(self, layer: str, sizes: list[int]) -> None:
        super().__init__()
        kind = getattr(torch_geometric.nn, layer)
        # PyG keeps the normalised graph, so that both forms train fast on one graph.
        options = {"cached": True} if layer == "GCNConv" else {}
        self.convs = nn.ModuleList(kind(a, b, **options) for a, b in pairwise(sizes))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Scores of every node."""
        for number, conv in enumerate(self.convs):
            if number > 0:
                x = functional.relu(x)
            x = functional.dropout(x, p=DROPOUT, training=self.training)
            x = conv(x, edge_index)
        return x


def block_model(classes: int) -> Any:
    """Blocks as classes, half of the edges inside of them, and weak dense features."""
    generator = torch.Generator().manual_seed(classes)
    sizes = torch.full((classes,), BLOCK_NODES // classes)
    inside = 0.5 * BLOCK_DEGREE / (BLOCK_NODES / classes)
    across = 0.5 * BLOCK_DEGREE / (BLOCK_NODES * (1 - 1 / classes))
    chances = torch.full((classes, classes), across).fill_diagonal_(inside)
    torch.manual_seed(classes)
    edges = stochastic_blockmodel_graph(sizes, chances)
    y = torch.arange(classes).repeat_interleave(BLOCK_NODES // classes)
    centres = 0.13 * torch.randn(classes, BLOCK_FEATURES, generator=generator)
    x = centres[y] + torch.randn(y.numel(), BLOCK_FEATURES, generator=generator)
    return x, edges, y


def projected(x: torch.Tensor, size: int) -> torch.Tensor:
    """Principal components of features, as embeddings of texts and items are dense."""
    torch.manual_seed(size)
    left, values, _ = torch.svd_lowrank(x.float(), size, niter=4)
    return left * values


def read(name: str, root: str | None) -> dict[str, torch.Tensor]:
    """Features, edges, labels and masks of a graph."""
    masks = None
    name, _, dense = name.partition(DENSE)
    if name.startswith("block model"):
        x, edges, y = block_model(int(name.split()[2]))
    else:
        made_up = name.startswith("Flickr")
        title = name.split()[0].rstrip(",")
        data = load(title, root, features="synthetic" if made_up else None)
        x, edges, y = data.x, data.edge_index, data.y
        public = title in ("Cora", "CiteSeer", "PubMed", "Minesweeper", "Tolokers") or made_up
        if public and "60/20/20" not in name:
            masks = data.train_mask, data.val_mask, data.test_mask
    if masks is None:
        labelled = (y >= 0).nonzero().view(-1)
        order = labelled[
            torch.randperm(labelled.numel(), generator=torch.Generator().manual_seed(0))
        ]
        first, second = (int(sum(SHARES[:k]) * order.numel()) for k in (1, 2))
        masks = tuple(torch.zeros_like(y, dtype=torch.bool) for _ in range(3))
        parts = order[:first], order[first:second], order[second:]
        for mask, nodes in zip(masks, parts, strict=True):
            mask[nodes] = True
    if dense:
        x = projected(x, int(dense))
    names = ("train", "val", "test")
    return {"x": x, "edges": edges, "y": y, **dict(zip(names, masks, strict=True))}


def fit(
    model: nn.Module,
    graph: dict[str, torch.Tensor],
    decay: float,
    epochs: int,
    step_loss: Callable[[], torch.Tensor],
    scores: Callable[[], torch.Tensor],
    learning_rate: float = LEARNING_RATE,
    by_loss: bool = False,
) -> tuple[float, float]:
    """The tutorial's loop: validation and test accuracy where validation is best, in per cent.

    That is where accuracy is highest, or with ``by_loss`` where the loss is lowest. The model is
    left in that state.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, weight_decay=decay)
    best, found, state = -math.inf, (0.0, 0.0), model.state_dict()
    val, test = graph["val"], graph["test"]
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        step_loss().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            out = scores()
            right = out.argmax(1) == graph["y"]
            loss = functional.cross_entropy(out[val], graph["y"][val]) if by_loss else None
        accuracy = float(right[val].float().mean())
        reached = accuracy if loss is None else -float(loss)
        if reached > best:
            best, found = reached, (accuracy, float(right[test].float().mean()))
            state = copy.deepcopy(model.state_dict())
    model.load_state_dict(state)
    return 100 * found[0], 100 * found[1]


def train(model: nn.Module, graph: dict[str, torch.Tensor], case: dict[str, Any]) -> dict[str, Any]:
    """Accuracies and time of the loop, and how the frozen model compares."""
    x, edges, y, nodes = (graph[name] for name in ("x", "edges", "y", "train"))
    by: dict[str, Any] = {"epochs": EPOCHS}
    if case["form"].startswith(PAPERS):
        recipe = RECIPES[case["layer"]]
        by = {name: recipe[name] for name in ("epochs", "learning_rate")} | {"by_loss": True}
    start = time.perf_counter()
    best, test = fit(
        model, graph, case["weight_decay"],
        step_loss=lambda: functional.cross_entropy(model(x, edges)[nodes], y[nodes]),
        scores=lambda: model(x, edges), **by,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    found: dict[str, Any] = {"test": test, "val": best, "seconds": seconds}
    if not case["form"].endswith("fp32"):
        with torch.no_grad():
            classes = model(x, edges).argmax(1)
        frozen = bitgnn.freeze(model)(x, edges).argmax(1)
        found["differing_nodes"] = int((frozen != classes).sum())
    return found


def cases(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every run, those that others are compared with first."""
    for plan in arguments.plans:
        layer, layers, decay, seeds, *forms = plan.split(":")
        for name in arguments.graphs:
            for form in forms:
                for seed in range(int(seeds)):
                    yield {
                        "graph": name, "layer": layer, "layers": int(layers), "form": form,
                        "weight_decay": float(decay), "seed": seed,
                    }  # fmt: skip


@lru_cache(maxsize=1)
def held(name: str, root: str | None, device: str) -> dict[str, torch.Tensor]:
    """The last graph asked for, on a device: a worker holds one at a time."""
    return {key: value.to(device) for key, value in read(name, root).items()}


def untrained(case: dict[str, Any], graph: dict[str, torch.Tensor]) -> nn.Module:
    """The model of a case, on its graph's device."""
    torch.manual_seed(case["seed"])
    classes = int(graph["y"].max()) + 1
    sizes = [graph["x"].size(1), *[HIDDEN] * (case["layers"] - 1), classes]
    if case["form"].startswith(PAPERS):
        recipe = RECIPES[case["layer"]]
        model = getattr(bitgnn.models, recipe["model"])(
            *sizes, precision=case["form"].removeprefix(PAPERS), dropout=recipe["dropout"]
        )
        return model.to(graph["x"].device)
    model: nn.Module = Tutorial(case["layer"], sizes)
    if case["form"] != "fp32":
        model = bitgnn.binarize(model, case["form"])
    return model.to(graph["x"].device)


def run(job: tuple[dict[str, Any], str | None, str]) -> dict[str, Any]:
    """One training."""
    case, root, device = job
    torch.set_num_threads(1)
    graph = held(case["graph"], root, device)
    model = untrained(case, graph)
    try:
        return {**case, **train(model, graph, case)}
    except torch.OutOfMemoryError:  # PyG's messages of every edge in floats
        return {**case, "failed": "out of memory"}
    finally:
        del model
        if device == "cuda":  # other workers need what this one has done with
            torch.cuda.empty_cache()


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean gap to fp32 of each model and form, over graphs, and the worst graph."""
    names = ("layer", "layers", "weight_decay", "form")
    means = mean_tests((run for run in runs if "failed" not in run), names)
    rows = []
    for key, graphs in means.items():
        reference = means.get((*key[:-1], "fp32"), {})
        gaps = {n: reference[n] - mean for n, mean in graphs.items() if n in reference}
        if key[-1] != "fp32" and gaps:
            worst = max(gaps, key=lambda name: gaps[name])
            rows.append({
                **dict(zip(names, key, strict=True)), "graphs": len(gaps),
                "mean_gap": statistics.mean(gaps.values()), "worst_graph": worst,
                "worst_gap": gaps[worst], "gaps": gaps,
            })  # fmt: skip
    return rows


def main() -> int:
    """Entry point."""
    parser = study_parser(__doc__, "plain_loop.json", GRAPHS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--plans",
        nargs="+",
        default=["GCNConv:2:5e-4:5:fp32:bin:full"],
        help="LAYER:LAYERS:WEIGHT_DECAY:SEEDS:FORM... (default: %(default)s)",
    )
    arguments = parser.parse_args()
    return run_and_keep(
        cases(arguments), run, summary, arguments.output, arguments.data, arguments.device,
        arguments.workers,
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
