"""Markdown of the accuracy records that ``scripts/reproduce_table3.py`` writes."""

from __future__ import annotations

from typing import Any

from bitgnn.bench.report import format_ratio, markdown_table

__all__ = ["accuracies_table"]

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
                *(_cost(found.get(form)) for form in forms[1:]),
                f"{equal} of {sum(one['checked'] for one in frozen)}",
            ]
        )
    header = [
        "graph", "seeds", *(f"{form}, %" for form in forms), "paper: fp32 / full / bin",
        *(f"cost of {form}" for form in forms[1:]), "frozen equals trained",
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


def _cost(form: Record | None) -> str:
    """Training time with all a form needs, over that of full precision."""
    return "" if form is None else format_ratio(form["seconds_ratio"])


def _training_line(record: Record) -> str:
    """One sentence on where the models were trained."""
    machine = record["environment"]
    versions = machine["versions"]
    device = machine["gpu"] or machine["cpu"]
    commit = (machine["commit"] or "unknown")[:10] + (" with changes" if machine["dirty"] else "")
    return (
        f"Trained on {device}, torch {versions['torch']}, PyG {versions['torch-geometric']}, "
        f"commit {commit}, {machine['date'][:10]}."
    )
