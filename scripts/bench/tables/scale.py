"""Tables of sharded graphs, one for several records of ``scripts/bench_scale.py``."""

from __future__ import annotations

from collections.abc import Sequence

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
