"""Figures of records for texts: ``{{bnn_cuda: MLP, 8 images}}`` becomes a time and its ratio."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path

from bench.report import Record, mean_and_error
from bench.tables.models import best_of
from bench.tables.paper_times import NAMES, PACKING, PRODUCT, WHOLE, median_of
from bitgnn.measure.report import format_bytes, format_ratio, format_seconds

PLACEHOLDER = re.compile(r"\{\{(\w+): ([^}]+)\}\}")
MISSING, UNMEASURED = "not recorded", "not measured yet"


def filled(text: str, results: Path) -> str:
    """``text`` with the figures of the records in folder ``results`` in place of their names."""
    return PLACEHOLDER.sub(lambda found: figure(found[1], found[2], results), text)


def figure(kind: str, name: str, results: Path) -> str:
    """One figure as text; in words where there is no such record, or no such figure in it."""
    source, make = KINDS[kind]
    path = results / f"{source}.json"
    return make(_read(path), name) or MISSING if path.is_file() else UNMEASURED


@cache
def _read(path: Path) -> Record:
    found: Record = json.loads(path.read_text("utf-8"))
    return found


def _case(record: Record, name: str) -> str | None:
    """Time of a case, and how many times faster than the best other contender it is."""
    for result in record["results"]:
        if name in (result["name"], f"{result['group']}: {result['name']}"):
            seconds = result["ours"]["median"] if "ours" in result else result["seconds"]
            peer = result["best_baseline"] if "ours" in result else result["peer"]
            ratio = "" if peer is None else f" ({format_ratio(result['ratio'])})"
            return f"{format_seconds(seconds)}{ratio}"
    return None


def _rate(record: Record, name: str) -> str | None:
    """Items a second of a case."""
    for result in record["results"]:
        if result["name"] == name:
            return f"{result['work'] / result['seconds'] / 1e6:.3g} million/s"
    return None


def _ratios(record: Record, beginning: str) -> str | None:
    """Lowest and highest ratio of the cases whose group and name begin so."""
    titles = [(f"{r['group']}: {r['name']}", r["ratio"]) for r in record["results"]]
    return _span(ratio for title, ratio in titles if title.startswith(beginning))


def _span(ratios: Iterable[float]) -> str | None:
    values = sorted(ratios)
    return f"{format_ratio(values[0])} to {format_ratio(values[-1])}" if values else None


def _model(features: str, record: Record, name: str) -> str | None:
    """Time of a whole forward and its ratio: ``GCN Cora bin``."""
    found = _result(record, name)
    entry = None if found is None else best_of(*found, features)
    if entry is None:
        return None
    ratio = "" if entry["ratio"] is None else f" ({format_ratio(entry['ratio'])})"
    return f"{format_seconds(entry['seconds'])}{ratio}"


def _memory(record: Record, name: str) -> str | None:
    """Bytes of the smallest way to run a model in a form, features and graph among them."""
    found = _result(record, name)
    entries = [] if found is None else [e for e in found[0]["ours"] if e["form"] == found[1]]
    totals = [entry["memory"]["total"] for entry in entries if entry["memory"] is not None]
    return format_bytes(min(totals)) if totals else None


def _result(record: Record, name: str) -> tuple[Record, str] | None:
    model, graph, form = name.split()
    for result in record["results"]:
        if result["model"] == model and graph.lower() in result["graph_name"].lower():
            return result, form
    return None


def _trained(record: Record, name: str) -> str | None:
    """Mean test accuracy and standard error of runs: ``GCNConv Cora papers-bin``."""
    layer, graph, form = name.split()
    wanted = [
        run["test"] for run in record["runs"]
        if (run["layer"], run["graph"], run["form"]) == (layer, graph, form)
    ]  # fmt: skip
    return f"{mean_and_error(wanted)} %" if wanted else None


def _students(record: Record, name: str) -> str | None:
    """Mean test accuracy of students and of their teachers: ``MLP, MNIST / 1``."""
    task, form = name.split(" / ")
    found = [
        run["students"][form] for run in record["runs"]
        if task in (run.get("task"), run.get("graph")) and form in run["students"]
    ]  # fmt: skip
    if not found:
        return None
    test = statistics.mean(100 * student["test"] for student in found)
    teacher = statistics.mean(
        100 * student.get("teacher_test", student.get("teacher")) for student in found
    )
    return f"{test:.1f} % (teacher {teacher:.1f} %)"


def _members(record: Record, name: str) -> str | None:
    """Mean test accuracy of a form of ensembles: ``Cora seeds-3-soft``."""
    graph, form = name.split()
    found = [run["tests"][form] for run in record["runs"] if run["graph"] == graph]
    return f"{mean_and_error(found)} %" if found else None


def _ranks(record: Record, name: str) -> str | None:
    """Time of the members and of the reduction of their votes: ``2 nccl soft bagging``."""
    ranks, backend, voting = name.split(maxsplit=2)
    for one in record["results"]:
        if (str(one["ranks"]), one["backend"], one["voting"]) == (ranks, backend, voting):
            times = (format_seconds(one[part]["median"]) for part in ("members", "all_reduce"))
            return " and ".join(times)
    return None


def _parts(record: Record, name: str) -> str | None:
    """Times of the whole, of its product and of its packing, each alone, of a case."""
    found = _titled(record, name)
    if found is None:
        return None
    medians = [median_of(found, part) for part in (WHOLE, PRODUCT, PACKING)]
    return " / ".join("-" if m is None else format_seconds(m) for m in medians)


def _orders(record: Record, name: str) -> str | None:
    """Times of products whose operands lie in all four orders."""
    found = _titled(record, f"BMM, transposed: {name}")
    if found is None:
        return None
    ours = [c for c in found["contenders"] if c["ours"] and c["timing"] is not None]
    return ", ".join(f"{c['name']} {format_seconds(c['timing']['median'])}" for c in ours)


def _titled(record: Record, title: str) -> Record | None:
    return next((r for r in record["results"] if f"{r['group']}: {r['name']}" == title), None)


def _waits(record: Record, beginning: str) -> str | None:
    """Shortest wait of the ways whose names begin so."""
    found = [one["seconds"] for one in record["results"] if one["name"].startswith(beginning)]
    return format_seconds(min(found)) if found else None


def _cycles(record: Record, name: str) -> str | None:
    """Cycles of a load, a store or a chain of products of tiles."""
    found = record["cycles_of_tiles"].get(name)
    return None if found is None else f"{found:.0f}"


def _counters(record: Record, name: str) -> str | None:
    """Counters of a way on a graph: ``flickr / bits in and out``."""
    graph, way = name.split(" / ")
    for one in record["results"]:
        if (one["graph"], one["way"]) == (graph, way):
            known = {key: one[key] for key in one if key not in NAMES and one[key] is not None}
            return ", ".join(f"{key} {value:.0f} %" for key, value in known.items())
    return None


def _shares(phase: str, record: Record, name: str) -> str | None:
    """Parts of a decoder's time by kind of operator, by layers, width, form and batch."""
    layers, width, form, batch = name.split()
    for one in record["results"]:
        sizes = str(one["network"]["layers"]), str(one["network"]["width"])
        if (*sizes, one["form"], str(one["batch"])) == (layers, width, form, batch):
            times = one["operators"][phase]
            whole = sum(times.values())
            kinds = sorted(times, key=times.__getitem__, reverse=True)
            return ", ".join(f"{kind} {times[kind] / whole:.0%}" for kind in kinds)
    return UNMEASURED


def _stream(record: Record, model: str) -> str | None:
    """Time of a batch from packed rows, and its ratio to PyG's fastest form."""
    for result in record["results"]:
        if result["model"] == model:
            times = {
                name: timing["median"] / result["batches"]
                for name, timing in result["contenders"].items()
            }
            ours = min(time for name, time in times.items() if name.startswith("bitgnn"))
            peer = min(time for name, time in times.items() if name.startswith("PyG"))
            return f"{format_seconds(ours)} ({format_ratio(peer / ours)})"
    return None


def _decoder(phase: str, record: Record, name: str) -> str | None:
    """Ratio of the float decoder's time to that of a form, by layers, width and batch."""
    layers, width, form, batch = name.split()
    times = {
        result["form"]: result[f"{phase}_seconds"] for result in record["results"]
        if (str(result["network"]["layers"]), str(result["network"]["width"])) == (layers, width)
        and str(result["batch"]) == batch
    }  # fmt: skip
    if not times:  # a size that came after the record
        return UNMEASURED
    return format_ratio(times["fp32"] / times[form]) if {"fp32", form} <= times.keys() else None


CASES = ("bnn_cuda", "bnn_cpu", "bwta_cuda", "ops", "ops_cuda", "papers_cuda", "papers_cpu")
KINDS: dict[str, tuple[str, Callable[[Record, str], str | None]]] = {
    **{name: (name, _case) for name in CASES},
    "rate": ("bnn_cuda", _rate),
    "ratios": ("bnn_cuda", _ratios),
    "ratios_bwta": ("bwta_cuda", _ratios),
    "floats": ("models_cuda", partial(_model, "floats")),
    "packed": ("models_cuda", partial(_model, "packed")),
    "memory": ("models_cuda", _memory),
    "own_recipe": ("papers_networks", _trained),
    "table3": ("table3", _students),
    "images": ("distilled_images", _students),
    "texts": ("distilled_texts", _students),
    "ensembles": ("ensembles", _members),
    "stream": ("stream_cuda", _stream),
    "prefill": ("decoder_cuda", partial(_decoder, "prefill")),
    "decode": ("decoder_cuda", partial(_decoder, "decode")),
    "prefill_shares": ("decoder_cuda", partial(_shares, "prefill")),
    "decode_shares": ("decoder_cuda", partial(_shares, "decode")),
    "parts": ("papers_cuda", _parts),
    "orders": ("papers_cuda", _orders),
    "counters": ("counters_cuda", _counters),
    "waits": ("waits_cuda", _waits),
    "cycles": ("waits_cuda", _cycles),
    "falling": ("distilled_falling", _students),
    "ranks": ("ensembles_ranks", _ranks),
}
"""Record and reader of each kind of placeholder."""
