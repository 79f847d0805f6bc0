"""Tables of docs/papers.md with times in the papers' sizes, and of hardware counters."""

from __future__ import annotations

from bench.report import Record, environment_line, markdown_table, shown, table
from bench.tables.networks import bnn_table
from bitgnn.measure.report import format_ratio, format_seconds

NAMES = ("graph", "way", "kernel", "seconds")
"""Entries of a profiled kernel that are no counters."""
WHOLE, PRODUCT, PACKING = "packing and product", "product of packed rows", "packing alone"
PARTS = "parts of a linear layer"
WAITS = {
    "graph": "boundary of two kernels in a CUDA graph",
    "overlapped": "boundary of two kernels whose launches overlap",
}
"""What the names of waits mean; those of grids are told as they are."""


def groups_table(record: Record, *beginnings: str) -> str:
    """The tables of the groups whose names begin so."""
    own = {
        name: [one for one in record[name] if one["group"].startswith(beginnings)]
        for name in ("results", "skipped", "failed")
    }
    return bnn_table({**record, **own})


def product_parts_table(record: Record) -> str:
    """Whole layers, their product and their packing beside torch in fp16; then the other groups."""
    own = [one for one in record["results"] if one["group"] == PARTS]
    found = table(
        own,
        (PARTS, lambda r: r["name"]),
        ("whole", lambda r: _time(r, WHOLE)),
        ("product of packed rows", lambda r: _time(r, PRODUCT)),
        ("packing alone", lambda r: _time(r, PACKING)),
        ("torch fp16", lambda r: _time(r, "torch fp16")),
        ("ratio", lambda r: shown(r["ratio"], format_ratio)),
    )
    return f"{groups_table(record, '256x256')}\n{found}"


def median_of(result: Record, name: str) -> float | None:
    """Median seconds of the first contender whose name begins so."""
    for contender in result["contenders"]:
        if contender["name"].startswith(name) and contender["timing"] is not None:
            median: float = contender["timing"]["median"]
            return median
    return None


def _time(result: Record, name: str) -> str:
    return shown(median_of(result, name), format_seconds)


def counters_table(record: Record) -> str:
    """A row a graph and way, a column a counter in per cent."""
    counters = [name for name in record["results"][0] if name not in NAMES]
    rows = [
        [f"{r['graph']}, {r['way']}", *(shown(r[name], "{:.0f} %".format) for name in counters)]
        for r in record["results"]
    ]
    heading = ["sum over neighbours, 256 features", *counters]
    return f"{environment_line(record)}\n\n{markdown_table(heading, rows)}"


def waits_table(record: Record) -> str:
    """A row a way to keep layers apart, seconds of one wait."""
    found = table(
        record["results"],
        ("between two layers", lambda r: WAITS.get(r["name"], r["name"])),
        ("time", lambda r: format_seconds(r["seconds"])),
    )
    tiles = table(
        record["cycles_of_tiles"].items(),
        ("one warp, tiles of 8x8x128", lambda item: item[0]),
        ("cycles", lambda item: f"{item[1]:.0f}"),
    )
    return f"{environment_line(record)}\n\n{found}\n{tiles}"
