"""Hardware counters of chosen CUDA operators by Nsight Compute, as JSON: the bound of each."""

from __future__ import annotations

import argparse
import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.command import ROOT, data_folder, exits_with_status, finish
from bench.graphs import REDDIT, heavy_tailed_graph, load_flickr
from bench.models.ours import freeze_network
from bench.operators.case import SEED
from bench.tables.operators import cuda_profile_table
from bench.tasks import load_task
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.data import load
from bitgnn.measure.report import environment
from bitgnn.ops import bmm, bspmm

SECTIONS = (
    "SpeedOfLight",
    "MemoryWorkloadAnalysis",
    "ComputeWorkloadAnalysis",
    "WarpStateStats",
    "LaunchStats",
    "Occupancy",
)
# A kernel of torch's between cases, by whose name their kernels are told apart.
MARKER = "elementwise_kernel"
DEVICE = "cuda"

# Whole frozen models, fp32 features in: graph, kind and precision.
MODELS = (
    ("cora", "GCN", "bin"),
    ("pubmed", "GCN", "bin"),
    ("pubmed", "GCN", "full"),
    ("flickr", "GCN", "bin"),
    ("flickr", "GraphSAGE", "bin"),
    ("flickr", "GraphSAINT", "bin"),
    ("reddit", "GCN", "bin"),
)

Case = tuple[str, Callable[[], Any], dict[str, float]]


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit status is 0 when every case was profiled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("profile_cuda.json"))
    data_folder(parser)
    parser.add_argument("--run", action="store_true", help="only run the cases, under a profiler")
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error("torch sees no CUDA device")
    if arguments.run:
        _run(arguments.data_root)
        return 0
    program = shutil.which("ncu")
    if program is None:
        parser.error("Nsight Compute (ncu) is not on the PATH")
    command = [program, "--csv", "--page", "details", "--clock-control", "none"]
    command += ["--profile-from-start", "off"]
    for section in SECTIONS:
        command += ["--section", section]
    command += [sys.executable, __file__, "--run"]
    if arguments.data_root is not None:
        command += ["--data-root", str(arguments.data_root)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout[-2000:], done.stderr[-2000:])
        return 1
    names = [line[len("case: ") :] for line in done.stderr.splitlines() if line.startswith("case:")]
    counted = dict(line.rsplit(" = ", 1) for line in names)
    kernels = read_kernels(done.stdout)
    cases = [
        {"name": name, "counted": _parse(counted[name]), "kernels": found}
        for name, found in zip(counted, split_cases(kernels), strict=True)
    ]
    found = {"benchmark": "profile_cuda", "environment": environment(ROOT), "cases": cases}
    return finish(arguments.output, found, cuda_profile_table)


def _parse(text: str) -> dict[str, float]:
    pairs = (pair.split(":") for pair in text.split(",") if pair)
    return {name: float(value) for name, value in pairs}


def read_kernels(text: str) -> list[dict[str, Any]]:
    """Kernels of ncu's CSV in the order of their launch, each with its metrics by section."""
    begin = text.find('"ID"')
    kernels: dict[str, dict[str, Any]] = {}
    for row in csv.DictReader(io.StringIO(text[begin:] if begin >= 0 else "")):
        name, value = row.get("Metric Name"), row.get("Metric Value")
        kernel = kernels.setdefault(
            row["ID"], {"kernel": row["Kernel Name"].split("(")[0], "metrics": {}}
        )
        if name and value:
            unit = f" [{row['Metric Unit']}]" if row.get("Metric Unit") else ""
            kernel["metrics"][f"{name}{unit}"] = value
    return list(kernels.values())


def split_cases(kernels: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Kernels of each case; a marker kernel precedes every case."""
    cases: list[list[dict[str, Any]]] = []
    for kernel in kernels:
        if MARKER in kernel["kernel"]:
            cases.append([])
        elif cases:
            cases[-1].append(kernel)
    return cases


def _run(data_root: Path | None) -> None:
    marker = torch.zeros(1, device=DEVICE)
    for name, call, counted in _cases(data_root):
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
        marker.add_(1)
        call()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()
        numbers = ",".join(f"{key}:{value:.17g}" for key, value in counted.items())
        print(f"case: {name} = {numbers}", file=sys.stderr, flush=True)


def _cases(data_root: Path | None) -> Iterator[Case]:
    torch.manual_seed(SEED)
    for side in (2048, 1024):
        x, w = (BitTensor.from_float(torch.randn(side, side, device=DEVICE)) for _ in range(2))
        operands = side * side / 8
        yield (
            f"BMM BBB {side}³",
            partial(bmm.bbb, x, w),
            {"operations": 2.0 * side**3, "bytes": 3 * operands},
        )
    if data_root is not None:
        data = load("PubMed", data_root)
        pubmed = BitAdjacency.from_edge_index(
            data.edge_index, data.num_nodes, normalize="sym", add_self_loops=True
        )
        yield _aggregation("PubMed", pubmed.to(DEVICE), 128)
        graph = load_flickr(data_root)
        flickr = BitAdjacency.from_edge_index(graph.edge_index(), graph.num_nodes, normalize="sym")
        yield _aggregation("Flickr", flickr.to(DEVICE), 128)
    nodes, edges, degree = REDDIT
    large = heavy_tailed_graph(nodes, edges, max_degree=degree, seed=SEED, device=DEVICE)
    adjacency = BitAdjacency(large.rowptr.int(), large.indices.int(), nodes)
    for width in (128, 256):
        yield _aggregation(large.name, adjacency, width)
    del large, adjacency
    if data_root is not None:
        for graph_key, kind, precision in MODELS:
            yield _model(graph_key, kind, precision, data_root)


def _model(graph_key: str, kind: str, precision: str, data_root: Path) -> Case:
    task = load_task(graph_key, DEVICE, data_root)
    network = freeze_network(kind, precision, task)
    x, graph = network.inputs["floats"]
    return (
        f"{kind} {precision}, {task.name}, eager",
        partial(network.model, x, graph),
        {"feature bytes": float(x.nbytes), "edges": float(graph.nnz)},
    )


def _aggregation(name: str, adjacency: BitAdjacency, width: int) -> Case:
    bits = BitTensor.from_float(torch.randn(adjacency.num_cols, width, device=DEVICE))
    rows = adjacency.shape[0]
    return (
        f"BSpMM BBB H = {width}, {name}",
        partial(bspmm.bbb, bits, adjacency),
        {
            "gathered rows": float(adjacency.nnz),
            "gathered bytes": adjacency.nnz * width / 8,
            "table bytes": adjacency.num_cols * width / 8,
            "output bytes": rows * width / 8,
        },
    )


if __name__ == "__main__":
    raise SystemExit(main())
