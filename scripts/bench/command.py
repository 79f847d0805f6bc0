"""What benchmark commands share: arguments, the record, finished cases kept, the files left."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bench.entry import report_left_out, save_record
from bitgnn.measure.environment import environment
from bitgnn.measure.timing import MIN_REPEATS

SAME_TO_RESUME = ("cpu", "gpu", "threads", "versions", "commit")
"""Entries of the environment that finished cases and new ones must share."""


def parse(
    description: str,
    name: str,
    argv: Sequence[str] | None,
    *,
    devices: bool = False,
    cpu_suffix: str = "",
    extend: Callable[[argparse.ArgumentParser], None] | None = None,
) -> argparse.Namespace:
    """The arguments that all benchmarks share, and those of ones that also run on CUDA."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default 2)")
    parser.add_argument("--repeats", type=int, default=15, help="rounds (default 15, at least 7)")
    parser.add_argument(
        "--data-root",
        type=Path,
        default=os.environ.get("BITGNN_DATA"),
        help="folder with the data sets (default: environment variable BITGNN_DATA)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help=f"JSON file (default {name}{cpu_suffix}.json, on CUDA {name}_cuda.json, here)",
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    if devices:
        parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
        parser.add_argument(
            "--ceilings",
            type=Path,
            help="compiled scripts/bench/ceilings.cu (default: nvcc does it)",
        )
    if extend is not None:
        extend(parser)
    arguments = parser.parse_args(argv)
    on_cuda = devices and arguments.device == "cuda"
    if on_cuda and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device")
    if arguments.output is None:
        arguments.output = Path(f"{name}{'_cuda' if on_cuda else cpu_suffix}.json")
    if arguments.repeats < MIN_REPEATS:
        parser.error(f"--repeats must be at least {MIN_REPEATS}, got {arguments.repeats}")
    if arguments.threads < 1:
        parser.error(f"--threads must be at least 1, got {arguments.threads}")
    torch.set_num_threads(arguments.threads)
    return arguments


def record(name: str, arguments: argparse.Namespace, **body: Any) -> dict[str, Any]:
    """What a benchmark found together with what it ran on and how; quick runs have no goals."""
    if arguments.quick:
        for entry in [*body.get("results", []), *body.get("memory", [])]:
            for figure in ("target", "goal", "reached"):
                if figure in entry:
                    entry[figure] = None
    settings = {
        "threads": arguments.threads,
        "repeats": arguments.repeats,
        "quick": arguments.quick,
    }
    return {
        "benchmark": name,
        "environment": environment(Path(__file__).resolve().parents[2]),
        "settings": settings,
        **body,
    }


class ResumeError(ValueError):
    """Finished cases cannot be continued; the message says why."""


def parse_cases(
    description: str,
    name: str,
    argv: Sequence[str] | None,
    extend: Callable[[argparse.ArgumentParser], None],
) -> argparse.Namespace:
    """Arguments of a benchmark on the CPU or CUDA that can go on where it was stopped."""

    def options(parser: argparse.ArgumentParser) -> None:
        extend(parser)
        parser.add_argument(
            "--resume", action="store_true", help="keep the finished cases of the output file"
        )

    return parse(description, name, argv, devices=True, cpu_suffix="_cpu", extend=options)


def begin(name: str, arguments: argparse.Namespace) -> dict[str, Any] | None:
    """The record to fill, with the finished cases that ``--resume`` keeps.

    Returns:
        The record; None where the cases on disk belong to another run, which is said on stderr.
    """
    found = record(f"{name}_{arguments.device}", arguments)
    found |= {"results": [], "skipped": [], "failed": []}
    if arguments.resume and arguments.output.exists():
        try:
            found["results"] = finished_cases(arguments.output, found)
        except ResumeError as error:
            print(f"bench: {error}", file=sys.stderr)
            return None
    return found


def finished_cases(path: Path, now: Mapping[str, Any]) -> list[dict[str, Any]]:
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
    results: list[dict[str, Any]] = before["results"]
    return results


def run_into(
    found: dict[str, Any],
    output: Path,
    group: str,
    name: str,
    run: Callable[[], dict[str, Any]],
) -> dict[str, Any] | None:
    """Runs a case and writes the record with its result, or with the reason why there is none.

    Returns:
        The result; None where the case failed.
    """
    result = None
    try:
        result = run()
    except torch.AcceleratorError:
        raise
    except Exception as error:  # the other cases are worth having
        reason = f"{type(error).__name__}: {error}"
        found["failed"].append({"group": group, "name": name, "reason": reason})
    else:
        found["results"].append(result)
    if found["results"]:
        save_record(output, found)
    return result


def finish(
    found: dict[str, Any],
    output: Path,
    csv: Callable[[dict[str, Any]], str],
    chart: Callable[[Path, dict[str, Any]], None],
    table: Callable[[dict[str, Any]], str],
    case_name: Callable[[dict[str, Any]], str],
) -> int:
    """Writes record, CSV and chart side by side and prints the table and what went wrong.

    Returns:
        Exit status: 1 where a result is wrong, or a case failed or was left out.

    Raises:
        Unmeasured: No case has a result; nothing is written.
    """
    save_record(output, found)
    output.with_suffix(".csv").write_text(csv(found), encoding="utf-8")
    chart(output.with_suffix(".png"), found)
    print(f"\n{table(found)}\nwritten: {output} and its .csv and .png")
    problems = [f"{case_name(r)}: wrong" for r in found["results"] if not r["checked"]]
    problems += [f"{entry['name']}: {entry['reason']}" for entry in found["failed"]]
    for line in problems:
        print(f"bench: {line}", file=sys.stderr)
    return report_left_out(found) or int(bool(problems))
