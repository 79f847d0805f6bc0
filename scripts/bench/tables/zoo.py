"""Markdown of the packed models' cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.report import busy, mean_and_error, table
from bitgnn.measure.report import format_bytes, format_seconds

ZOO = Path("bitgnn", "models", "zoo")


def zoo_table(results: Path) -> str:
    """One row a model: scores of teachers and students, bytes, and the time of a call."""
    files = sorted((results.parents[1] / ZOO).glob("*/card.json"))
    cards = [json.loads(file.read_text("utf-8")) for file in files]
    devices = {device for card in cards for device in card["seconds_of_a_call"] or ()}
    found = table(
        cards,
        ("name", lambda card: f"`{card['name']}`"),
        ("predicts", lambda card: f"{card['kind']}, {card['data'].split(',')[0]}"),
        ("score", lambda card: card["metric"]),
        *((f"{form}, %", lambda card, form=form: _score(card, form)) for form in ("fp32", "bits")),
        ("bytes", lambda card: " → ".join(format_bytes(n) for n in card["bytes"].values())),
        *((f"a call, {_NAMES[d]}", lambda card, d=d: _time(card, d)) for d in sorted(devices)),
    )
    seeds = sorted({len(card["seeds"]) for card in cards})
    where = {card["environment"]["gpu"] or card["environment"]["cpu"] for card in cards}
    machines = " or ".join(sorted(where))
    timed = [card for card in cards if card["seconds_of_a_call"]]
    notes = {busy(card) for card in timed}
    return (
        f"Means and standard errors over {' or '.join(map(str, seeds))} trainings each, on "
        f"{machines}. Bytes: of the teacher's floats, and of the whole folder."
        f"{max(notes, default='')}\n\n{found}"
    )


_NAMES = {"cpu": "one core", "cuda": "GPU"}


def _score(card: dict[str, Any], form: str) -> str:
    return mean_and_error([100 * score for score in card["scores"][form]])


def _time(card: dict[str, Any], device: str) -> str:
    times = (card["seconds_of_a_call"] or {}).get(device)
    return "" if times is None else " → ".join(format_seconds(t) for t in times.values())
