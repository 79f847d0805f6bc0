"""Chart of default networks: accuracies, and times of a forward on each device."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from bench.report import Record, device_of
from bench.tables.defaults import FORM, Row, rows_of, scores_of, trainings
from bench.tables.models import best_of, peer_seconds
from bitgnn.measure.report import format_ratio, format_seconds

PYG, BITS, PACKED = "#777777", "#e69f00", "#0072b2"
TIMES: dict[str, dict[str, Any]] = {
    "PyG's best": {"color": PYG, "marker": "s"},
    "bits, from floats": {"color": BITS, "marker": "o"},
    "bits, packed": {"color": PACKED, "marker": "D"},
}
"""Colours and marks that are told apart without red or green."""
SIZE = 6
Key = tuple[str, str]


def defaults_chart(*records: Record) -> Figure:
    """A panel of accuracies with standard errors, and one of times for each record, GPUs first."""
    records = tuple(sorted(records, key=lambda record: not record["benchmark"].endswith("cuda")))
    by_record = [{(row.model, row.graph): row for row in rows_of(record)} for record in records]
    keys = list(dict.fromkeys(key for rows in by_record for key in rows))
    figure = Figure(figsize=(10, 1.7 + 0.3 * len(keys)), layout="constrained")
    panels = figure.subplots(1, 1 + len(records), sharey=True, squeeze=False)[0]
    runs = trainings(records[0])
    _accuracies(panels[0], keys, runs)
    for axes, record, rows in zip(panels[1:], records, by_record, strict=True):
        _times(axes, keys, rows)
        on_cuda = record["benchmark"].endswith("cuda")
        axes.set_title(
            f"a forward (logarithmic)\n{device_of(record['environment'], on_cuda=on_cuda)}",
            fontsize=9,
        )
    panels[0].set_yticks(range(len(keys)), [", ".join(key) for key in keys], fontsize=8)
    panels[0].set_ylim(len(keys) - 0.4, -0.6)
    handles = [Line2D([], [], label=name, ls="", **style) for name, style in TIMES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9)
    figure.suptitle("Default networks: accuracy and time of one frozen model in a row", fontsize=11)
    return figure


def _accuracies(axes: Axes, keys: Iterable[Key], runs: list[Record]) -> None:
    for place, key in enumerate(keys):
        for form, colour, mark, offset in (("fp32", PYG, "s", -0.12), (FORM, PACKED, "D", 0.12)):
            found = scores_of(runs, Row(*key, []), form)
            if found:
                error = statistics.stdev(found) / len(found) ** 0.5 if len(found) > 1 else 0.0
                axes.errorbar(
                    statistics.mean(found), place + offset, xerr=error, fmt=mark, color=colour,
                    ms=SIZE - 1, capsize=2, lw=1,
                )  # fmt: skip
    axes.set_title("test accuracy in per cent\n(± standard error)", fontsize=9)
    axes.grid(linewidth=0.3)


def _times(axes: Axes, keys: Iterable[Key], rows: dict[Key, Row]) -> None:
    """Points of seconds, and how many times faster than PyG's best packed features are."""
    for place, key in enumerate(keys):
        if key not in rows:
            continue
        result = rows[key].results[0]
        entries = [best_of(result, FORM, features) for features in ("floats", "packed")]
        seconds = [
            peer_seconds(result, "PyG"),
            *(None if e is None else e["seconds"] for e in entries),
        ]
        known = [value for value in seconds if value is not None]
        axes.plot([min(known), max(known)], [place, place], color="#cccccc", lw=1, zorder=1)
        for value, style in zip(seconds, TIMES.values(), strict=True):
            if value is not None:
                axes.plot(value, place, ls="", ms=SIZE, **style)
        ratios = [format_ratio(e["ratio"]) for e in entries if e is not None and e["ratio"]]
        axes.annotate(
            " / ".join(ratios), (max(known), place), (6, 0), textcoords="offset points",
            va="center", fontsize=7,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(numticks=5))
    axes.xaxis.set_major_formatter(lambda value, place: format_seconds(value))
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * (high / low) ** 0.4)  # room for ratios
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(linewidth=0.3)
