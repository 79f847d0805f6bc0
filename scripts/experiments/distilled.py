"""Distils models on all graphs by one recipe: how far binary ones are from their float teachers.

One teacher a graph, model and seed, and a student for each form; a form is a precision ("T": "bin"
with ternary hidden values), and after a colon what its hidden channels are multiplied by
(``bin:2``); further fields of the recipe follow (``bin:1:sharpen=1:smooth=False``). ``--study``
runs the forms that tell why the recipe is as it is. Finished runs are kept in OUTPUT.jsonl,
teachers, students and checkpoints of others in OUTPUT.parts; none is done again.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch_geometric.nn as pyg
from kept_runs import study_parser
from kept_students import add_student_options, run_students, students_of
from plain_loop import DROPOUT, GRAPHS, HIDDEN, Tutorial, read
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit

import bitgnn
from bitgnn.convert import Plan
from bitgnn.convert.swap.graphs import own_letters
from bitgnn.distillation.result import Distilled

LINK_GRAPHS = ("Cora", "CiteSeer", "PubMed")
LINK_SHARES = {"num_val": 0.05, "num_test": 0.1}
EMBEDDING = 16
FORMS = ("bin", "full", "T", "bin:2")
STUDY = (
    "bin", "bin:1:teacher_weight=0", "bin:1:teacher_weight=0.6", "bin:1:teacher_weight=1",
    "bin:1:dropout=0", "bin:1:dropout=1", "bin:1:sharpen=1", "bin:1:smooth=False",
    "bin:1:schedule=constant", "bin:1:learning_rate=0.005", "bin:1:learning_rate=0.02",
    "bin:1:weight_decay=0.0005", "bin:1:epochs=400", "full", "T", "bin:2",
)  # fmt: skip
"""The recipe, then it with one field changed, then other precisions and widths."""


class Own(nn.Module):
    """A user's own class: GraphConv, a skip connection, LayerNorm, a linear layer at the end."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.conv1 = pyg.GraphConv(features, HIDDEN)
        self.norm1 = nn.LayerNorm(HIDDEN)
        self.conv2 = pyg.GraphConv(HIDDEN, HIDDEN)
        self.norm2 = nn.LayerNorm(HIDDEN)
        self.out = nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Scores of every node."""
        x = functional.relu(self.norm1(self.conv1(x, edge_index)))
        x = functional.dropout(x, DROPOUT, self.training)
        x = x + functional.relu(self.norm2(self.conv2(x, edge_index)))
        x = functional.dropout(x, DROPOUT, self.training)
        return self.out(x)


def problem(case: dict[str, Any], root: str | None, device: str) -> tuple[nn.Module, Data, Any]:
    """An untrained model, its graph, and the validation data of distill()."""
    graph = read(case["graph"], root)
    seed_everything(case["seed"])  # pairs of links are drawn by NumPy, too
    features, classes = graph["x"].size(1), int(graph["y"].max()) + 1
    if case["model"] == "GAE":
        whole = Data(x=graph["x"], edge_index=graph["edges"])
        split = RandomLinkSplit(**LINK_SHARES, is_undirected=True)
        data, validation, _ = split(whole)
        model: nn.Module = pyg.GAE(pyg.GCN(features, HIDDEN, 2, EMBEDDING, cached=True))
        return model.to(device), data.to(device), validation.to(device)
    data = Data(graph["x"], graph["edges"], y=graph["y"])
    for name in ("train", "val", "test"):
        data[f"{name}_mask"] = graph[name]
    sizes = [features, HIDDEN, classes]
    model = Own(features, classes) if case["model"] == "Own" else Tutorial(case["model"], sizes)
    return model.to(device), data.to(device), None


def arguments_of(form: str) -> dict[str, Any]:
    """Arguments of :func:`bitgnn.distill` for a form."""
    precision, *more = form.split(":")
    factor = float(more[0]) if more else 1.0
    recipe = dict(field.split("=") for field in more[1:])
    return {"precision": precision, "widen": None if factor == 1 else factor, "recipe": recipe}


def ternary_plan(model: nn.Module, data: Data) -> Plan:
    """The ``"bin"`` form with ternary values for the signs of its hidden channels."""
    binary = bitgnn.binarize(model, "bin", example=(data.x, data.edge_index))
    letters = {}
    for place, (name, own) in enumerate(own_letters(binary).items()):
        product, _, total = own.partition("+")
        if total[0] == "B":
            product, total = product[:2] + "F", "T" + total[1:]
        letters[name] = f"{'T' if place else product[0]}{product[1:]}+{total}"
    return Plan(letters)


def run(job: tuple[dict[str, Any], str | None, str], folder: Path) -> dict[str, Any]:
    """One teacher and its students."""
    case, root, device = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    model, data, validation = problem(case, root, device)

    def options(form: str) -> dict[str, Any]:
        known = {**arguments_of(form), "validation": validation}
        if known["precision"] == "T":
            known["precision"] = ternary_plan(model, data)
        return known

    def judge(result: Distilled) -> dict[str, Any]:
        found: dict[str, Any] = {
            "test": result.scores.test, "teacher_test": result.teacher_scores.test,
            "smoothing": result.smoothing,
        }  # fmt: skip
        if case["model"] != "GAE":
            with torch.no_grad():
                classes = result.model(data.x, data.edge_index).argmax(1)
            frozen = bitgnn.freeze(result.model, check=False)(data.x, data.edge_index).argmax(1)
            found["differing_nodes"] = int((frozen != classes).sum())
        return found

    found = students_of(case, folder, model, data, options, judge)
    if device == "cuda":  # other workers need what this one has done with
        del model, data
        torch.cuda.empty_cache()
    return found


def cases(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every run; one seed of all graphs and models first."""
    forms = list(STUDY if arguments.study else arguments.forms)
    for seed, model in product(range(arguments.seeds), arguments.models):
        for name in LINK_GRAPHS if model == "GAE" else arguments.graphs:
            if name in arguments.graphs:
                yield {"graph": name, "model": model, "seed": seed, "forms": forms}


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean gap of each model and form over graphs, the worst graph, and the cost."""
    rows = []
    for model, form in dict.fromkeys((r["model"], f) for r in runs for f in r["students"]):
        mine = [r for r in runs if r["model"] == model and form in r["students"]]
        by: dict[str, list[float]] = {}
        for result in mine:
            by.setdefault(result["graph"], []).append(result["students"][form]["gap"])
        gaps = {name: statistics.mean(values) for name, values in by.items()}
        worst = max(gaps, key=lambda name: gaps[name])
        cost = [
            r["students"][form]["seconds"] / r["teacher_seconds"]
            for r in mine
            if "teacher_seconds" in r
        ]
        rows.append({
            "model": model, "form": form, "graphs": len(gaps), "runs": len(mine),
            "mean_gap": statistics.mean(gaps.values()), "worst_graph": worst,
            "worst_gap": gaps[worst], "cost": statistics.median(cost) if cost else None,
            "gaps": gaps,
        })  # fmt: skip
    return rows


def main() -> int:
    """Entry point."""
    parser = study_parser(__doc__, "distilled.json", GRAPHS)
    models = ["GCNConv", "SAGEConv", "Own", "GAE"]
    parser.add_argument("--models", nargs="+", default=models, choices=models)
    add_student_options(parser, FORMS, seeds=5)
    parser.add_argument("--study", action="store_true", help="forms that differ in one field")
    arguments = parser.parse_args()
    return run_students(cases(arguments), run, summary, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
