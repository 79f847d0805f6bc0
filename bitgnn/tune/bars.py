"""Bars of a tuner's stages with the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress

from bitgnn.train.experiment import make_progress

__all__ = ["stage_bars"]

TITLES = {
    "reference": "epochs of fp32 to compare with",
    "letters": "letters scored, plans timed briefly",
    "measure": "plans measured",
    "finetune": "epochs of fine-tuning",
}


@contextmanager
def stage_bars(progress: bool) -> Iterator[Callable[[str, int, int], Any]]:
    """Draws a bar for each stage, never while something is timed.

    Args:
        progress: whether to draw at all.

    Yields:
        What to call with a stage, what is done of it, and all of it.
    """
    if not progress:
        yield lambda stage, done, total: None
        return
    bars: Progress = make_progress(Console(stderr=True), in_thread=False)
    tasks: dict[str, Any] = {}

    def show(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            tasks[stage] = bars.add_task(TITLES[stage], total=total)
        bars.update(tasks[stage], completed=done, total=total, refresh=True)

    with bars:
        yield show
