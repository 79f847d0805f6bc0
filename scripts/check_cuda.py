"""Runs the CUDA tests, plainly and under compute-sanitizer, and writes the outcome as JSON."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from bitgnn.measure.report import environment, write_json

TOOLS = ("memcheck", "racecheck", "initcheck")
# What the sanitizers see, some fifty times slower than plain: files of tests and which of them.
# Everything small and ragged, and of kernels that want big operands the smallest that reach them.
REDUCED = {
    "every operator, ragged": (["ops/test_kernels.py"], "test_sizes and cuda and ragged"),
    "convolutions by warpgroups": (
        ["ops/test_conv_cuda_wgmma.py"],
        "shape8 or shape11 or shape16 or shape18",
    ),
    "first layers, chains of layers": (
        ["ops/test_images.py", "ops/test_products.py"],
        "cuda-shape1 or cuda-17-sizes or cuda-300-sizes",
    ),
    "ternary products": (
        ["ops/test_ternary_cuda.py"],
        "(packed_as and dtype1) or (packed_rows and (127 or 257)) "
        "or (linear_layers and dtype1 and (31 or 127 or 257 or 300)) or many_rows",
    ),
    "ternary attention": (
        ["ops/test_ternary_attention_cuda.py"],
        "limits or views or (alike and 13)",
    ),
    "thresholds of aggregations": (
        ["ops/test_bspmm.py"],
        "degrees_decide and (most or odd) and (33 or 256)",
    ),
    "sums and 8-bit products": (
        ["ops/test_int8_joint.py"],
        "every_length and dtype0 and (264 or 72)",
    ),
    "rounding in training": (["ops/test_training.py"], "many_values and (4096 or 8193)"),
    "looked-up products in training": (["ops/test_training.py"], "many_looked_up and cuda"),
}
# Of those, what one tool cannot judge: results that tensor copies store from shared memory count as
# never written for initcheck, ten megabytes of them in reports of 32 bytes each.
NOT_SEEN = {("initcheck", "convolutions by warpgroups"): "sums and shape16"}
FAILURES_KEPT = 50
HANGING = ["-o", "faulthandler_timeout=300", "-o", "faulthandler_exit_on_timeout=true"]
"""Options of pytest that end a test which hangs, and name it."""
STOPPED = 124
"""Exit status of coreutils' ``timeout`` where the time was over."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit status is 0 when nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("cuda_tests.json"))
    parser.add_argument("--tests", nargs="+", default=["tests"], help="what pytest runs")
    parser.add_argument("--workers", type=int, default=1, help="test processes, with pytest-xdist")
    parser.add_argument("--tools", nargs="*", default=list(TOOLS), choices=TOOLS)
    parser.add_argument(
        "--parts", nargs="*", default=list(REDUCED), choices=REDUCED, help="what sanitizers run"
    )
    parser.add_argument("--skip-tests", action="store_true", help="sanitizer runs only")
    parser.add_argument(
        "--limit",
        type=int,
        default=600,
        metavar="SECONDS",
        help="for the tests and for each sanitizer run",
    )
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error("torch sees no CUDA device")
    found: dict[str, Any] = {
        "environment": environment(Path(__file__).resolve().parents[1]),
        "tests": None,
        "sanitizer": {},
    }
    if not arguments.skip_tests:
        # Tests differ a thousandfold in time: idle workers take over what others have left.
        workers = (
            ["-n", str(arguments.workers), "--dist", "worksteal"] if arguments.workers > 1 else []
        )
        # Threads of one worker would spin in the way of the others.
        found["tests"] = run_tests(
            [*arguments.tests, "-m", "cuda", *workers, *HANGING], limited(arguments.limit),
            OMP_NUM_THREADS=str(max(1, (os.cpu_count() or 1) // arguments.workers)),
        )  # fmt: skip
        write_json(arguments.output, found)
    # They do not compete for much: most of the time is Python's.
    jobs = [(tool, part) for tool in arguments.tools for part in arguments.parts]
    with ThreadPoolExecutor(max(1, len(jobs))) as pool:
        futures = [pool.submit(run_sanitizer, *job, arguments.limit) for job in jobs]
        for (tool, part), future in zip(jobs, futures, strict=True):
            found["sanitizer"].setdefault(tool, {})[part] = future.result()
            write_json(arguments.output, found)
    runs = [
        found["tests"],
        *(run for parts in found["sanitizer"].values() for run in parts.values()),
    ]
    failed = [run for run in runs if run is not None and run["status"] != 0]
    print(f"written: {arguments.output}; {len(failed)} of {len(runs)} runs failed")
    return 1 if failed else 0


def run_tests(
    selection: Sequence[str], prefix: Sequence[str] = (), **variables: str
) -> dict[str, Any]:
    """Runs pytest in a process of its own and counts what it reports."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [*prefix, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--junitxml={report}", *selection]
        print("$", *command, flush=True)
        begin = time.monotonic()
        done = subprocess.run(
            command, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        seconds = time.monotonic() - begin
        summary = read_report(report) if report.exists() else {}
    print("\n".join(done.stdout.splitlines()[-12:]), flush=True)
    if done.returncode != 0 and "--tool" in prefix:
        summary["reports"] = kernels_reported(done.stdout)
    if done.returncode == STOPPED:
        summary["problem"] = f"stopped after {seconds:.0f} s"
    return {
        "command": " ".join(command[len(prefix) + 1 :]).replace(str(report), "report.xml"),
        "status": done.returncode,
        "seconds": round(seconds, 1),
        **summary,
        "output_end": done.stdout.splitlines()[-5:],
    }


def kernels_reported(output: str) -> dict[str, int]:
    """Number of a sanitizer's reports that name each kernel."""
    names = re.findall(r"^=+ .*?\bat (?:void )?([\w:]+)(?:<.*>)?\(.*\)\+0x", output, re.MULTILINE)
    return dict(Counter(names).most_common(FAILURES_KEPT))


def read_report(path: Path) -> dict[str, Any]:
    """Counts of a JUnit report by outcome, skips by reason, names of failures."""
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    failures: list[str] = []
    for case in ElementTree.parse(path).iter("testcase"):
        children = {child.tag: child for child in case}
        if "skipped" in children:
            outcomes["skipped"] += 1
            reasons[children["skipped"].get("message", "")] += 1
        elif "failure" in children or "error" in children:
            outcomes["failed"] += 1
            failures.append(f"{case.get('classname')}::{case.get('name')}")
        else:
            outcomes["passed"] += 1
    return {
        "outcomes": dict(outcomes),
        "skipped_because": dict(reasons),
        "failures": failures[:FAILURES_KEPT],
    }


def limited(seconds: int) -> list[str]:
    """Prefix that limits the time of a command, which then has status :data:`STOPPED`."""
    return ["timeout", "--kill-after=5", str(seconds)]


def reduced_tests(tool: str, part: str) -> tuple[list[str], str]:
    """Test files of a part, and the pytest expression for the tests that a tool runs."""
    files, chosen = REDUCED[part]
    if (tool, part) in NOT_SEEN:
        chosen = f"({chosen}) and not ({NOT_SEEN[tool, part]})"
    return files, chosen


def run_sanitizer(tool: str, part: str, limit: int) -> dict[str, Any]:
    """A part of the reduced tests under one tool of compute-sanitizer, stopped after the limit."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        return {"status": 1, "problem": "compute-sanitizer is not on the PATH"}
    files, chosen = reduced_tests(tool, part)
    prefix = [*limited(limit), program, "--tool", tool]
    prefix += ["--error-exitcode", "9", "--print-limit", "2000"]
    # Without torch's cache every tensor is an allocation of its own, whose ends are guarded (and no
    # graph can be captured).
    return run_tests(
        [*(f"tests/{file}" for file in files), "-m", "cuda", "-k", chosen], prefix,
        PYTORCH_NO_CUDA_MEMORY_CACHING="1",
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
