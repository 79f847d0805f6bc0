"""The command `bitgnn tune`: a graph and a float model by name, tuned; writes what was found."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console

from bitgnn.distillation.named import NamedModel, named_device, named_graph, parse_seconds, sizes
from bitgnn.tune.goal import Goal
from bitgnn.tune.result import LimitsMissed, TuneResult
from bitgnn.tune.tuner import CONSTRAINTS, LEAST_SECONDS, tune


def run_tune(
    data: str,
    model: NamedModel,
    console: Console,
    *,
    output: Path,
    data_root: str | None = None,
    device: str = "cpu",
    seed: int = 0,
    budget: str | None = None,
    begin: float,
    **options: Any,
) -> TuneResult:
    """Tune a model on a graph, print the report and write the files.

    The first line printed says what to take, or that no candidate keeps the limits; then ``missed``
    of the result is not None. The budget counts from ``begin``, a time of ``perf_counter``.
    ``options`` are arguments of :func:`bitgnn.tune`.
    """
    # What is mistyped is refused before any file is read.
    Goal.read(options.get("objective", "latency"), options.get("constraints", CONSTRAINTS))
    seconds = None if budget is None else parse_seconds(budget)
    place = named_device(device)
    model.kind()
    graph = named_graph(data, data_root, seed)
    made = model.make(graph, seed, place)
    Console(stderr=True, quiet=console.quiet).print(sizes(graph.name, graph))
    if seconds is not None:
        seconds = max(seconds - (time.perf_counter() - begin), LEAST_SECONDS)
    try:
        result = tune(
            made, graph, **options, trained=model.is_trained, budget=seconds, seed=seed,
            output=output,
        )  # fmt: skip
    except LimitsMissed as missed:
        result = missed.result
    console.print(str(result), soft_wrap=True, highlight=False, markup=False)
    written = ", ".join(str(output / name) for name in ("tune.json", "tune.png", "model"))
    console.print(f"Written: {written}", soft_wrap=True)
    return result
