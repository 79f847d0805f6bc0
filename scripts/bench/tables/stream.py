"""Table of the mini-batch benchmark: time of a batch for each contender, all records together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.report import device_of, markdown_table
from bitgnn.measure.report import format_ratio, format_seconds

PEER = "PyG"


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
