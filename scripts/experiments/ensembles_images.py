"""Ensembles of binary image networks (BENN) by number of members, against floats.

Members are students of float teachers of their own, each of another seed, distilled side by side;
test images are those of the CIFAR-10 subset. Members' scores stay in OUTPUT.parts until all are
done; finished ones are not done again.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from distilled_images import BATCH, HELD_OUT, NETWORKS, Batches
from image_sets import load_images
from kept_runs import run_and_keep, study_parser

import bitgnn
from bitgnn.models import Ensemble

TASKS = ("VGG, CIFAR-10", "ResNet-14, CIFAR-10")
MEMBERS, COUNTS = 10, (3, 5)


def cases(arguments: Any) -> Iterator[dict[str, Any]]:
    """One for each network and member."""
    for task in arguments.networks:
        for member in range(arguments.members):
            yield {"task": task, "member": member, "epochs": arguments.epochs}


def run(job: tuple[dict[str, Any], str | None, str], folder: Path) -> dict[str, Any]:
    """A teacher and its student; scores of both on the test images are written."""
    case, root, device = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    network, seed = NETWORKS[case["task"]], case["member"]
    (images, labels), (test_images, test_labels) = load_images(network.dataset, root)
    held, kept = (
        torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        .tensor_split([int(HELD_OUT * len(labels))])
    )  # fmt: skip
    training, validation = (
        Batches(images[rows].to(device), labels[rows].to(device), augmentation)
        for rows, augmentation in ((kept, network), (held, None))
    )
    torch.manual_seed(seed)
    result = bitgnn.distill(
        network.build().to(device), training, epochs=case["epochs"], seed=seed, trained=False,
        validation=validation,
    )  # fmt: skip
    test = Batches(test_images.to(device), test_labels.to(device))
    models = {"fp32": result.teacher, "bin": result.frozen}
    with torch.no_grad():
        scores = {name: torch.cat([model(x) for x, _ in test]) for name, model in models.items()}
    scores = {name: value.cpu().contiguous() for name, value in scores.items()}
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file({**scores, "y": test_labels}, _file(folder, case))
    accuracies = {name: _accuracy(value, test_labels) for name, value in scores.items()}
    return {**case, "tests": accuracies, "batch": BATCH}


class _Given(torch.nn.Module):
    """A member whose scores are known."""

    def __init__(self, scores: torch.Tensor) -> None:
        super().__init__()
        self.scores = torch.nn.Parameter(scores)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the images numbered ``x``."""
        return self.scores[x]


def summary(runs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Rows as those of ``ensembles.py``, in per cent; no member is in two ensembles of a size."""
    rows = []
    for task in dict.fromkeys(run["task"] for run in runs):
        mine = [run for run in runs if run["task"] == task]
        found = [safetensors.torch.load_file(_file(folder, run)) for run in mine]
        y = found[0]["y"]
        tests = {form: [run["tests"][form] for run in mine] for form in ("fp32", "bin")}
        for count in COUNTS:
            for voting in ("soft", "hard"):
                tests[f"seeds-{count}-{voting}"] = [
                    _accuracy(Ensemble(chosen, voting).eval()(torch.arange(len(y))), y)
                    for chosen in _groups([_Given(one["bin"]) for one in found], count)
                ]
        rows += [
            {"graph": task, "seed": number,
             "tests": {form: own[number] for form, own in tests.items() if number < len(own)}}
            for number in range(max(map(len, tests.values())))
        ]  # fmt: skip
    return rows


def _groups(members: list[Any], count: int) -> list[list[Any]]:
    return [members[i : i + count] for i in range(0, len(members) - count + 1, count)]


@torch.no_grad()
def _accuracy(scores: torch.Tensor, y: torch.Tensor) -> float:
    return 100 * float((scores.argmax(1) == y).float().mean())


def _file(folder: Path, case: dict[str, Any]) -> Path:
    return folder / f"{TASKS.index(case['task'])}-{case['member']}.safetensors"


def main() -> int:
    """Entry point."""
    parser = study_parser(__doc__, "ensembles_images.json")
    parser.add_argument("--networks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument("--epochs", type=int, help="default: those that distill() chooses")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    folder = arguments.output.with_suffix(".parts")
    return run_and_keep(
        cases(arguments), partial(run, folder=folder), partial(summary, folder=folder),
        arguments.output, arguments.data, arguments.device, arguments.workers,
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
