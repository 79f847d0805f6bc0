"""Markdown of records of ``ensembles.py``: accuracy by number of members and kind of votes."""

from __future__ import annotations

from collections import Counter

from bench.report import Record, environment_line, mean_and_error, table, trained_on
from bitgnn.measure.report import format_bytes, format_seconds

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


def ranks_table(record: Record) -> str:
    """Markdown of a record of ``bench_ensembles.py``: work of the members beside the reduction."""
    found = table(
        record["results"],
        ("ranks", lambda r: f"{r['ranks']}, {r['backend']}"),
        ("votes", lambda r: r["voting"]),
        ("a member a rank", lambda r: format_seconds(r["members"]["median"])),
        ("with votes joined", lambda r: format_seconds(r["whole"]["median"])),
        ("all-reduce alone", lambda r: format_seconds(r["all_reduce"]["median"])),
        ("bytes", lambda r: format_bytes(r["bytes"])),
        ("images", lambda r: f"{r['batch']} of {r['size']}x{r['size']}"),
    )
    return f"{environment_line(record)}\n\n{found}"


def _title(form: str) -> str:
    kind, *values = form.split("-")
    return ROWS[kind].format(*values)
