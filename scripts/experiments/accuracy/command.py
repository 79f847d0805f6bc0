"""The command behind scripts/reproduce_table3.py: trains, freezes and records a whole table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bitgnn.measure.report import write_json
from bitgnn.train.build import GraphSource
from bitgnn.train.config import ExperimentConfig
from bitgnn.train.report import graph_record
from bitgnn.train.workers import Finished, Job, train_side_by_side
from experiments.accuracy.arguments import experiment_parser, options_of, overridden, status_of
from experiments.accuracy.named import TABLE3, named_experiment
from experiments.accuracy.record import Table, accuracy_record

__all__ = ["TABLES", "main"]

TABLES = {
    "3": Table("table3", tuple(TABLE3), 20, close_gap=0.5),
    "second": Table(
        "second",
        ("gcn_flickr_synthetic", "gcn_tolokers", "gcn_cs", "gcn_photo", "gcn_cora_ml"),
        10,
        mean_gap=1.5,
    ),
    "ternary": Table(
        "ternary", ("gcn_ternary_tolokers", "gcn_ternary_minesweeper", "gcn_ternary_citeseer"), 10
    ),
}
"""The BitGNN paper's table 3 on the real graphs, the same models on further ones, and bits against
ternary activations."""


def main(arguments: Sequence[str] | None = None, root: Path = Path()) -> int:
    """Train every graph, form and seed of a table, check the frozen models, write the record.

    Runs that are finished or under way in the output folder are not started anew.

    Args:
        arguments: of the command line; None takes those of the process.
        root: the project's folder, where ``configs`` is.

    Returns:
        Exit status: 0, 1 where a frozen model differs or something is wrong, 130 on an interrupt.
    """
    parser = experiment_parser(__doc__, root / "configs", "bitgnn-train", ())
    parser.add_argument("--table", choices=sorted(TABLES), default="3")
    parser.add_argument("--workers", type=int, default=1)
    parsed = parser.parse_args(arguments)
    return status_of("reproduce", parsed.output, lambda: _mismatches(_reproduce(parsed, Console())))


def _reproduce(parsed: argparse.Namespace, console: Console) -> dict[str, Any]:
    table = TABLES[parsed.table]
    if parsed.workers < 1:
        raise ValueError(f"--workers must be at least 1, got {parsed.workers}")
    options = options_of(parsed)
    options.torch_device()
    names = [name for name in table.configs if not parsed.only or name in parsed.only]
    if not names:
        raise ValueError(f"--only must name some of {list(table.configs)}, got {parsed.only}")
    base = (parsed.results or parsed.output) / f"accuracy_{table.name}"
    # A record that cannot be read is noticed before anything is trained.
    before = _before(base.with_suffix(".json")) if len(names) < len(table.configs) else None
    jobs = []
    for name in names:
        config = named_experiment(parsed.configs, name)
        config = overridden(config.model_copy(update={"seeds": table.seeds}), parsed)
        jobs.append(Job(config, parsed.output / name))
    finished = train_side_by_side(
        jobs, parsed.data_root, options, parsed.workers, console, check_frozen=True
    )
    record = accuracy_record(table, list(_experiments(jobs, finished, parsed.data_root)), before)
    write_json(base.with_suffix(".json"), record)
    _print(record, console)
    return record


def _before(path: Path) -> dict[str, Any] | None:
    """The record at hand."""
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def _experiments(
    jobs: Sequence[Job], finished: Sequence[Sequence[Finished]], data_root: str | None
) -> list[tuple[ExperimentConfig, dict[str, Any], Sequence[Finished]]]:
    # Quick graphs come last in training and first in the table.
    return [
        (job.config, graph_record(job.config, GraphSource(job.config, data_root)(0)), runs)
        for job, runs in zip(reversed(jobs), reversed(finished), strict=True)
    ]


def _print(record: dict[str, Any], console: Console) -> None:
    for title, entry in record["graphs"].items():
        for form, values in entry["forms"].items():
            console.print(
                f"{title} {form}: {values['score_mean_percent']:.2f} ± "
                f"{values['score_std_points']:.2f}, {values['seconds_mean']:.1f} s"
            )
    goals = [(title, goal) for title, entry in record["graphs"].items() for goal in entry["goals"]]
    for title, goal in [*goals, *(("all", goal) for goal in record["goals"])]:
        met = "met" if goal["met"] else "MISSED"
        console.print(f"{met}: {title}: {goal['goal']} ({goal['value']:.2f}, {goal['limit']:.2f})")


def _mismatches(record: dict[str, Any]) -> list[str]:
    return [
        line
        for entry in record["graphs"].values()
        for form in entry["forms"].values()
        if form["frozen"] is not None
        for line in form["frozen"]["mismatches"]
    ]
