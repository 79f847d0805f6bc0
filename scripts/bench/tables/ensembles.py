"""Markdown of records of ``ensembles.py``: accuracy by number of members and kind of votes."""

from __future__ import annotations

from collections import Counter

from bench.report import Record, mean_and_error, table, trained_on

ROWS = {
    "fp32": "fp32, one model",
    "bin": "binary, one model",
    "wide": "binary, one model of 3 times the hidden channels",
    "seeds": "{} members, all labels, {} votes",
    "bagging": "{} members, labels drawn anew, {} votes",
    "boosting": "{} members, boosting",
}


def images_table(record: Record) -> str:
    """The same of networks of images, whose members were trained one by one."""
    return ensembles_table(
        {**record, "runs": record["summary"]}, "students of teachers of their own"
    )


def ensembles_table(record: Record, said: str | None = None) -> str:
    """One row a form, one column a graph: mean test accuracy and its standard error."""
    runs = record["runs"]
    graphs = list(dict.fromkeys(run["graph"] for run in runs))
    known = list(ROWS)
    forms = dict.fromkeys(form for run in runs for form in run["tests"])

    def accuracy(form: str, graph: str) -> str:
        mine = [run["tests"] for run in runs if run["graph"] == graph]
        return mean_and_error([tests[form] for tests in mine if form in tests])

    found = table(
        sorted(forms, key=lambda form: known.index(form.split("-")[0])),
        ("form", _title),
        *((f"{graph}, %", lambda form, graph=graph: accuracy(form, graph)) for graph in graphs),
    )
    if said is None:
        counts = Counter(run["graph"] for run in runs).values()
        seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
        differing = sum(run["differing_nodes"] for run in runs)
        same = "every node" if not differing else f"all but {differing} nodes"
        said = f"two-layer GCNs, {seeds} seeds. Frozen ensembles equal trained ones on {same}"
    return f"{trained_on(record, pyg=True)}; {said}.\n\n{found}"


def _title(form: str) -> str:
    kind, *values = form.split("-")
    return ROWS[kind].format(*values)
