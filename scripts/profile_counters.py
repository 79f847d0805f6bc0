"""Hardware counters of a sum over neighbours, of bits and of cuSPARSE's floats, by Nsight Compute.

``python scripts/profile_counters.py --output counters_cuda.json`` starts ``ncu``, which must be
installed and allowed to read counters.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bench.command import ROOT, Unmeasured, data_folder, exits_with_status, finish
from bench.report import Record
from bench.tables.paper_times import counters_table
from bench.tasks import load_task
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.measure.pyg import graph_forms
from bitgnn.measure.report import environment
from bitgnn.ops import bspmm

WIDTH, GRAPHS = 256, ("cora", "flickr")
METRICS = {
    "load efficiency": ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct", 1.0),
    "store efficiency": ("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct", 1.0),
    "L1 hits": ("l1tex__t_sector_hit_rate.pct", 1.0),
    "L2 hits": ("lts__t_sector_hit_rate.pct", 1.0),
    "threads of a warp": ("smsp__thread_inst_executed_per_inst_executed.ratio", 100.0 / 32),
    "stalled on memory": ("smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct", 1.0),
}
"""What the paper's profile has, by the metric of Nsight Compute and its factor to per cent."""
SECONDS, MARK = "gpu__time_duration.sum", "linspace"
NANOSECONDS = 1e-9
WAYS = ("cuSPARSE, fp32", "bits in and out", "bits in, floats out")


def run_once(graph: str, root: Path | None) -> None:
    """The products that are profiled, in the order of ``WAYS``, after a run of each."""
    task = load_task(graph, "cuda", root)
    sparse = graph_forms(task.edge_index, task.num_nodes)["torch CSR"]
    adjacency = BitAdjacency.from_edge_index(task.edge_index, num_nodes=task.num_nodes)
    x = torch.randn(task.num_nodes, WIDTH, device="cuda")
    bits = BitTensor.from_float(x)
    calls = (
        lambda: sparse @ x,
        lambda: bspmm.bbb(bits, adjacency),
        lambda: bspmm.bbf(bits, adjacency),
    )
    for call in (*calls, _mark):
        call()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for call in calls:
        _mark()
        call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def _mark() -> None:
    """A kernel that no product has, in front of the kernels of each way."""
    torch.linspace(0.0, 1.0, 5, device="cuda")


def profiled(graph: str, arguments: Any) -> list[Record]:
    """The longest kernel of every way on a graph, with its counters."""
    metrics = ",".join([SECONDS, *(name for name, _ in METRICS.values())])
    command = [
        "ncu", "--csv", "--page", "raw", "--profile-from-start", "off", "--clock-control", "none",
        "--metrics", metrics, sys.executable, __file__, "--run", graph,
    ]  # fmt: skip
    if arguments.data_root is not None:
        command += ["--data-root", str(arguments.data_root)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Unmeasured("ncu (Nsight Compute) is not installed") from error
    rows = parsed(done.stdout)
    if done.returncode or not rows:
        said = " ".join((done.stderr + done.stdout).split()[-40:])
        raise Unmeasured(f"ncu ended with {done.returncode}: {said}")
    return [{"graph": graph, **row} for row in longest(rows)]


def parsed(text: str) -> list[Record]:
    """Kernels of ncu's table: way, name, seconds and counters in per cent."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found, number = [], -1
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        if not row["ID"]:
            continue  # the line of units
        if MARK in row["Kernel Name"]:
            number += 1
            continue
        numbers = {name: _number(row.get(metric)) for name, (metric, _) in METRICS.items()}
        seconds = _number(row[SECONDS])
        found.append({
            "way": WAYS[number], "kernel": row["Kernel Name"],
            "seconds": None if seconds is None else seconds * NANOSECONDS,
            **{name: None if value is None else value * METRICS[name][1]
               for name, value in numbers.items()},
        })  # fmt: skip
    return found


def _number(text: str | None) -> float | None:
    """A number of ncu's table; None where the kernel has none, as without stores."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def longest(rows: Sequence[Record]) -> list[Record]:
    """The kernel of every way that takes most of its time."""
    return [
        max((row for row in rows if row["way"] == way), key=lambda row: row["seconds"] or 0.0)
        for way in WAYS
        if any(row["way"] == way for row in rows)
    ]


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Profiles every graph and writes the record; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("counters_cuda.json"))
    parser.add_argument("--run", choices=GRAPHS, help="only run the products, for ncu")
    data_folder(parser)
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        raise Unmeasured("torch finds no CUDA device to profile")
    if arguments.run:
        run_once(arguments.run, arguments.data_root)
        return 0
    results = [row for graph in GRAPHS for row in profiled(graph, arguments)]
    found = {
        "benchmark": "counters_cuda",
        "environment": environment(ROOT),
        "settings": {"repeats": 1, "width": WIDTH},
        "results": results,
    }
    return finish(arguments.output, found, counters_table)


if __name__ == "__main__":
    raise SystemExit(main())
