"""Tables of records in Markdown, and in words on what they were measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def format_reached(part: float) -> str:
    """The part of a goal that was reached, never rounded up: ``format_reached(0.997) == "99%"``."""
    rounding_error = 1e-9
    return f"{math.floor(part * 100 + rounding_error)}%"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is aligned left, the others right."""
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"bench.markdown_table: row {row!r} must have {len(header)} cells")
    lines = [header, [":---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def commit_of(machine: dict[str, Any]) -> str:
    """The commit of an environment, shortened, and whether anything was changed."""
    return (machine["commit"] or "unknown")[:10] + (" with changes" if machine["dirty"] else "")


def device_of(machine: dict[str, Any], *, on_cuda: bool | None = None) -> str:
    """The GPU, or the processor with its threads.

    Args:
        machine: environment of a record.
        on_cuda: which of them; None takes the GPU where there is one.
    """
    if on_cuda or (on_cuda is None and machine["gpu"]):
        return str(machine["gpu"])
    return f"{machine['cpu']}, {machine['threads']} threads"


def environment_line(record: dict[str, Any]) -> str:
    """One sentence naming the machine, threads, versions and commit of a record."""
    machine = record["environment"]
    versions = machine["versions"]
    if record.get("benchmark", "").endswith("cuda"):
        device = f"{machine['gpu']}, CUDA {machine['cuda']}"
    else:
        device = f"{machine['cpu']} ({machine['capability']}), {machine['threads']} threads"
    return (
        f"{device}, torch {versions['torch']}, PyG {versions['torch-geometric']}, "
        f"commit {commit_of(machine)}, {machine['date'][:10]}; medians of "
        f"{record['settings']['repeats']} interleaved repeats."
    )


def trained_on(record: dict[str, Any], *, pyg: bool = False, device: str | None = None) -> str:
    """Machine, versions, commit and date of a training, without a full stop."""
    machine = record["environment"]
    versions = machine["versions"]
    return (
        f"Trained on {device or machine['gpu'] or machine['cpu']}, torch {versions['torch']}, "
        + (f"PyG {versions['torch-geometric']}, " if pyg else "")
        + f"commit {commit_of(machine)}, {machine['date'][:10]}"
    )


def not_measured(*entries: dict[str, Any]) -> str:
    """A list of what a record says it left out, below an empty line; nothing without any."""
    lines = [f"- not measured: {entry['name']}: {entry['reason']}\n" for entry in entries]
    return "\n" + "".join(lines) if lines else ""
