"""Trains binary GCNs as members of ensembles: test accuracy by number of members, against fp32.

The loop is that of ``plain_loop.py`` with fewer epochs and channels. Forms: "fp32" and "bin", one
model; "wide", one binary model with three times the hidden channels; "seeds-N-VOTING", N members of
other seeds on all labels; "bagging-N-VOTING", on labels drawn anew; "boosting-N", SAMME. Runs that
are finished are kept in OUTPUT.jsonl and not done again.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
from kept_runs import run_and_keep, study_parser
from plain_loop import Tutorial, fit, held
from torch import nn
from torch.nn import functional

import bitgnn
from bitgnn.models import Ensemble, fit_bagging, fit_boosting

GRAPHS = ("Cora", "Photo, dense 128", "PubMed, dense 128")
SEEDS, EPOCHS, HIDDEN, WEIGHT_DECAY = 3, 50, 16, 5e-4
COUNTS = (1, 3, 5)
RESAMPLED = 3
"""Members of bagging and boosting."""
WIDE = 3
"""Multiple of the hidden channels in one model, about the bytes of as many members."""
APART = 1000
"""Between seeds of runs, so that no member is in two of them."""


def cases(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One for each graph and seed."""
    for seed in range(arguments.seeds):
        for graph in arguments.graphs:
            yield {"graph": graph, "seed": seed}


def run(job: tuple[dict[str, Any], str | None, str]) -> dict[str, Any]:
    """Test accuracies of all forms in per cent, and how frozen ensembles compare."""
    case, root, device = job
    torch.set_num_threads(1)
    graph = held(case["graph"], root, device)
    x, edges, y = graph["x"], graph["edges"], graph["y"]
    nodes = graph["train"].nonzero().view(-1)
    classes, seed = int(y.max()) + 1, APART * case["seed"]
    start = time.perf_counter()

    def made(form: str = "bin", hidden: int = HIDDEN) -> nn.Module:
        model: nn.Module = Tutorial("GCNConv", [x.size(1), hidden, classes])
        return (model if form == "fp32" else bitgnn.binarize(model, form)).to(device)

    def trained(model: nn.Module, sample_weight: torch.Tensor) -> nn.Module:
        weight = sample_weight.to(device)

        def step_loss() -> torch.Tensor:
            losses = functional.cross_entropy(model(x, edges)[nodes], y[nodes], reduction="none")
            return (losses * weight).mean()

        fit(model, graph, WEIGHT_DECAY, EPOCHS, step_loss, lambda: model(x, edges))
        return model.eval()

    @torch.no_grad()
    def test(model: nn.Module) -> float:
        right = model(x, edges).argmax(1) == y
        return 100 * float(right[graph["test"]].float().mean())

    @torch.no_grad()
    def predict(model: nn.Module) -> torch.Tensor:
        scores: torch.Tensor = model(x, edges)[nodes]
        return scores

    torch.manual_seed(seed)
    ones = torch.ones(len(nodes))
    tests = {"fp32": test(trained(made("fp32"), ones))}
    tests["wide"] = test(trained(made(hidden=WIDE * HIDDEN), ones))
    differing = 0
    alike = fit_bagging(made, trained, len(nodes), max(COUNTS), bootstrap=False, seed=seed)
    tests["bin"] = statistics.mean(test(member) for member in alike.members)
    bags = fit_bagging(made, trained, len(nodes), RESAMPLED, seed=seed)
    boosted = fit_boosting(made, trained, predict, y[nodes], RESAMPLED, seed=seed)
    ensembles = {
        f"seeds-{count}-{voting}": Ensemble(alike.members[:count], voting)
        for count in COUNTS[1:] for voting in ("soft", "hard")
    }  # fmt: skip
    for voting in ("soft", "hard"):
        ensembles[f"bagging-{RESAMPLED}-{voting}"] = Ensemble(bags.members, voting)
    ensembles[f"boosting-{RESAMPLED}"] = boosted
    for form, ensemble in ensembles.items():
        tests[form] = test(ensemble)
        with torch.no_grad():
            decided = ensemble(x, edges).argmax(1)
        differing += int((bitgnn.freeze(ensemble)(x, edges).argmax(1) != decided).sum())
    seconds = time.perf_counter() - start
    return {**case, "tests": tests, "differing_nodes": differing, "seconds": seconds}


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean test accuracy of each form, over graphs."""
    forms = dict.fromkeys(form for run in runs for form in run["tests"])
    return [
        {"form": form, "test": statistics.mean(run["tests"][form] for run in runs)}
        for form in forms
    ]


def main() -> int:
    """Entry point."""
    parser = study_parser(__doc__, "ensembles.json", GRAPHS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    return run_and_keep(
        cases(arguments), run, summary, arguments.output, arguments.data, arguments.device,
        arguments.workers,
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
