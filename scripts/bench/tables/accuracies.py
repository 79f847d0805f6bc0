"""Markdown of what ``scripts/reproduce_table3.py`` and ``scripts/bench_training.py`` record."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bench.report import environment_line, markdown_table, trained_on
from bitgnn.measure.report import format_ratio, format_seconds

Record = dict[str, Any]


def accuracies_table(record: Record) -> str:
    """Markdown of a record of ``scripts/reproduce_table3.py``: one row a graph, goals below."""
    graphs = record["graphs"]
    forms = list(dict.fromkeys(form for entry in graphs.values() for form in entry["forms"]))
    rows = []
    for title, entry in graphs.items():
        found = entry["forms"]
        paper = entry["paper"]
        frozen = [form["frozen"] for form in found.values() if form["frozen"] is not None]
        equal = sum(one["equal_on_every_node"] for one in frozen)
        rows.append(
            [
                title + ("" if entry["metric"] == "accuracy" else " (ROC AUC)"),
                str(len(next(iter(found.values()))["runs"])),
                *(_score(found.get(form)) for form in forms),
                "" if paper is None else " / ".join(f"{value:.1f}" for value in paper.values()),
                f"{equal} of {sum(one['checked'] for one in frozen)}",
            ]
        )
    header = [
        "graph", "seeds", *(f"{form}, %" for form in forms), "paper: fp32 / full / bin",
        "frozen equals trained",
    ]  # fmt: skip
    if not any(entry["paper"] for entry in graphs.values()):
        place = header.index("paper: fp32 / full / bin")
        header, *rows = [[*row[:place], *row[place + 1 :]] for row in (header, *rows)]
    goals = [(title, goal) for title, entry in graphs.items() for goal in entry["goals"]]
    goals += [("all graphs", goal) for goal in record["goals"]]
    lines = [
        f"- {'met' if goal['met'] else 'MISSED'}: {title}: {goal['goal']}: "
        f"{goal['value']:.2f}, limit {goal['limit']:.2f}\n"
        for title, goal in goals
    ]
    return f"{_training_line(record)}\n\n{markdown_table(header, rows)}\n{''.join(lines)}"


def _score(form: Record | None) -> str:
    """Mean and spread of a form's scores."""
    if form is None:
        return ""
    return f"{form['score_mean_percent']:.1f} ± {form['score_std_points']:.1f}"


def training_cost_table(record: Record) -> str:
    """Markdown of a record of ``scripts/bench_training.py``: one row a graph and form."""
    rows = [
        [
            f"{title} {form}",
            format_seconds(entry["seconds_per_epoch"]),
            str(entry["epochs"]),
            ", ".join(entry["needs"]),
            format_ratio(entry["cost_ratio"]),
            _verdict(graph["goals"], form),
        ]
        for title, graph in record["graphs"].items()
        for form, entry in graph["forms"].items()
    ]
    header = ["form", "epoch", "epochs", "needs first", "whole training", "goal"]
    return f"{environment_line(record)}\n\n{markdown_table(header, rows)}"


def _verdict(goals: list[Record], form: str) -> str:
    """The goal of a form and whether it is met."""
    for goal in goals:
        if goal["goal"].startswith(f"{form}:"):
            return f"≤ {goal['limit']:g}×: {'met' if goal['met'] else 'MISSED'}"
    return ""


def _training_line(record: Record) -> str:
    """One sentence on where the models were trained."""
    graphs = record["graphs"].values()
    forms = [form for entry in graphs for form in entry["forms"].values()]
    runs = [run for form in forms for run in form["runs"] if "machine" in run]
    machines = Counter(run["machine"] for run in runs)
    device = record["environment"]["gpu"] or record["environment"]["cpu"]
    if len(machines) > 1:
        places = ", ".join(f"{count} runs on {name}" for name, count in machines.most_common())
        device = f"several machines ({places}); recorded on {device}"
    return f"{trained_on(record, pyg=True, device=device)}{_kept(record)}."


def _kept(record: Record) -> str:
    """Which graphs were recorded before, and of which commit."""
    by_commit: dict[str, list[str]] = {}
    for title, entry in record["graphs"].items():
        if "environment" in entry:
            commit = (entry["environment"]["commit"] or "unknown")[:10]
            by_commit.setdefault(commit, []).append(title)
    return "".join(
        f"; {' and '.join(titles)} of commit {commit}" for commit, titles in by_commit.items()
    )
