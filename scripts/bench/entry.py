"""How scripts end: what stops one in a line on stderr, and no record where nothing was measured."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from bench.ceilings import CeilingsError
from bitgnn import FileError
from bitgnn.data import DataError
from bitgnn.measure.report import write_json

__all__ = ["Unmeasured", "exits_with_status", "report_left_out", "save_record"]

FIGURES = ("results", "figures", "graphs", "cases")
"""Entries of a record that hold what was measured."""

P = ParamSpec("P")


class Unmeasured(RuntimeError):
    """There is nothing to record; the message says why."""


EXPECTED = (CeilingsError, DataError, FileError, OSError, Unmeasured)
"""Errors whose message alone tells a user what to do."""


def exits_with_status(main: Callable[P, int]) -> Callable[P, int]:
    """Turns an expected error of a command line into one line on stderr and exit status 1."""

    @wraps(main)
    def command(*arguments: P.args, **options: P.kwargs) -> int:
        try:
            return main(*arguments, **options)
        except EXPECTED as error:
            name = Path(inspect.getfile(main)).stem
            print(f"{name}: error: {' '.join(str(error).split())}", file=sys.stderr)
            return 1

    return command


def save_record(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a record that holds figures.

    Raises:
        Unmeasured: It holds none; a file at ``path`` stays as it was.
    """
    if not any(record.get(name) for name in FIGURES):
        raise Unmeasured(f"nothing was measured, {path} is not written: {_reasons(record)}")
    write_json(path, record)


def report_left_out(record: Mapping[str, Any]) -> int:
    """Says on stderr what a record lacks; the exit status, 1 where it lacks something."""
    if not record.get("skipped"):
        return 0
    print(f"left out of the record: {_reasons(record)}", file=sys.stderr)
    return 1


def _reasons(record: Mapping[str, Any]) -> str:
    left_out = [*record.get("skipped", ()), *record.get("failed", ())]
    return "; ".join(f"{entry['name']}: {entry['reason']}" for entry in left_out) or "no case ran"
