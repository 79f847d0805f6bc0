"""Tables of the default networks: accuracy, time and bytes of one frozen model in a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from bench.report import (
    Record,
    environment_line,
    mean_and_error,
    not_measured,
    shown,
    table,
)
from bench.tables.models import best_of, peer_seconds, shortest_calls
from bitgnn.measure.report import format_bytes, format_ratio, format_seconds

FORM = "bin"
LAYERS = {"GCN": "GCNConv", "GraphSAGE": "SAGEConv"}
FEATURES = {"floats": "from floats", "sparse": "from a sparse tensor", "packed": "packed"}
HEADLINE_FEATURES = ("floats", "packed")
TIMED = "models"
CUDA = "cuda"
HEADINGS = {CUDA: "GPU: ", "cpu": "CPU: "}
CALLS = (
    "A call: the host's time from it to its result on the GPU, Python included, the shortest way."
)
HEADLINE_THREADS = 2
DENSE, HEADLINE_DENSE = ", dense ", ("PubMed, dense 128", "CS, dense 128")
"""Graphs of dense features that README shows; the pages show all."""
REDUCED = "an eighth"
NOTE = (
    "Accuracies: test nodes in per cent where validation is best, mean ± standard error (seeds: "
    "{seeds}); the timed model is that of the first seed. Frozen equals trained on every node in "
    "{equal} of {checked} models."
)


TWICE = (
    "They are those of the GPU's models; the CPU's are trained by the same recipe and seed, with "
    "their own scores on the page."
)


class Row(NamedTuple):
    """A network on a graph."""

    model: str
    graph: str
    results: list[Record]
    """One a device and number of threads."""


MADE_UP = "Real sizes with made-up features, where it says so also made-up edges: times alone."
Column = tuple[str, Callable[[Row], str]]
Pick = Callable[[Row], Record | None]


def rows_of(record: Record) -> list[Row]:
    """The networks of a record; those with labels first."""
    found: dict[tuple[str, str], Row] = {}
    for result in record["results"]:
        if result["group"] == TIMED:
            key = result["model"], result["graph_name"]
            found.setdefault(key, Row(*key, [])).results.append(result)
    return sorted(found.values(), key=lambda row: not has_labels(row))


def has_labels(row: Row) -> bool:
    """True if the network was trained on real features and labels."""
    return bool(row.results[0]["training"][FORM])


def trainings(record: Record) -> list[Record]:
    """All trainings of a record, those of timed models first, each one once."""
    timed = [run for r in record["results"] for run in r.get("training", {}).values() if run]
    found = {_training_key(run): run for run in (*record["trainings"], *timed)}
    return list(found.values())


def _training_key(run: Record) -> tuple[object, ...]:
    return tuple(run[name] for name in ("graph", "layer", "form", "seed"))


def scores_of(runs: Iterable[Record], row: Row, form: str) -> list[float]:
    """Test accuracies of a network in per cent, one a seed."""
    wanted = row.graph, LAYERS[row.model], form
    return [
        run["test"]
        for run in runs
        if (run["graph"], run["layer"], run["form"]) == wanted and "failed" not in run
    ]


def accuracy(runs: Iterable[Record], form: str, row: Row) -> str:
    """Mean test accuracy of a network, with its standard error where there are several seeds."""
    return shown(scores_of(runs, row, form) or None, mean_and_error)


def default_table(record: Record) -> str:
    """Markdown of one record: real features and labels, made-up ones, only the first product."""
    rows, runs = rows_of(record), trainings(record)
    labelled, made_up = ([r for r in rows if has_labels(r) == is_real] for is_real in (True, False))
    on_cuda = record["benchmark"].endswith("cuda")
    threads = [] if on_cuda else sorted({r["threads"] for row in rows for r in row.results})
    known = {entry["features"] for row in rows for r in row.results for entry in r["ours"]}
    features = [name for name in FEATURES if name in known]
    times = [
        column
        for number in (threads if len(threads) > 1 else [None])
        for column in _times(partial(_with_threads, number), _of_threads(number), features, True)
    ]
    columns = [*times, *(_calls(partial(_with_threads, None)) if on_cuda else ()), *_bytes()]
    text = f"{environment_line(record)}\n"
    if labelled:
        text += (
            f"\n{table(labelled, _network(), *_accuracies(runs), *columns)}\n{_note(rows, runs)}\n"
        )
    if made_up:
        text += f"\n{MADE_UP}\n\n{table(made_up, _network(), *columns)}"
    text += _first_products(record)
    return text + not_measured(record)


def _of_threads(number: int | None) -> str:
    return "" if number is None else f"{number} thread{'s' * (number > 1)}: "


def _network() -> Column:
    return "network", lambda row: f"{row.model}, {row.graph}"


def _accuracies(runs: Sequence[Record]) -> list[Column]:
    return [
        ("PyG, %", partial(accuracy, runs, "fp32")),
        ("bits, %", partial(accuracy, runs, FORM)),
    ]


def _times(
    pick: Pick, prefix: str, features: Iterable[str] = HEADLINE_FEATURES, is_named: bool = False
) -> list[Column]:
    """PyG's best, named or not, and ours from features in several forms, of what ``pick`` finds."""
    columns: list[Column] = [(f"{prefix}PyG's best", partial(_peer_cell, pick, is_named))]
    columns += [(FEATURES[name], partial(_ours_cell, pick, name)) for name in features]
    return columns


def _with_threads(threads: int | None, row: Row) -> Record | None:
    return next((r for r in row.results if threads in (None, r["threads"])), None)


def _peer_cell(pick: Pick, is_named: bool, row: Row) -> str:
    result = pick(row)
    seconds = None if result is None else peer_seconds(result, "PyG")
    if result is None or seconds is None:
        return ""
    name = result["ours"][0]["peer"].removesuffix(", eager").replace(", cuda_graph", "")
    return format_seconds(seconds) + f" ({name})" * is_named


def _ours_cell(pick: Pick, features: str, row: Row) -> str:
    """Time and how many times faster than PyG's best."""
    result = pick(row)
    entry = None if result is None else best_of(result, FORM, features)
    if entry is None:
        return ""
    ratio = shown(entry["ratio"], lambda value: f" ({format_ratio(value)})")
    return f"{format_seconds(entry['seconds'])}{ratio}"


def _calls(pick: Pick) -> list[Column]:
    """Host time from a call to its result, of PyG's best and of ours from floats."""

    def cell(place: int, row: Row) -> str:
        result = pick(row)
        found = None if result is None else shortest_calls(result, FORM, "floats")
        return "" if found is None else format_seconds(found[place])

    return [("a call: PyG's best", partial(cell, 0)), ("from floats", partial(cell, 1))]


def _bytes() -> list[Column]:
    def weights(row: Row) -> str:
        result = row.results[0]
        ours = result["ours"][0]["weight_bytes"]
        return f"{format_bytes(result['peer_weight_bytes'])} → {format_bytes(ours)}"

    def features(row: Row) -> str:
        result = row.results[0]
        sizes = {entry["features"]: entry["feature_bytes"] for entry in result["ours"]}
        return f"{format_bytes(sizes['floats'])} → {format_bytes(sizes['packed'])}"

    return [("weights: PyG → bits", weights), ("features: floats → packed", features)]


def _note(rows: Sequence[Row], runs: Sequence[Record]) -> str:
    counts = Counter(_training_key(run)[:-1] for run in runs)
    equal = {
        _training_key(run): run["differing_nodes"] == 0 for run in runs if "differing_nodes" in run
    }
    for row in rows:
        for result in row.results:
            timed = result["training"][FORM]
            key = _training_key(timed) if timed else (row.model, row.graph)
            checks = result["checks"][FORM].values()
            same = all(check["differing_nodes"] == 0 for check in checks)
            equal[key] = equal.get(key, True) and same
    seeds = " to ".join(map(str, sorted({min(counts.values()), max(counts.values())})))
    return NOTE.format(seeds=seeds, equal=sum(equal.values()), checked=len(equal))


def _first_products(record: Record) -> str:
    results = [r for r in record["results"] if r["group"] == "first product"]
    if not results:
        return ""

    def seconds(name: str, result: Record) -> str:
        ours = next(c for c in result["contenders"] if c["name"] == name)
        if ours["timing"] is None:
            return ""
        median = ours["timing"]["median"]
        ratio = shown(result["peer_seconds"], lambda peer: f" ({format_ratio(peer / median)})")
        return f"{format_seconds(median)}{ratio}"

    found = table(
        results,
        ("first layer's product alone", lambda r: f"GCN, {r['graph_name']}"),
        ("PyG's best", lambda r: f"{format_seconds(r['peer_seconds'])} ({r['peer'][4:]})"),
        ("from floats", partial(seconds, "floats")),
        ("packed", partial(seconds, "packed")),
    )
    return f"\n{found}"


def headline_table(records: Sequence[Record]) -> str:
    """README's two tables: with labels, and real sizes with made-up features; GPU next to CPU."""
    by_device = {r["benchmark"].rpartition("_")[2]: r for r in records}
    found = {
        device: {(row.model, row.graph): row for row in rows_of(record)}
        for device, record in by_device.items()
    }
    rows = {key: row for device in HEADINGS for key, row in found.get(device, {}).items()}
    shown_rows = [row for row in rows.values() if _is_headline(row)]
    first = next(device for device in HEADINGS if device in by_device)
    runs = trainings(by_device[first])
    columns: list[Column] = []
    for device, heading in HEADINGS.items():
        if device in found:
            pick = partial(_on_device, found[device])
            columns += [*_times(pick, heading), *(_calls(pick) if device == CUDA else ())]
    text = ""
    for is_real in (True, False):
        part = [row for row in shown_rows if has_labels(row) == is_real]
        accuracies = _accuracies(runs) if is_real else []
        if part:
            text += f"{table(part, _network(), *accuracies, *columns, _bytes()[0])}\n"
    for device in HEADINGS:
        if device in by_device:
            text += f"- {environment_line(_of_headline(by_device[device]))}\n"
    if CUDA in by_device:
        text += f"- {CALLS}\n"
    labelled = [row for row in rows.values() if has_labels(row)]
    if not labelled:
        return text
    others = f" {TWICE}" if len(by_device) > 1 else ""
    return f"{text}- {_note(labelled, runs)}{others}\n"


def _is_headline(row: Row) -> bool:
    """README shows few graphs of dense features, and sizes as they are."""
    is_dense = DENSE in row.graph and row.graph not in HEADLINE_DENSE
    return not is_dense and REDUCED not in row.graph


def _of_headline(record: Record) -> Record:
    """The record as one of the threads that the headline's times were taken with."""
    if HEADLINE_THREADS not in {result.get("threads") for result in record["results"]}:
        return record
    return {**record, "environment": {**record["environment"], "threads": HEADLINE_THREADS}}


def _on_device(rows: Mapping[tuple[str, str], Row], row: Row) -> Record | None:
    found = rows.get((row.model, row.graph))
    if found is None:
        return None
    return _with_threads(HEADLINE_THREADS, found) or found.results[0]
