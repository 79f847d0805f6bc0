"""Markdown of what ``scripts/train_text.py`` records."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from bench.report import environment_line, markdown_table, trained_on
from bitgnn.measure.report import format_bytes, format_seconds

Record = dict[str, Any]
ORDER = ("binary", "bwta_bit", "bwta_level")
"""BWTA's paper has them in this order, the last one best."""


def text_table(records: Sequence[Record]) -> str:
    """One row a form of an experiment, and whether the paper's order of methods holds."""
    compared = [r for r in reversed(records) if not _is_perplexity(r) or ORDER[0] in r["forms"]]
    if not compared:
        return "Not measured yet.\n"
    compared.sort(key=_is_perplexity)
    rows = [
        [
            f"{record['config']['title']}: {form}",
            str(len(entry["runs"])),
            _levels(record["config"]["forms"][form]),
            _score(record, entry["test_mean"], entry["test_std"]),
            ", ".join(
                _score(record, record["score_factor"] * run["test_score"]) for run in entry["runs"]
            ),
            f"{entry['validation_loss_mean']:.3f}",
            f"{entry['epochs_median']:.0f}",
        ]
        for record in compared
        for form, entry in record["forms"].items()
    ]
    header = [
        "task: form", "seeds", "levels", "test score", "of each seed", "validation loss", "epochs",
    ]  # fmt: skip
    orders = "".join(_order(record) for record in compared)
    return f"{_trained_lines(compared)}\n\n{markdown_table(header, rows)}\n{orders}"


def decoder_table(records: Sequence[Record]) -> str:
    """One row a form of the decoder: perplexities, layers, and whether frozen ones answer alike."""
    found = [r for r in records if _is_perplexity(r) and ORDER[0] not in r["forms"]]
    if not found:
        return "Not measured yet.\n"
    record = found[0]
    rows = []
    for form, entry in record["forms"].items():
        frozen = record.get("frozen", {}).get(form)
        rows.append(
            [
                form,
                str(len(entry["runs"][0]["layers"]) or "0"),
                f"{entry['test_mean']:.3f}",
                f"{entry['validation_mean']:.3f}",
                f"{entry['epochs_median']:.0f}",
                "" if frozen is None else f"{frozen['equal']} of {frozen['answers']}",
            ]
        )
    header = [
        "decoder", "layers on bits", "test perplexity", "validation perplexity", "epochs",
        "frozen answers as trained",
    ]  # fmt: skip
    return f"{trained_on(record)}.\n\n{markdown_table(header, rows)}"


def decoder_speed_table(record: Record) -> str:
    """One table a size of decoders, a row a share and batch."""
    text = environment_line(record) + "\n"
    sizes: list[Record] = []
    for result in record["results"]:
        if result["network"] not in sizes:
            sizes.append(result["network"])
    for size in sizes:
        speeds = [result for result in record["results"] if result["network"] == size]
        text += f"\n{size['layers']} layers of {size['width']} features:\n\n{_speed_table(speeds)}"
    return text


def _speed_table(speeds: Sequence[Record]) -> str:
    rows = []
    for speed in speeds:
        base = next(s for s in speeds if s["batch"] == speed["batch"])
        tokens = speed["batch"] * speed["prompt"] / speed["prefill_seconds"]
        rows.append(
            [
                f"{speed['form']}, batch {speed['batch']}",
                str(speed["layers"]),
                f"{format_seconds(speed['prefill_seconds'])} ({tokens:,.0f}/s)",
                f"{base['prefill_seconds'] / speed['prefill_seconds']:.2f}×",
                f"{format_seconds(speed['decode_seconds'])} "
                f"({speed['batch'] / speed['decode_seconds']:,.0f}/s)",
                f"{base['decode_seconds'] / speed['decode_seconds']:.2f}×",
                format_bytes(speed["bytes"]),
            ]
        )
    prompt = speeds[0]["prompt"]
    header = [
        "form", "layers on bits", f"prompt of {prompt} tokens", "against floats", "one token",
        "against floats", "bytes",
    ]  # fmt: skip
    return markdown_table(header, rows)


def _levels(recipe: Record) -> str:
    if recipe["precision"] == "fp32":
        return "floats"
    if recipe["precision"] == "binary":
        return "signs"
    return ", ".join(map(str, recipe["levels"])) + f" ({recipe['alignment']})"


def _is_perplexity(record: Record) -> bool:
    """Whether scores are perplexities, lower ones better, and no per cent."""
    return bool(record["metric"] == "perplexity")


def _score(record: Record, mean: float, std: float | None = None) -> str:
    digits = 3 if _is_perplexity(record) else 1
    spread = "" if std is None else f" ± {std:.{digits}f}"
    return f"{mean:.{digits}f}{spread}"


def _order(record: Record) -> str:
    """Whether each form is better than the one before it in the paper's order."""
    forms, lower = record["forms"], _is_perplexity(record)
    unit = "in perplexity" if lower else "points"
    lines = []
    for worse, better in itertools.pairwise(form for form in ORDER if form in forms):
        by_seed = [
            {run["seed"]: run["test_score"] for run in forms[form]["runs"]}
            for form in (worse, better)
        ]
        gains = [
            by_seed[1][seed] - score for seed, score in by_seed[0].items() if seed in by_seed[1]
        ]
        gain = forms[better]["test_mean"] - forms[worse]["test_mean"]
        spread = max(forms[form]["test_std"] for form in (worse, better))
        verdict = "holds" if (gain < 0 if lower else gain > 0) else "does NOT hold"
        agreeing = sum(one < 0 if lower else one > 0 for one in gains)
        within = ", within one standard deviation" if abs(gain) <= spread else ""
        lines.append(
            f"- {record['config']['title']}: {better} above {worse} {verdict}: "
            f"{gain:+.{3 if lower else 1}f} {unit}{within}; "
            f"for {agreeing} of {len(gains)} seeds\n"
        )
    return "".join(lines)


def _trained_lines(records: Sequence[Record]) -> str:
    """Where each was trained; once where it is the same for all."""
    by_line: dict[str, list[str]] = {}
    for record in records:
        by_line.setdefault(f"{trained_on(record)}.", []).append(record["config"]["title"])
    if len(by_line) == 1:
        return next(iter(by_line))
    return " ".join(f"{' and '.join(titles)}: {line}" for line, titles in by_line.items())
