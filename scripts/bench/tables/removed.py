"""Records without the executors that bitgnn no longer has: the fastest of the others stand in."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
REMOVED = ("cooperative",)
"""Executors in kept records of times."""


def without_removed(record: Record) -> Record:
    """A record of whole models or of profiled cases as if it had been measured today."""
    kept = dict(record)
    if "cases" in kept:
        endings = tuple(f", {name}" for name in REMOVED)
        kept["cases"] = [
            case for case in kept["cases"] if not case.get("name", "").endswith(endings)
        ]
    if "results" in kept:
        kept["results"] = [
            _kept_result(result) if "contenders" in result and "ours" in result else result
            for result in kept["results"]
        ]
    return kept


def _kept_result(result: Record) -> Record:
    contenders = [c for c in result["contenders"] if c.get("executor") not in REMOVED]
    ours = [_kept_entry(entry, contenders) for entry in result["ours"]]
    return {**result, "contenders": contenders, "ours": [entry for entry in ours if entry]}


def _kept_entry(entry: Record, contenders: list[Record]) -> Record | None:
    """The entry of the fastest executor left; None where none was measured."""
    if entry["executor"] not in REMOVED:
        return entry
    others = [
        contender
        for contender in contenders
        if contender["timing"] is not None
        and (contender["family"], contender["form"], contender["features"])
        == ("bitgnn", entry["form"], entry["features"])
    ]
    fastest = min(others, key=lambda other: other["timing"]["median"], default=None)
    if fastest is None:
        return None
    seconds = fastest["timing"]["median"]
    slower = seconds / entry["seconds"]
    goals = [
        goal
        if goal["kind"] == "bytes" or goal["reached"] is None
        else {**goal, "reached": goal["reached"] / slower}
        for goal in entry["goals"]
    ]
    floor, ratio = entry["times_the_floor"], entry["ratio"]
    return {
        **entry,
        "executor": fastest["executor"],
        "seconds": seconds,
        "ratio": None if ratio is None else ratio / slower,
        "times_the_floor": None if floor is None else floor * slower,
        "memory": fastest["memory"],
        "goals": goals,
    }
