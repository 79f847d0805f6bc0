"""Tables of times: mini-batches, the default models beside the papers', calls of the tuner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.report import device_of, environment_line, markdown_table
from bitgnn.measure.report import format_bytes, format_ratio, format_seconds


def runs_table(record: Mapping[str, Any]) -> str:
    """Markdown of a record of ``scripts/bench_tune_runs.py``: one row a call of the command."""
    rows = []
    for result in record["results"]:
        chosen, every = result["chosen"], result["exhaustive"]
        loss = 100 * (result["reference"] - chosen["validation"])
        goal = result["goal"]
        rows.append(
            [
                f"`{result['command']}`",
                f"{result['seconds']:.1f} s" + ("" if goal is None else f" (≤ {goal:.0f} s)"),
                f"{result['measured']} of {result['space']}",
                format_seconds(chosen["latency"]),
                *(_beside(chosen, other) for other in result["baselines"].values()),
                f"{loss:+.1f}",
                "" if every is None else f"{every['ratio']:.3f}× of {every['plans']}",
            ]
        )
    header = [
        "call", "seconds in all", "plans measured", "recommended", "PyG fp32", "Bi-GCN emulated",
        "validation points lost", "beside the best of all that keep the limit",
    ]  # fmt: skip
    machines = {_machine(result["environment"]) for result in record["results"]}
    return f"{'; '.join(sorted(machines))}.\n\n{markdown_table(header, rows)}"


def _beside(chosen: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Latency of a baseline and how many times as long that is."""
    latency = other["latency"]
    return f"{format_seconds(latency)} ({format_ratio(latency / chosen['latency'])})"


def _machine(environment: Mapping[str, Any]) -> str:
    """Processor or GPU, threads and commit."""
    commit = (environment["commit"] or "unknown")[:10]
    where = environment.get("gpu") or f"{environment['cpu']}, {environment['threads']} threads"
    return f"{where}, commit {commit}"


FORMS = (("default", "papers"), ("default, full", "papers, full"))


def default_speed_table(record: dict[str, Any]) -> str:
    """One row a graph: each layer's default model, and its time as a multiple of the papers'."""
    rows: dict[str, list[str]] = {}
    for case in record["cases"]:
        title = f"{case['graph']} ({case['nodes']} × {case['features']})"
        row = rows.setdefault(title, [title])
        for ours, papers in FORMS:
            time, other = (case["times"][form]["median"] for form in (ours, papers))
            row += [format_seconds(time), format_ratio(time / other)]
    layers = dict.fromkeys(case["layer"] for case in record["cases"])
    header = ["graph (nodes × features)"]
    for layer in layers:
        header += [f"{layer} bin", "of the papers'", f"{layer} full", "of the papers'"]
    machine = record["environment"]
    cpu = f"{machine['cpu']} ({machine['capability']}), {machine['threads']} threads"
    device = machine["gpu"] or cpu
    versions, commit = machine["versions"], machine["commit"][:10]
    where = f"{device}, torch {versions['torch']}, commit {commit}, {machine['date'][:10]}; medians"
    return f"{where}.\n\n{markdown_table(header, list(rows.values()))}"


PEER = "PyG"


def training_steps_table(record: dict[str, Any]) -> str:
    """One row a graph and layer: time and peak memory of a step by contender."""
    cases = record["cases"]
    contenders = list(dict.fromkeys(name for case in cases for name in case["forms"]))
    rows = []
    for case in cases:
        row = [f"{case['layer']}, {case['graph']} ({case['nodes']} nodes, {case['edges']} edges)"]
        for name in contenders:
            form = case["forms"].get(name)
            if form is None:
                row.append(case["failed"].get(name, ""))
                continue
            row.append(f"{format_seconds(form['time']['median'])}, {_peak(form)}")
        medians = {name: form["time"]["median"] for name, form in case["forms"].items()}
        peers = [time for name, time in medians.items() if name.startswith(PEER)]
        own = [time for name, time in medians.items() if not name.startswith(PEER)]
        rows.append([*row, format_ratio(min(peers) / min(own)) if peers and own else ""])
    header = ["model, graph", *contenders, "PyG's fastest beside ours"]
    return f"{environment_line(record)}\n\n{markdown_table(header, rows)}"


def _peak(form: Mapping[str, Any]) -> str:
    return format_bytes(form["peak_bytes"])


def stream_table(records: Sequence[dict[str, Any]]) -> str:
    """Markdown of records of ``scripts/bench_stream.py``: a row for each model and contender."""
    rows = []
    for record in records:
        device = device_of(record["environment"])
        for result in record["results"]:
            batches = result["batches"]
            peers = {n: c for n, c in result["contenders"].items() if n.startswith(PEER)}
            slowest = max(peer["median"] for peer in peers.values()) if peers else None
            for name, contender in result["contenders"].items():
                rows.append(
                    [
                        f"{result['model']}, {result['graph']}, {device}",
                        name,
                        format_seconds(contender["median"] / batches),
                        "" if slowest is None else format_ratio(slowest / contender["median"]),
                        ""
                        if name in peers
                        else f"{result['parts']['forward']['median'] / contender['median']:.0%}",
                    ]
                )
    header = [
        "model, graph, machine",
        "contender",
        "a batch",
        "PyG's slowest form",
        "forward alone",
    ]
    return markdown_table(header, rows)
