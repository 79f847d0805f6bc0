"""Markdown of records of ``plain_loop.py`` and the scripts of distilled models."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from bench.report import Record, mean_and_error, points, shown, table, trained_on

Model = tuple[str, int, float]
"""Layer, number of layers, weight decay."""

PAPER = {"Cora": (81.4, 81.2, 81.2), "CiteSeer": (70.9, 68.8, 68.7), "PubMed": (79.0, 78.2, 78.1)}
"""Table 3 of the BitGNN paper: accuracies of fp32, full and bin in per cent."""
TUTORIAL: Model = ("GCNConv", 2, 5e-4)


def plain_loop_table(record: Record) -> str:
    """One row a graph: fp32's accuracy and how far each form is behind it, and a row of means.

    Models other than the tutorial's, or than the first where that is not among them, follow in
    columns of their own.
    """
    runs = [run for run in record["runs"] if "failed" not in run]
    models = [_model(run) for run in runs]
    first = TUTORIAL if TUTORIAL in models else next(iter(models), TUTORIAL)
    floats: dict[str, list[float]] = {}
    for run in runs:
        if _model(run) == first and run["form"] == "fp32":
            floats.setdefault(run["graph"], []).append(run["test"])
    accuracies = {graph: statistics.mean(values) for graph, values in floats.items()}
    # Stable: forms of a model stay in the order of the record.
    summary = sorted(record["summary"], key=lambda row: _model(row) != first)
    graphs = dict.fromkeys([*accuracies, *(graph for row in summary for graph in row["gaps"])])
    mean = statistics.mean(accuracies.values()) if accuracies else None

    def gap(row: Record, graph: str | None) -> str:
        return points(row["mean_gap"] if graph is None else row["gaps"].get(graph))

    found = table(
        [*graphs, None],
        ("graph", lambda graph: graph or "mean"),
        ("fp32, %", lambda graph: points(accuracies.get(graph) if graph else mean)),
        *((_heading(row, first), partial(gap, row)) for row in summary),
    )
    line = f"{trained_on(record, pyg=True)}; seeds: {_seeds(runs)}."
    checked = [run["differing_nodes"] == 0 for run in runs if "differing_nodes" in run]
    if checked:
        same = f"{sum(checked)} of {len(checked)} runs"
        line += f" Frozen equals trained on every node in {same}."
    return f"{line}\n\n{found}{_failures(record['runs'])}"


def paper_table(record: Record) -> str:
    """One row a graph of the paper: accuracies of fp32 and its students, and the paper's own."""
    scores: dict[str, dict[str, list[float]]] = {}
    students = []
    for run in record["runs"]:
        graph = scores.setdefault(run["graph"], {})
        for form, student in run["students"].items():
            graph.setdefault(form, []).append(student["test"])
            students.append(student)
        graph.setdefault("fp32", []).append(student["teacher_test"])

    def score(form: str, graph: str) -> str:
        values = [100 * value for value in scores[graph][form]]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        return f"{statistics.mean(values):.1f} ± {spread:.1f}"

    found = table(
        scores,
        ("graph", str),
        *((f"{form}, %", partial(score, form)) for form in ("fp32", "full", "bin")),
        ("paper: fp32 / full / bin", lambda g: " / ".join(f"{v:.1f}" for v in PAPER[g])),
    )
    equal = sum(student["differing_nodes"] == 0 for student in students)
    counts = sorted(set(Counter(run["graph"] for run in record["runs"]).values()))
    line = f"{trained_on(record, pyg=True)}; seeds: {'-'.join(map(str, counts))}."
    line += f" Frozen equals trained on every node in {equal} of {len(students)} students."
    return f"{line}\n\n{found}"


def papers_networks_table(record: Record) -> str:
    """One row a network and graph: test accuracies by the papers' recipe, with standard errors."""
    scores: dict[tuple[str, str], dict[str, list[float]]] = {}
    for run in record["runs"]:
        if "failed" not in run:
            forms = scores.setdefault((run["layer"], run["graph"]), {})
            forms.setdefault(run["form"], []).append(run["test"])

    def cell(form: str, key: tuple[str, str]) -> str:
        return shown(scores[key].get(f"papers-{form}"), mean_and_error)

    def paper(key: tuple[str, str]) -> str:
        known = PAPER.get(key[1]) if key[0] == TUTORIAL[0] else None
        return shown(known, lambda values: " / ".join(f"{value:.1f}" for value in values))

    found = table(
        scores,
        ("network, graph", ", ".join),
        *((f"{form}, %", partial(cell, form)) for form in ("fp32", "full", "bin")),
        ("paper: fp32 / full / bin", paper),
    )
    checked = [run["differing_nodes"] == 0 for run in record["runs"] if "differing_nodes" in run]
    line = f"{trained_on(record, pyg=True)}; seeds: {_seeds(record['runs'])}. Frozen equals trained"
    return f"{line} on every node in {sum(checked)} of {len(checked)} runs.\n\n{found}"


def distilled_table(record: Record) -> str:
    """One row a graph: how far each model's forms are behind their teachers; means and cost."""
    summary = record["summary"]
    graphs = dict.fromkeys(graph for row in summary for graph in row["gaps"])
    counts = Counter((run["graph"], run["model"]) for run in record["runs"]).values()

    def cell(row: Record, line: str) -> str:
        if line == "mean":
            return points(row["mean_gap"])
        if line == "cost":
            return shown(row["cost"], lambda cost: f"{cost:.1f}×")
        return points(row["gaps"].get(line))

    found = table(
        [*graphs, "mean", "cost"],
        ("graph", str),
        *((f"{row['model']}: {row['form']}", partial(cell, row)) for row in summary),
    )
    seeds = str(max(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    students = [s for run in record["runs"] for s in run["students"].values()]
    checked = [s["differing_nodes"] == 0 for s in students if "differing_nodes" in s]
    line = (
        f"{trained_on(record, pyg=True)}; seeds: {seeds}. Frozen equals trained on every node in "
    )
    return f"{line}{sum(checked)} of {len(checked)} students.\n\n{found}"


def students_table(record: Record) -> str:
    """One row a form, of texts on each task: test scores of teachers and students, gap and cost."""
    rows = record["summary"]
    tasks = [("task", lambda row: row["task"])] if "task" in rows[0] else []

    def gap(row: Record) -> str:
        spread = shown(row["gap_std"], lambda value: f" ± {value:.1f}")
        return f"{points(row['gap'])}{spread}"

    found = table(
        rows,
        *tasks,
        ("form", lambda row: row["form"]),
        ("epochs", lambda row: str(row["epochs"])),
        ("seeds", lambda row: str(row["runs"])),
        ("teacher", lambda row: points(100 * row["teacher"])),
        ("student", lambda row: points(100 * row["test"])),
        ("points behind", gap),
        ("cost", lambda row: f"{row['cost']:.1f}×"),
    )
    return f"{trained_on(record)}.\n\n{found}"


def study_table(record: Record) -> str:
    """One row a form of the recipe: how far its students are behind, on all graphs and on each.

    Then what a recipe chosen without a graph reaches on it.
    """
    rows = record["summary"]
    graphs = dict.fromkeys(graph for row in rows for graph in row["gaps"])
    found = table(
        rows,
        ("model", lambda row: row["model"]),
        ("form", lambda row: row["form"]),
        ("mean", lambda row: points(row["mean_gap"])),
        ("worst", lambda row: points(row["worst_gap"])),
        *((graph, lambda row, graph=graph: points(row["gaps"].get(graph))) for graph in graphs),
    )
    seeds = len({run["seed"] for run in record["runs"]})
    text = f"{trained_on(record, pyg=True)}; seeds: {seeds}.\n\n{found}"
    for model in dict.fromkeys(row["model"] for row in rows):
        first = rows[0]["form"].partition(":")[0]
        gaps = [
            row["gaps"] for row in rows if row["model"] == model and _same_cost(row["form"], first)
        ]
        left_out = _left_out(gaps)
        if left_out is not None:
            text += (
                f"\n{model}: the form with the lowest mean gap on all other graphs is "
                f"{points(left_out)} points behind on the mean of the graphs left out.\n"
            )
    return text


def _same_cost(form: str, first: str) -> bool:
    """True if a form equals the first but for one field, neither width nor epochs."""
    return (form == first or form.startswith(f"{first}:1:")) and "epochs" not in form


def _left_out(gaps: Sequence[dict[str, float]]) -> float | None:
    """Mean gap of forms on graphs that did not take part in choosing them."""
    graphs = [graph for graph in gaps[0] if all(graph in one for one in gaps)] if gaps else []
    if len(graphs) < 2:
        return None
    found = []
    for graph in graphs:
        others = [other for other in graphs if other != graph]
        best = min(gaps, key=lambda one: statistics.mean(one[other] for other in others))
        found.append(best[graph])
    return statistics.mean(found)


def depth_table(record: Record) -> str:
    """Accuracy of every variant on each graph, and how far its mean is behind floats."""
    graphs = dict.fromkeys(run["graph"] for run in record["runs"])
    found = table(
        record["summary"],
        ("layers", lambda row: str(row["layers"])),
        ("variant", lambda row: row["variant"]),
        *((graph, lambda row, graph=graph: points(row["test"].get(graph))) for graph in graphs),
        ("points behind", lambda row: points(row["mean_gap"])),
    )
    seeds = len({run["seed"] for run in record["runs"]})
    return f"{trained_on(record, pyg=True)}; seeds: {seeds}.\n\n{found}"


def _model(row: Record) -> Model:
    return row["layer"], row["layers"], row["weight_decay"]


def _label(model: Model) -> str:
    """A model in words, as far as it differs from the tutorial's."""
    layer, layers, decay = model
    parts = [layer]
    if layers != TUTORIAL[1]:
        parts.append(f"{layers} layers")
    if decay != TUTORIAL[2]:
        parts.append(f"decay {decay:g}" if decay else "no decay")
    return ", ".join(parts)


def _heading(row: Record, first: Model) -> str:
    model, form = _model(row), row["form"]
    return f"{form}: points behind" if model == first else f"{_label(model)}: {form}"


def _seeds(runs: Iterable[Record]) -> str:
    """How many seeds each model has on a graph, one number where it is the same for all."""
    cells: dict[Model, Counter[tuple[str, str]]] = {}
    for run in runs:
        cells.setdefault(_model(run), Counter())[run["graph"], run["form"]] += 1
    found = {
        model: "-".join(str(n) for n in sorted({min(counts.values()), max(counts.values())}))
        for model, counts in cells.items()
    }
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{seeds} ({_label(model)})" for model, seeds in found.items())


def _failures(runs: Iterable[Record]) -> str:
    """One line for each graph, model and form that has no result."""
    lines = dict.fromkeys(
        f"- not measured: {run['graph']}, {_label(_model(run))}, {run['form']}: {run['failed']}\n"
        for run in runs
        if "failed" in run
    )
    return "\n" + "".join(lines) if lines else ""
