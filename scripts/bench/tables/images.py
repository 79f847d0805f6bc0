"""Markdown of what ``scripts/train_images.py`` records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.report import markdown_table, trained_on
from bitgnn.measure.report import format_seconds

Record = dict[str, Any]


def images_table(records: Sequence[Record]) -> str:
    """One row a network, goals below."""
    rows = [_row(record) for record in reversed(records)]
    header = [
        "network", "seeds", "fp32, %", "binary, %", "papers, %", "epochs: fp32, binary",
        "one epoch: fp32, binary", "frozen equals trained",
    ]  # fmt: skip
    goals = [line for record in reversed(records) for line in _goals(record)]
    return f"{trained_on(records[0])}.\n\n{markdown_table(header, rows)}\n{''.join(goals)}"


def _row(record: Record) -> list[str]:
    config, forms = record["config"], record["forms"]
    published = config["published"]
    found = [forms.get(form) for form in ("fp32", "binary")]
    return [
        config["title"],
        str(max(len(form["runs"]) for form in forms.values())),
        *("" if f is None else _accuracy(f) for f in found),
        "" if published is None else f"{published[0]} to {published[1]}",
        ", ".join(str(len(f["runs"][0]["history"])) for f in found if f is not None),
        ", ".join(format_seconds(f["epoch_seconds_median"]) for f in found if f is not None),
        _frozen(forms.get("binary")),
    ]


def _accuracy(form: Record) -> str:
    return f"{form['accuracy_mean_percent']:.1f} ± {form['accuracy_std_points']:.1f}"


def _frozen(form: Record | None) -> str:
    """On how many images of all test sets and seeds the classes are equal, by device."""
    counts: dict[str, list[int]] = {}
    for run in [] if form is None else form["runs"]:
        for check in run["frozen"]:
            sums = counts.setdefault(check["device"], [0, 0])
            sums[0] += check["equal"]
            sums[1] += check["images"]
    found = (f"{device}: {equal} of {images}" for device, (equal, images) in sorted(counts.items()))
    return "; ".join(found) or "not compared"


def _goals(record: Record) -> list[str]:
    config, form = record["config"], record["forms"].get("binary")
    if form is None or config["published"] is None:
        return []
    lowest, mean = config["published"][0], form["accuracy_mean_percent"]
    verdict = "met" if mean >= lowest else "MISSED"
    return [f"- {verdict}: {config['title']}: binary: {mean:.2f}, the papers' {lowest} or more\n"]
