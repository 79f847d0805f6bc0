"""Markdown of a run of ``bitgnn tune``: its candidates next to the float model."""

from __future__ import annotations

from bench.report import Record, busy, device_of, table, versions_of
from bitgnn.measure.report import format_bytes, format_seconds


def tuner_table(record: Record) -> str:
    """A row a candidate and form of the float model; the search's own report below."""

    def limits(point: Record) -> str:
        front = ", on the front" if point["on_front"] else ""
        return ("kept" if point["meets_limits"] else "missed") + front

    found = table(
        [*record["points"], *record["floats"]],
        ("precisions, width", lambda p: f"{p['name']}{', taken' if p['best'] else ''}"),
        ("validation, %", lambda p: f"{100 * p['validation']:.1f}"),
        ("test, %", lambda p: f"{100 * p['test']:.1f}"),
        ("latency", lambda p: format_seconds(p["latency"]["median"])),
        ("memory", lambda p: format_bytes(p["memory"])),
        ("limits", limits),
    )
    work = record["workload"]
    notes = [f"- no time was left for {len(record['left_out'])} candidates"]
    notes = notes if record["left_out"] else []
    notes += [f"- {remark}" for remark in record["remarks"]]
    return (
        f"{work['model']} on {work['nodes']} nodes, {device_of(record['environment'])}, "
        f"{versions_of(record)}; {record['seconds']:.0f} s of {record['budget']:.0f} s in all."
        f"{busy(record)}\n\n{found}" + "".join(f"\n{note}" for note in notes) + "\n" * bool(notes)
    )
