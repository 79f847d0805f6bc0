"""Tables of sharded graphs, one for several records of ``scripts/bench_scale.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.report import Record, environment_line, shown, table
from bitgnn.measure.report import format_bytes, format_seconds


def scale_table(records: Sequence[Record]) -> str:
    """One row a size and number of GPUs: time, floor, share of the exchange that is hidden."""
    rows = [row for record in records for row in record["records"]]
    rows.sort(key=lambda row: (row["edges"], row["size"], row["ranks"]))
    digests: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        digests.setdefault((row["size"], row["model"]), set()).add(row["digest"])
    differ = [size for (size, _), found in digests.items() if len(found) > 1]
    alike = f"Results differ: {', '.join(differ)}." if differ else "Results of all rows are equal."

    def share(value: float) -> str:
        return f"{100 * min(1.0, max(0.0, value)):.0f} %"

    text = table(
        rows,
        ("size", lambda r: r["size"]),
        ("nodes", lambda r: f"{r['nodes']:,}"),
        ("edges", lambda r: f"{r['edges']:,}"),
        ("GPUs", lambda r: str(r["ranks"])),
        ("forward", lambda r: format_seconds(r["ms"] / 1e3)),
        ("floor", lambda r: format_seconds(r["floor"]["ms"] / 1e3)),
        ("floor's", lambda r: r["floor"]["bound"]),
        (
            "exchange alone",
            lambda r: shown(r.get("exchange_ms"), lambda ms: format_seconds(ms / 1e3)),
        ),
        ("hidden", lambda r: shown(r.get("hidden_share"), share)),
        ("most bytes of a GPU", lambda r: format_bytes(max(r["peak_bytes"]))),
    )
    return f"{environment_line(records[0])} {alike}\n\n{text}"


def orders_table(records: Sequence[Record]) -> str:
    """One row a device, graph and width: the time as given, and the share of it by order."""
    rows = [
        {**row, "device": "GPU" if record["environment"]["gpu"] else "CPU"}
        for record in records
        for row in record["records"]
    ]
    orders = list(dict.fromkeys(kind for row in rows for kind in row["ms"] if kind != "given"))

    def share(kind: str) -> tuple[str, Callable[[Record], str]]:
        def of(row: Record) -> str:
            return shown(row["ms"].get(kind), lambda ms: f"{100 * ms / row['ms']['given']:.0f} %")

        return kind, of

    text = table(
        rows,
        ("device", lambda r: r["device"]),
        ("graph", lambda r: r["graph"]),
        ("edges", lambda r: f"{r['edges']:,}"),
        ("bits", lambda r: str(r["bits"])),
        ("as given", lambda r: format_seconds(r["ms"]["given"] / 1e3)),
        *map(share, orders),
    )
    return f"{environment_line(records[0])}\n\n{text}"


def scale_cpu_table(record: Record) -> str:
    """A whole graph beside PyG, and a partition from disk with its peak of memory."""
    whole, disk = record["records"]
    text = table(
        [*whole["ms"].items()],
        ("forward", lambda r: r[0]),
        ("time", lambda r: format_seconds(r[1] / 1e3)),
    )
    sizes = f"{whole['features']} dense features, {whole['layers']} layers of {whole['hidden']}"
    faster = f"{whole['times_faster']:.1f} times as fast as PyG's fastest form"
    took = f"read in {format_seconds(disk['read_s'])}, forward {format_seconds(disk['forward_s'])}"
    return (
        f"{environment_line(record)} {whole['threads']} threads.\n\n"
        f"{whole['size']}, {whole['nodes']:,} nodes, {whole['edges']:,} edges, {sizes} channels: "
        f"{faster}, {whole['times_faster_packed']:.1f} times on packed features.\n\n{text}\n\n"
        f"{disk['size']}, {disk['nodes']:,} nodes, {disk['edges']:,} edges, from a partition on "
        f"disk: {took}, {format_bytes(disk['peak_bytes'])} of memory at most.\n"
    )
