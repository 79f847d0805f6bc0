"""Tables of the whole-model benchmark: best executors and memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from bench.report import (
    Record,
    environment_line,
    format_reached,
    not_measured,
    shown,
    table,
)
from bitgnn.measure.report import format_bytes, format_ratio, format_seconds

MEMORY_MODEL = "GCN"
"""The documents show memory of this model."""
A_CALL = "a call"
FEATURES = {"floats": ("floats",), "packed": ("packed", "packed dense")}


def best_of(result: Record, form: str, features: str) -> Record | None:
    """Our fastest entry of a case from fp32 (``"floats"``), packed or sparse features, or None."""
    found = [
        entry
        for entry in result["ours"]
        if entry["form"] == form
        and entry["features"] in FEATURES.get(features, (features,))
        and entry["seconds"] is not None
    ]
    return min(found, key=lambda entry: entry["seconds"], default=None)


def _measured(result: Record, family: str, arithmetic: str) -> Iterable[Record]:
    for c in result["contenders"]:
        if c["family"] == family and c["form"].endswith(arithmetic) and c["timing"] is not None:
            yield c


def peer_seconds(result: Record, family: str, arithmetic: str = "") -> float | None:
    """Median of the fastest contender of a family whose name ends in ``arithmetic``."""
    found = _measured(result, family, arithmetic)
    return min((c["timing"]["median"] for c in found), default=None)


def peer_memory(result: Record) -> int | None:
    """Bytes of PyG's smallest fp32 form."""
    found = _measured(result, "PyG", "fp32")
    return min((c["memory"]["total"] for c in found if c["memory"] is not None), default=None)


def _forms(results: Iterable[Record]) -> Iterator[tuple[Record, str, Record | None, Record | None]]:
    """Each case and form with its best entries from fp32 and from packed features."""
    for result in results:
        for form in dict.fromkeys(entry["form"] for entry in result["ours"]):
            yield result, form, *(best_of(result, form, features) for features in FEATURES)


def models_table(record: Record) -> str:
    """Markdown of one record: a row for each model, graph and form, with the best executor."""

    def time(entry: Record) -> str:
        executor = {"cuda_graph": "graph"}.get(entry["executor"], entry["executor"])
        return f"{format_seconds(entry['seconds'])} ({executor})"

    def ratio(name: str, entry: Record) -> str:
        return shown(entry[name], format_ratio)

    has_calls = any("peer_calls" in result for result in record["results"])
    timed = []
    for place, heading in ((2, "from fp32"), (3, "packed")):
        for title, text in (
            (heading, time), *[(A_CALL, lambda entry: _listed(_our_calls(entry)))] * has_calls,
            ("ratio", partial(ratio, "ratio")), ("floor", partial(ratio, "times_the_floor")),
        ):  # fmt: skip
            timed.append((title, lambda row, p=place, text=text: shown(row[p], text)))
    found = table(
        _forms(record["results"]),
        ("model", lambda row: f"{row[0]['model']} {row[1]}, {row[0]['graph_name']}"),
        ("PyG's best", lambda row: _peer(row[2] or row[3])),
        *[(A_CALL, lambda row: _listed(_peer_calls(row[0])))] * has_calls,
        *timed,
        ("PyG fp32", lambda row: _single_precision(row[0], row[2])),
        ("goal", lambda row: _goals(row[2:])),
    )
    return f"{environment_line(record)}\n\n{found}{not_measured(record)}"


def _our_calls(entry: Record) -> dict[str, float]:
    """Host time of a call of the model itself, and captured."""
    calls = entry.get("calls", {})
    return {name: call["median"] for name, call in calls.items() if call is not None}


def _peer_calls(result: Record) -> dict[str, float]:
    """Host time of a call of PyG's best forms, eager and as a CUDA graph."""
    calls = result.get("peer_calls", {}).get("calls", {})
    return {name.replace("cuda_graph", "graph"): call["median"] for name, call in calls.items()}


def _listed(calls: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in calls.items())


def shortest_calls(result: Record, form: str, features: str) -> tuple[float, float] | None:
    """Host time of PyG's shortest call and of ours; None where one is not measured."""
    entry = best_of(result, form, features)
    theirs, ours = _peer_calls(result), _our_calls(entry or {})
    return (min(theirs.values()), min(ours.values())) if theirs and ours else None


def _single_precision(result: Record, entry: Record | None) -> str:
    """PyG's fastest form that computes in fp32, and how many times faster ours is from fp32."""
    peer = peer_seconds(result, "PyG", "fp32")
    if peer is None:
        return ""
    ratio = "" if entry is None else f" ({format_ratio(peer / entry['seconds'])})"
    return f"{format_seconds(peer)}{ratio}"


def _peer(entry: Record | None) -> str:
    if entry is None or entry["peer_seconds"] is None:
        return ""
    name = entry["peer"].removesuffix(", eager").replace(", cuda_graph", "")
    return f"{format_seconds(entry['peer_seconds'])} ({name})"


def _goals(entries: Iterable[Record | None]) -> str:
    """Each figure with the parts reached from fp32 features and from packed ones."""
    found: dict[str, list[str]] = {}
    for entry in filter(None, entries):
        for goal in entry["goals"]:
            if goal["kind"] == "bytes" or goal["reached"] is None:
                continue
            is_ratio = goal["kind"] == "ratio"
            figure = f"{goal['value']:g}×" if is_ratio else f"≤ {format_seconds(goal['value'])}"
            name = "fp32" if goal["features"] == "floats" else "packed"
            found.setdefault(figure, []).append(f"{format_reached(goal['reached'])} {name}")
    return "; ".join(f"{figure}: {', '.join(parts)}" for figure, parts in found.items())


def memory_table(records: Sequence[Record]) -> str:
    """Markdown of all records: what a forward of a GCN keeps and allocates, measured."""
    rows = []
    for record in records:
        device = record["benchmark"].rpartition("_")[2]
        shown_models = [r for r in record["results"] if r["model"] == MEMORY_MODEL]
        for result, form, floats, packed in _forms(shown_models):
            peer = peer_memory(result)
            if floats is None or packed is None or peer is None:
                continue
            known = {name for names in FEATURES.values() for name in names}
            entries = [e for e in result["ours"] if e["form"] == form and e["features"] in known]
            least = min(entries, key=lambda entry: entry["memory"]["total"])
            goal = next((g["value"] for g in least["goals"] if g["kind"] == "bytes"), None)
            title = f"{device}: {result['graph_name']}, {form}"
            totals = [entry["memory"]["total"] for entry in (floats, packed, least)]
            rows.append((title, peer, *totals, least, goal))
    return table(
        rows,
        ("GCN", lambda row: row[0]),
        ("PyG fp32", lambda row: format_bytes(row[1])),
        ("from fp32", lambda row: format_bytes(row[2])),
        ("packed, fastest", lambda row: format_bytes(row[3])),
        ("smallest", lambda row: f"{format_bytes(row[4])} ({row[5]['features']})"),
        ("ratio", lambda row: format_ratio(row[1] / row[4])),
        ("goal", lambda row: shown(row[6], lambda goal: f"≤ {format_bytes(goal)}")),
    )
