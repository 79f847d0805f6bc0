"""Tables of times: mini-batches, decoders, trainings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.report import (
    Record,
    device_of,
    environment_line,
    markdown_table,
    shown,
    table,
)
from bench.training_steps import AS_GRAPH
from bitgnn.measure.report import format_bytes, format_ratio, format_seconds

PEER = "PyG"


def training_steps_table(record: Record) -> str:
    """One row a graph and layer: by contender, time of a step, as a CUDA graph too, and memory."""
    cases = record["cases"]
    names = dict.fromkeys(name for case in cases for name in case["forms"])
    contenders = [name for name in names if not name.endswith(AS_GRAPH)]
    rows = []
    for case in cases:
        row = [f"{case['layer']}, {case['graph']} ({case['nodes']} nodes, {case['edges']} edges)"]
        for name in contenders:
            form = case["forms"].get(name)
            if form is None:
                row.append(case["failed"].get(name, ""))
                continue
            time = format_seconds(form["time"]["median"])
            captured = case["forms"].get(f"{name}{AS_GRAPH}")
            if captured is not None:
                time += f" (graph {format_seconds(captured['time']['median'])})"
            row.append(f"{time}, {format_bytes(form['peak_bytes'])}")
        medians = {name: form["time"]["median"] for name, form in case["forms"].items()}
        peers = [time for name, time in medians.items() if name.startswith(PEER)]
        own = [time for name, time in medians.items() if not name.startswith(PEER)]
        rows.append([*row, format_ratio(min(peers) / min(own)) if peers and own else ""])
    header = ["model, graph", *contenders, "PyG's fastest beside ours"]
    return f"{environment_line(record)}\n\n{markdown_table(header, rows)}"


def calls_table(record: Record) -> str:
    """Markdown of a record of ``scripts/bench_calls.py``: one row a case and contender."""
    rows = [
        [
            f"{result['group']}: {result['name']}",
            name,
            *(format_seconds(times[way]["median"]) for way in ("call", "queued")),
        ]
        for result in record["results"]
        for name, times in result["contenders"].items()
    ]
    header = ["case", "called as", "call to result", "a call, queued"]
    return f"{environment_line(record)}\n\n{markdown_table(header, rows)}"


def stream_table(records: Sequence[Record]) -> str:
    """Markdown of records of ``scripts/bench_stream.py``: a row for each model and contender."""

    def rows() -> Iterator[tuple[str, str, float, float, str]]:
        for record in records:
            for result in record["results"]:
                title = f"{result['model']}, {result['graph']}, {device_of(record['environment'])}"
                medians = {name: c["median"] for name, c in result["contenders"].items()}
                fastest = min(time for name, time in medians.items() if name.startswith(PEER))
                for name, median in medians.items():
                    share = f"{result['parts']['forward']['median'] / median:.0%}"
                    share = "" if name.startswith(PEER) else share
                    yield title, name, median / result["batches"], fastest / median, share

    return table(
        rows(),
        ("model, graph, machine", lambda row: row[0]),
        ("contender", lambda row: row[1]),
        ("a batch", lambda row: format_seconds(row[2])),
        ("beside PyG's fastest", lambda row: format_ratio(row[3])),
        ("forward alone", lambda row: row[4]),
    )


def sampling_table(record: Record) -> str:
    """Markdown of a record of ``scripts/bench_sampling.py``: a row for each graph and way."""
    results = record["results"]
    names = dict.fromkeys(name for result in results for name in result["contenders"])

    def beside(result: Record) -> str:
        """The fastest peer next to ours, for each number of threads."""
        ours: dict[str, float] = {}
        theirs: dict[str, float] = {}
        for name, contender in result["contenders"].items():
            sampler, threads = name.rsplit(", ", 1)
            best = ours if sampler == "bitgnn" else theirs
            best[threads] = min(best.get(threads, contender["median"]), contender["median"])
        return ", ".join(format_ratio(theirs[n] / ours[n]) for n in ours if n in theirs)

    found = table(
        results,
        ("graph, fan-outs, way", lambda r: r["name"]),
        ("edges", lambda r: f"{next(iter(r['contenders'].values()))['edges']}"),
        *((name, lambda r, n=name: shown(r["contenders"].get(n), _median)) for name in names),
        ("fastest peer beside ours", beside),
    )
    return f"{environment_line(record)}\n\n{found}"


def hamming_table(record: Record) -> str:
    """Markdown of a record of ``scripts/bench_hamming.py``: a row for each case."""
    results = record["results"]
    names = dict.fromkeys(name for result in results for name in result["contenders"])
    found = table(
        results,
        ("queries, codes", lambda r: r["name"]),
        *((name, lambda r, n=name: shown(r["contenders"].get(n), _median)) for name in names),
        ("torch beside ours", lambda r: format_ratio(r["ratio"])),
    )
    return f"{environment_line(record)}\n\n{found}"


def attention_table(record: Record) -> str:
    """One row a model: ours and PyG's forms, the bytes of ours and of PyG's fastest."""
    results = record["results"]
    names = dict.fromkeys(c["name"] for result in results for c in result["contenders"])

    def of(result: Record, name: str | None) -> Record:
        return next((c for c in result["contenders"] if c["name"] == name), {})

    def time(result: Record, name: str) -> str:
        return shown(of(result, name).get("timing"), _median)

    def held(result: Record, name: str | None) -> str:
        return shown(of(result, name).get("bytes"), format_bytes)

    found = table(
        results,
        ("model", lambda r: f"{r['group']}: {r['name']}"),
        *((name, lambda r, n=name: time(r, n)) for name in names),
        ("PyG's best beside ours", lambda r: shown(r["ratio"], format_ratio)),
        ("bytes", lambda r: held(r, r["form"])),
        ("PyG's", lambda r: held(r, r["peer"])),
    )
    return f"{environment_line(record)}\n\n{found}"


def _median(timing: Record) -> str:
    return format_seconds(timing["median"])


def decoder_speed_table(record: Record) -> str:
    """One table a size of decoders, a row a share and batch."""
    text = environment_line(record) + "\n"
    by_size: dict[str, list[Record]] = {}
    for result in record["results"]:
        by_size.setdefault(str(result["network"]), []).append(result)
    for speeds in by_size.values():
        size = speeds[0]["network"]
        text += f"\n{size['layers']} layers of {size['width']} features:\n\n{_decoders(speeds)}"
    return text


def _decoders(speeds: Sequence[Record]) -> str:
    floats = {speed["batch"]: speed for speed in reversed(speeds) if not speed["layers"]}

    def against_floats(speed: Record, name: str) -> str:
        return f"{floats[speed['batch']][name] / speed[name]:.2f}×"

    def time(speed: Record, name: str, tokens: int) -> str:
        return f"{format_seconds(speed[name])} ({speed['batch'] * tokens / speed[name]:,.0f}/s)"

    prompt = speeds[0]["prompt"]
    return table(
        speeds,
        ("form", lambda s: f"{s['form']}, batch {s['batch']}"),
        ("layers on bits", lambda s: str(s["layers"])),
        (f"prompt of {prompt} tokens", lambda s: time(s, "prefill_seconds", prompt)),
        ("against floats", lambda s: against_floats(s, "prefill_seconds")),
        ("one token", lambda s: time(s, "decode_seconds", 1)),
        ("against floats", lambda s: against_floats(s, "decode_seconds")),
        ("bytes", lambda s: format_bytes(s["bytes"])),
    )
