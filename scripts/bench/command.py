"""Code that benchmark commands share: arguments, loop over cases, record, exit status."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, Protocol

import torch

from bench.cases import Skipped, describe, is_wrong
from bench.ceilings import CeilingsError
from bitgnn import FileError
from bitgnn.data import DataError
from bitgnn.measure.report import environment, write_json
from bitgnn.measure.timing import MIN_REPEATS, Clock

__all__ = [
    "ROOT",
    "Unmeasured",
    "data_folder",
    "exits_with_status",
    "finish",
    "is_wanted",
    "parse",
    "record",
    "run_benchmark",
    "save_record",
    "threads_of_torch",
]

ROOT = Path(__file__).resolve().parents[2]
"""The checkout, whose commit stands in records."""
FIGURES = ("results", "figures", "graphs", "cases")
"""Entries of a record that hold what was measured."""
SAME_TO_RESUME = ("cpu", "gpu", "threads", "versions", "commit")
"""Entries of the environment that finished cases and new ones must share."""
GOALS = {"target": None, "goal": None, "goal_seconds": None, "reached": None, "goals": ()}
"""Entries of results that say what is to be reached, as quick runs have them."""

Record = dict[str, Any]
P = ParamSpec("P")


class Unmeasured(RuntimeError):
    """There is nothing to record; the message says why."""


class ResumeError(ValueError):
    """Finished cases cannot be continued; the message says why."""


EXPECTED = (CeilingsError, DataError, FileError, OSError, ResumeError, Unmeasured)
"""Errors whose message tells a user what to do."""


class Runnable(Protocol):
    """A case as the loop sees it."""

    @property
    def group(self) -> str:
        """Heading it belongs to."""

    @property
    def name(self) -> str:
        """Name of the case, unique in its group."""

    def run(self, clock: Clock, repeats: int) -> Record:
        """Measures it; a JSON-ready record."""


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


def data_folder(parser: argparse.ArgumentParser) -> None:
    """Adds the argument for the folder of the data sets."""
    parser.add_argument(
        "--data-root",
        type=Path,
        default=os.environ.get("BITGNN_DATA"),
        help="folder of the data sets (default: environment variable BITGNN_DATA, else ./data)",
    )


def threads_of_torch(parser: argparse.ArgumentParser) -> None:
    """Adds the argument for torch's threads, which sets them."""

    def count(text: str) -> int:
        if int(text) < 1:
            raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
        return int(text)

    parser.add_argument("--threads", type=count, default=2, help="torch threads (default 2)")


def parse(
    description: str,
    names: Mapping[str, str],
    argv: Sequence[str] | None,
    extend: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> argparse.Namespace:
    """The arguments that benchmarks share, and torch's threads set accordingly."""
    parser = argparse.ArgumentParser(description=description)
    threads_of_torch(parser)
    parser.add_argument("--repeats", type=int, default=15, help="rounds (default 15, at least 7)")
    data_folder(parser)
    files = " or ".join(f"{name}.json" for name in names.values())
    parser.add_argument("--output", type=Path, help=f"JSON file (default: {files}, here)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument(
        "--only", nargs="+", metavar="TEXT", help="cases with one of these in their group or name"
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep the finished cases of the output file"
    )
    if "cuda" in names:
        parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
        parser.add_argument(
            "--ceilings",
            type=Path,
            help="compiled scripts/bench/ceilings.cu (default: nvcc does it)",
        )
    else:
        parser.set_defaults(device="cpu")
    extend(parser)
    arguments = parser.parse_args(argv)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device")
    if arguments.repeats < MIN_REPEATS:
        parser.error(f"--repeats must be at least {MIN_REPEATS}, got {arguments.repeats}")
    arguments.benchmark = names[arguments.device]
    arguments.output = arguments.output or Path(f"{arguments.benchmark}.json")
    torch.set_num_threads(arguments.threads)
    return arguments


def record(arguments: argparse.Namespace, **body: Any) -> Record:
    """Record of a benchmark's results, machine and settings."""
    names = ("threads", "repeats", "quick")
    return {
        "benchmark": arguments.benchmark,
        "environment": environment(ROOT),
        "settings": {name: getattr(arguments, name) for name in names},
        **body,
    }


def run_benchmark(
    arguments: argparse.Namespace,
    cases: Iterable[Runnable | Skipped],
    table: Callable[[Record], str],
    *,
    clock: Clock | None = None,
    line: Callable[[Record], str] = describe,
    **body: Any,
) -> int:
    """Runs the cases that are wanted; the record is on disk after each of them.

    A case that fails leaves the others. A case's data are dropped before the next one is made.
    """
    clock = Clock(arguments.device) if clock is None else clock
    found = {**record(arguments), "results": [], "skipped": [], "failed": [], **body}
    if arguments.resume and arguments.output.exists():
        found["results"] = finished_cases(arguments.output, found)
    done = {(result["group"], result["name"]) for result in found["results"]}
    for case in cases:
        if not is_wanted(arguments, case) or (case.group, case.name) in done:
            continue
        if isinstance(case, Skipped):
            found["skipped"].append(vars(case))
            continue
        print(f"{case.group}: {case.name} ...", file=sys.stderr, flush=True)
        named = {"group": case.group, "name": case.name}
        try:
            result = {**named, **case.run(clock, arguments.repeats)}
        except torch.AcceleratorError:
            raise
        except DataError as error:
            found["skipped"].append({**named, "reason": str(error)})
        except Exception as error:  # the other cases are worth having
            reason = f"{type(error).__name__}: {error}"
            found["failed"].append({**named, "reason": reason})
        else:
            if arguments.quick:
                result |= {figure: GOALS[figure] for figure in GOALS.keys() & result.keys()}
            found["results"].append(result)
            print(line(result), flush=True)
        if found["results"]:
            save_record(arguments.output, found)
    return finish(arguments.output, found, table)


def is_wanted(arguments: argparse.Namespace, case: Runnable | Skipped) -> bool:
    """True if ``--only`` selects a case, or is not given."""
    title = f"{case.group}: {case.name}"
    return not arguments.only or any(text in title for text in arguments.only)


def finished_cases(path: Path, now: Mapping[str, Any]) -> list[Record]:
    """Cases in an output file, which must have been measured as the new ones will be."""
    before = json.loads(path.read_text(encoding="utf-8"))
    differences = [
        f"{name} was {before['environment'].get(name)}, is {now['environment'].get(name)}"
        for name in SAME_TO_RESUME
        if before["environment"].get(name) != now["environment"].get(name)
    ]
    if before["settings"] != now["settings"]:
        differences.append(f"settings were {before['settings']}, are {now['settings']}")
    if differences:
        raise ResumeError(
            f"--resume: the cases in {path} do not belong to this run: {'; '.join(differences)}; "
            "leave --resume out to measure all of them anew"
        )
    results: list[Record] = before["results"]
    return results


def save_record(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a record; without figures :class:`Unmeasured`, and a file at ``path`` stays."""
    if not any(record.get(name) for name in FIGURES):
        reasons = "; ".join(_left_out(record)) or "no case ran"
        raise Unmeasured(f"nothing was measured, {path} is not written: {reasons}")
    write_json(path, record)


def finish(output: Path, found: Record, table: Callable[[Record], str]) -> int:
    """Writes a record, prints its table and what went wrong, which makes exit status 1."""
    save_record(output, found)
    print(f"\n{table(found)}\nwritten: {output}")
    results = found.get("results", ())
    problems = [f"wrong: {r['group']}: {r['name']}" for r in results if is_wrong(r)]
    problems += [f"left out of the record: {line}" for line in _left_out(found)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems))


def _left_out(record: Mapping[str, Any]) -> list[str]:
    entries = (*record.get("skipped", ()), *record.get("failed", ()))
    return [f"{entry['name']}: {entry['reason']}" for entry in entries]
