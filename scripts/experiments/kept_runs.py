"""Studies: runs side by side, each kept in OUTPUT.jsonl as soon as it ends and not done again."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tqdm import tqdm

from bitgnn.data import DataError
from bitgnn.measure.report import environment

__all__ = ["mean_tests", "run_and_keep", "study_parser"]

INTERRUPTED = 130
Run = dict[str, Any]


def study_parser(
    description: str | None, output: str, graphs: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """A parser with the arguments that all studies have; ``--graphs`` where there are some."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", help="folder with raw data (default: BITGNN_DATA)")
    parser.add_argument("--output", type=Path, default=Path(output))
    if graphs:
        parser.add_argument("--graphs", nargs="+", default=list(graphs), choices=graphs)
    parser.add_argument("--workers", type=int, default=1)
    return parser


def mean_tests(
    runs: Iterable[Run], names: Sequence[str]
) -> dict[tuple[Any, ...], dict[str, float]]:
    """Mean test accuracy by graph of all runs that have the values of ``names`` in common."""
    by: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for run in runs:
        graphs = by.setdefault(tuple(run[name] for name in names), {})
        graphs.setdefault(run["graph"], []).append(run["test"])
    return {
        key: {name: statistics.mean(values) for name, values in graphs.items()}
        for key, graphs in by.items()
    }


def run_and_keep(
    cases: Iterable[Run],
    run: Callable[[tuple[Run, str | None, str]], Run],
    summary: Callable[[list[Run]], list[Run]],
    output: Path,
    data: str | None,
    device: str = "cpu",
    workers: int = 1,
) -> int:
    """Run the remaining cases, write all of them with a summary, and return an exit status."""
    root = Path(__file__).resolve().parents[2]
    commit = environment(root)["commit"]
    lines = output.with_suffix(".jsonl")
    done = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    left = [case for case in cases if not any(case.items() <= result.items() for result in done)]
    is_whole, failure = False, None
    # Workers hold one graph at a time, and cases of one graph stand side by side.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    try:
        with lines.open("a") as file:
            futures = [pool.submit(run, (case, data, device)) for case in left]
            for future in tqdm(as_completed(futures), total=len(left)):
                error = future.exception()
                if error is not None:
                    tqdm.write(f"{type(error).__name__}: {error}")
                    failure = failure or error
                else:
                    done.append({**future.result(), "commit": commit})
                    file.write(json.dumps(done[-1]) + "\n")
                    file.flush()
        is_whole = True
    except KeyboardInterrupt:
        print(f"interrupted: {len(done)} runs are kept")
        for worker in multiprocessing.active_children():
            worker.terminate()  # it would begin what waits in its queue
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if isinstance(failure, DataError):
        print(f"error: {failure}", file=sys.stderr)
        return 1
    if failure is not None and not done:
        raise failure
    record = {
        "environment": environment(root),
        "runs": done,
        "summary": summary(done),
    }
    output.write_text(json.dumps(record, indent=1) + "\n")
    for row in record["summary"]:
        print({key: value for key, value in row.items() if not isinstance(value, dict)})
    if failure is not None:
        raise failure
    if is_whole:
        lines.unlink()
    return 0 if is_whole else INTERRUPTED
