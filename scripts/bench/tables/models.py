"""Tables of the whole-model benchmark: best executors for the README, every contender as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.report import environment_line, format_reached, markdown_table, not_measured
from bitgnn.measure.report import csv_text, format_bytes, format_ratio, format_seconds

Record = dict[str, Any]
MEMORY_MODEL = "GCN"
"""The README shows memory of this model; the CSV has all."""
TIMES = ("timing", "launched", "cold")
FEATURES = {"floats": ("floats",), "packed": ("packed", "packed dense")}


def best_of(result: Record, form: str, features: str) -> Record | None:
    """Our fastest entry of a case from fp32 (``"floats"``) or packed features, None without any."""
    found = [
        entry
        for entry in result["ours"]
        if entry["form"] == form
        and entry["features"] in FEATURES[features]
        and entry["seconds"] is not None
    ]
    return min(found, key=lambda entry: entry["seconds"], default=None)


def _measured(result: Record, family: str) -> Iterable[Record]:
    for contender in result["contenders"]:
        if contender["family"] == family and contender["timing"] is not None:
            yield contender


def peer_seconds(result: Record, family: str, arithmetic: str = "") -> float | None:
    """Median of the fastest contender of a family whose name ends in ``arithmetic``."""
    times = [
        contender["timing"]["median"]
        for contender in _measured(result, family)
        if contender["form"].endswith(arithmetic)
    ]
    return min(times, default=None)


def peer_memory(result: Record) -> int | None:
    """Bytes of PyG's smallest fp32 form."""
    found = [
        contender["memory"]["total"]
        for contender in _measured(result, "PyG")
        if contender["form"].endswith("fp32") and contender["memory"] is not None
    ]
    return min(found, default=None)


def models_table(record: Record) -> str:
    """Markdown of one record: a row for each model, graph and form, with the best executor."""
    rows = []
    for result in record["results"]:
        for form in dict.fromkeys(entry["form"] for entry in result["ours"]):
            entries = {features: best_of(result, form, features) for features in FEATURES}
            cells = [cell for entry in entries.values() for cell in _cells(entry)]
            any_entry = next((entry for entry in entries.values() if entry is not None), None)
            rows.append(
                [
                    f"{result['model']} {form}, {result['graph_name']}",
                    _peer(any_entry),
                    *cells,
                    _single_precision(result, entries["floats"]),
                    _goals(entries.values()),
                ]
            )
    header = ["model", "PyG's best", "from fp32", "ratio", "floor", "packed", "ratio", "floor"]
    table = markdown_table([*header, "PyG fp32", "goal"], rows)
    left_out = not_measured(*record["skipped"], *record["failed"])
    return f"{environment_line(record)}\n\n{table}{left_out}"


def _cells(entry: Record | None) -> list[str]:
    if entry is None:
        return ["", "", ""]
    floor = entry["times_the_floor"]
    return [
        f"{format_seconds(entry['seconds'])} ({_short(entry['executor'])})",
        "" if entry["ratio"] is None else format_ratio(entry["ratio"]),
        "" if floor is None else format_ratio(floor),
    ]


def _single_precision(result: Record, entry: Record | None) -> str:
    """PyG's fastest form that computes in fp32, and how many times faster ours is from fp32."""
    peer = peer_seconds(result, "PyG", "fp32")
    if peer is None:
        return ""
    ratio = "" if entry is None else f" ({format_ratio(peer / entry['seconds'])})"
    return f"{format_seconds(peer)}{ratio}"


def _short(executor: str) -> str:
    return {"cuda_graph": "graph"}.get(executor, executor)


def _peer(entry: Record | None) -> str:
    if entry is None or entry["peer_seconds"] is None:
        return ""
    name = entry["peer"].removesuffix(", eager").replace(", cuda_graph", "")
    return f"{format_seconds(entry['peer_seconds'])} ({name})"


def _goals(entries: Iterable[Record | None]) -> str:
    """Each figure with the parts reached from fp32 features and from packed ones."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        for goal in [] if entry is None else entry["goals"]:
            if goal["kind"] == "bytes" or goal["reached"] is None:
                continue
            ratio = goal["kind"] == "ratio"
            figure = f"{goal['value']:g}×" if ratio else f"≤ {format_seconds(goal['value'])}"
            name = "fp32" if goal["features"] == "floats" else "packed"
            found.setdefault(figure, []).append(f"{format_reached(goal['reached'])} {name}")
    return "; ".join(f"{figure}: {', '.join(parts)}" for figure, parts in found.items())


def memory_table(records: Sequence[Record]) -> str:
    """Markdown of all records: what a forward of a GCN keeps and allocates, measured."""
    rows = []
    for record in records:
        device = record["benchmark"].rpartition("_")[2]
        for result in record["results"]:
            if result["model"] != MEMORY_MODEL:
                continue
            peer = peer_memory(result)
            for form in dict.fromkeys(entry["form"] for entry in result["ours"]):
                floats = best_of(result, form, "floats")
                packed = best_of(result, form, "packed")
                if floats is None or packed is None or peer is None:
                    continue
                smallest = smallest_of(result, form)
                total = smallest["memory"]["total"]
                goal = next((g for g in smallest["goals"] if g["kind"] == "bytes"), None)
                rows.append(
                    [
                        f"{device}: {result['graph_name']}, {form}",
                        format_bytes(peer),
                        format_bytes(floats["memory"]["total"]),
                        format_bytes(packed["memory"]["total"]),
                        f"{format_bytes(total)} ({smallest['features']})",
                        format_bytes(smallest["predicted_memory"]["peak"]),
                        format_ratio(peer / total),
                        "" if goal is None else f"≤ {format_bytes(goal['value'])}",
                    ]
                )
    header = ["GCN", "PyG fp32", "from fp32", "packed, fastest", "smallest", "predicted", "ratio"]
    return markdown_table([*header, "goal"], rows)


def smallest_of(result: Record, form: str) -> Record:
    """Our entry of a case that takes the least memory."""
    features = {name for names in FEATURES.values() for name in names}
    found = [
        entry for entry in result["ours"] if entry["form"] == form and entry["features"] in features
    ]
    return min(found, key=lambda entry: entry["memory"]["total"])


def models_csv(record: Record) -> str:
    """Every contender of every case, one a line; times in seconds, memory in bytes."""
    memory = ("stored", "peak_allocation", "total")
    statistics = ("median", "p10", "p90")
    rows: list[list[Any]] = [
        ["graph", "model", "family", "form", "features", "executor", "in_graph"]
        + [f"{name}_{statistic}" for name in TIMES for statistic in statistics]
        + ["repeats", *memory, "failure"]
    ]
    for result in record["results"]:
        for c in result["contenders"]:
            times: list[Any] = []
            for name in TIMES:
                times += ["" if c[name] is None else f"{c[name][s]:.4g}" for s in statistics]
            repeats = 0 if c["timing"] is None else len(c["timing"]["seconds"])
            bytes_found = ["" if c["memory"] is None else c["memory"][name] for name in memory]
            names = [c[name] for name in ("family", "form", "features", "executor", "in_graph")]
            head = [result["graph_name"], result["model"], *names]
            rows.append([*head, *times, repeats, *bytes_found, c["failure"] or ""])
    return csv_text(rows)
