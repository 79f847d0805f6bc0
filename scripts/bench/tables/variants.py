"""Markdown of records of ``distilled.py --study variants``: students made or taught otherwise."""

from __future__ import annotations

import statistics
from functools import partial

from bench.report import Record, points, shown, table, trained_on

RECIPE = "bin"


def variants_table(record: Record) -> str:
    """One row a variant, by kind: its gaps on all graphs, and its loss against the recipe.

    The difference is the mean over the graphs that both have, with its standard error.
    """
    kinds = {form: run["study"] for run in record["runs"] for form in run["forms"]}
    kinds[RECIPE] = "recipe"
    rows = sorted(record["summary"], key=lambda row: row["form"] != RECIPE)
    order = list(dict.fromkeys(kinds[row["form"]] for row in rows))
    rows.sort(key=lambda row: order.index(kinds[row["form"]]))
    recipes = {row["model"]: row["gaps"] for row in rows if row["form"] == RECIPE}
    models = dict.fromkeys(row["model"] for row in rows)
    graphs = dict.fromkeys(graph for row in rows for graph in row["gaps"])
    found = table(
        rows,
        *[("model", lambda row: str(row["model"]))] * (len(models) > 1),
        ("kind", lambda row: kinds[row["form"]]),
        ("variant", lambda row: _name(row["form"], kinds[row["form"]])),
        ("mean", lambda row: points(row["mean_gap"])),
        ("worst", lambda row: points(row["worst_gap"])),
        ("beside the recipe", lambda row: _difference(row["gaps"], recipes.get(row["model"], {}))),
        *((graph, partial(_gap, graph)) for graph in graphs),
    )
    seeds = len({run["seed"] for run in record["runs"]})
    students = [s for run in record["runs"] for s in run["students"].values()]
    checked = [s["differing_nodes"] == 0 for s in students if "differing_nodes" in s]
    line = f"{trained_on(record, pyg=True)}{_earlier(record)}; {', '.join(models)}; seeds: {seeds}."
    frozen = f"Frozen equals trained on every node in {sum(checked)} of {len(checked)} students."
    return f"{line} {frozen}\n\n{found}"


def _earlier(record: Record) -> str:
    """Which graphs were trained at another commit than the record's."""
    current = record["environment"]["commit"]
    graphs: dict[str, dict[str, None]] = {}
    for run in record["runs"]:
        if (commit := run.get("commit", current)) != current:
            graphs.setdefault(commit, {})[run["graph"]] = None
    return "".join(f"; {', '.join(names)} of commit {c[:10]}" for c, names in graphs.items())


def _name(form: str, kind: str) -> str:
    """A form without what is the same for all of its kind."""
    return form.removeprefix("bin:1:").removeprefix(f"{kind}=")


def _gap(graph: str, row: Record) -> str:
    return points(row["gaps"].get(graph))


def _difference(gaps: dict[str, float], recipe: dict[str, float]) -> str:
    more = [gap - recipe[graph] for graph, gap in gaps.items() if graph in recipe]
    if gaps is recipe or not more:
        return ""
    error = statistics.stdev(more) / len(more) ** 0.5 if len(more) > 1 else None
    return f"{statistics.mean(more):+.1f}" + shown(error, lambda e: f" ± {e:.1f}")
