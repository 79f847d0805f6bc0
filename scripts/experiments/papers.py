"""Distils the rows of the BitGNN paper's tables 4 and 5, one a file of ``configs/``.

One teacher a configuration and seed, and a student for each form (``bin``, ``full``, ``bin:2``: a
precision and what hidden channels are multiplied by). Keys of a configuration: ``data`` and
``features`` as ``bitgnn.data.load`` takes them, ``model``, ``hidden`` and ``layers`` as ``bitgnn
distill`` takes them, ``loader`` (``neighbor`` or ``saint_rw``), ``seeds`` and ``forms``. Files
elsewhere go by their path. Finished runs are kept in OUTPUT.jsonl, teachers, students and
checkpoints of others in OUTPUT.parts; none is done again.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import yaml
from distilled import arguments_of
from kept_runs import Run, study_parser
from kept_students import add_student_options, run_students, students_of
from torch_geometric.data import Data
from torch_geometric.loader import GraphSAINTRandomWalkSampler
from torch_geometric.utils import to_torch_csr_tensor

from bitgnn.data import NeighborLoader, load
from bitgnn.distillation.named import NamedModel
from bitgnn.distillation.result import Distilled

CONFIGS = Path(__file__).with_name("configs")
DEFAULTS: dict[str, Any] = {
    "features": None, "model": "gcn", "hidden": None, "layers": None, "loader": None, "seeds": 5,
    "forms": ["full", "bin"],
}  # fmt: skip


def read_config(name: str) -> dict[str, Any]:
    """A configuration of ``configs/`` by name, or another file by path, with the defaults."""
    file = Path(name) if Path(name).suffix else CONFIGS / f"{name}.yaml"
    found = yaml.safe_load(file.read_text())
    unknown = set(found) - {"data", *DEFAULTS}
    if unknown or "data" not in found:
        raise SystemExit(f"{file}: expected data and {list(DEFAULTS)}, got {list(found)}")
    return {**DEFAULTS, **found}


def batches(data: Data, kind: str, **sizes: Any) -> Iterable[Any]:
    """Batches of an epoch, sampled on the CPU with torch's default generator."""
    if kind == "neighbor":
        return NeighborLoader(data, input_nodes=data.train_mask, shuffle=True, **sizes)
    numbered = copy.copy(data)
    numbered.n_id = torch.arange(data.x.size(0))  # of the teacher's scores of the whole graph
    return GraphSAINTRandomWalkSampler(numbered, sample_coverage=0, log=False, **sizes)


def sparse(data: Data) -> Data:
    """The graph with its edges as a sparse matrix, whose products need no memory for messages.

    Validation sees the whole graph, which may be far larger than what steps see.
    """
    found, size = copy.copy(data), (data.x.size(0), data.x.size(0))
    # Rows are destinations.
    found.edge_index = to_torch_csr_tensor(data.edge_index.flip(0), size=size)
    return found


def run(job: tuple[Run, str | None, str], folder: Path) -> Run:
    """One teacher and its students."""
    case, root, device = job
    warnings.simplefilter("ignore")
    config = read_config(case["config"])
    data = load(config["data"], root, features=config["features"])
    named = NamedModel(config["model"], config["hidden"], config["layers"])
    model = named.make(data, case["seed"], torch.device(device))
    loader, whole = None, data
    if config["loader"] is not None:
        loader, whole = batches(data, **config["loader"]), sparse(data)

    def judge(result: Distilled) -> dict[str, Any]:
        graph: Any = result.example
        with torch.no_grad():
            classes = result.model(graph.x, graph.edge_index).argmax(1)
        frozen = result.frozen(graph.x, graph.edge_index).argmax(1)
        costs = {name: vars(cost) for name, cost in result.costs().items()}
        return {
            "test": result.scores.test, "teacher_test": result.teacher_scores.test, "costs": costs,
            "differing_nodes": int((frozen != classes).sum()),
        }  # fmt: skip

    return students_of(
        case, folder, model, whole, lambda form: {**arguments_of(form), "loader": loader}, judge
    )


def cases(arguments: argparse.Namespace) -> Iterator[Run]:
    """Every run, one seed of all configurations first."""
    configs = {name: read_config(name) for name in arguments.configs}
    seeds = {name: arguments.seeds or config["seeds"] for name, config in configs.items()}
    for seed in range(max(seeds.values())):
        for name, config in configs.items():
            if seed < seeds[name]:
                forms = arguments.forms or config["forms"]
                yield {"config": name, "seed": seed, "forms": list(forms)}


def summary(runs: list[Run]) -> list[Run]:
    """Mean and deviation of the test accuracy of each configuration's teachers and students."""
    scores: dict[tuple[str, str], list[float]] = {}
    for result in runs:
        for form, student in result["students"].items():
            scores.setdefault((result["config"], form), []).append(100 * student["test"])
        teacher = 100 * next(iter(result["students"].values()))["teacher_test"]
        scores.setdefault((result["config"], "fp32"), []).append(teacher)
    return [
        {"config": config, "form": form, "seeds": len(own), "test": statistics.mean(own),
         "std": statistics.stdev(own) if len(own) > 1 else None}
        for (config, form), own in scores.items()
    ]  # fmt: skip


def main() -> int:
    """Entry point."""
    parser = study_parser(__doc__, "papers.json")
    names = sorted(file.stem for file in CONFIGS.glob("*.yaml"))
    parser.add_argument("--configs", nargs="+", default=names, help="names or paths of YAML files")
    add_student_options(parser, (), seeds=0)
    arguments = parser.parse_args()
    return run_students(cases(arguments), run, summary, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
