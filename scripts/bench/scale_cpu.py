"""Large graphs on a CPU: a whole graph beside PyG, and a partition from disk in little memory."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch_geometric.nn as pyg
from torch.distributed.device_mesh import init_device_mesh

import bitgnn
from bitgnn.distributed import Partitioner, PowerLawGraph, parallelize, shard_graph
from bitgnn.measure.pyg import graph_forms
from bitgnn.measure.timing import compare

FEATURES, HIDDEN, LAYERS = 128, 256, 2
CLASSES = {"arxiv": 40, "products": 47}
PARTS = 8
SETTLED_ON = 4096
"""Nodes of the small graph on which the disk's model settles."""
KILOBYTE = 1024


def _float_model(features: int, classes: int) -> torch.nn.Module:
    torch.manual_seed(0)
    return pyg.GCN(features, HIDDEN, LAYERS, classes).eval()


def _frozen(model: torch.nn.Module, x: torch.Tensor, edges: Any, **options: Any) -> Any:
    """The binary form after one forward in training, which settles its layers."""
    binary = bitgnn.binarize(model).train()
    binary(x, edges)  # with gradients, so that the statistics of the features stay
    return bitgnn.freeze(binary.eval(), **options)


def _edges(size: str) -> torch.Tensor:
    made = PowerLawGraph(size, num_features=0)
    pairs = [torch.stack([torch.from_numpy(end) for end in pair]) for pair in made.blocks()]
    return torch.cat(pairs, 1)


def whole(size: str = "arxiv", repeats: int = 7) -> dict[str, Any]:
    """Forwards of PyG's GCN in each form of the graph, and of the frozen one, in turns."""
    edges, classes = _edges(size), CLASSES[size]
    nodes = PowerLawGraph(size).num_nodes
    x = torch.randn(nodes, FEATURES, generator=torch.Generator().manual_seed(1))
    model = _float_model(FEATURES, classes)
    frozen = _frozen(model, x, edges)
    graph = frozen.prepare_graph(edges, nodes)
    packed = frozen.pack_features(x)
    with torch.inference_mode():
        runs = {f"PyG, {form}": _call(model, x, given) for form, given in
                graph_forms(edges, nodes).items()}  # fmt: skip
        runs["bitgnn"] = _call(frozen, x, graph)
        runs["bitgnn, packed features"] = _call(frozen, packed, graph)
        found = compare(runs, repeats=repeats)
    ms = {name: 1e3 * timing.median for name, timing in found.items()}
    best = min(value for name, value in ms.items() if name.startswith("PyG"))
    return {
        "size": size, "nodes": nodes, "edges": edges.size(1), "features": FEATURES,
        "hidden": HIDDEN, "layers": LAYERS, "classes": classes, "threads": torch.get_num_threads(),
        "ms": ms, "times_faster": best / ms["bitgnn"],
        "times_faster_packed": best / ms["bitgnn, packed features"],
    }  # fmt: skip


def _call(model: Any, x: Any, graph: Any) -> Any:
    return lambda: model(x, graph)


def from_disk(size: str = "products", repeats: int = 3) -> dict[str, Any]:
    """Write a partition, then read and run it in a process of its own: seconds and peak bytes."""
    with tempfile.TemporaryDirectory() as folder:
        root, model = Path(folder) / "parts", Path(folder) / "model"
        begin = time.perf_counter()
        Partitioner(PowerLawGraph(size), PARTS, root).generate_partition()
        written = time.perf_counter() - begin
        features = PowerLawGraph(size).num_features
        x = (torch.randn(SETTLED_ON, features) > 0).float()
        edges = torch.randint(0, SETTLED_ON, (2, 4 * SETTLED_ON))
        float_model = _float_model(features, CLASSES[size])
        bitgnn.save(_frozen(float_model, x, edges, output="classes", features="packed"), model)
        command = [sys.executable, __file__, str(root), str(model), str(repeats)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        values = [float(value) for value in done.stdout.split()[-3:]]
    made = PowerLawGraph(size)
    return {
        "size": size, "nodes": made.num_nodes, "edges": made.num_edges, "features": features,
        "hidden": HIDDEN, "layers": LAYERS, "classes": CLASSES[size],
        "threads": torch.get_num_threads(), "written_s": written, "read_s": values[0],
        "forward_s": values[1], "peak_bytes": int(values[2]),
    }  # fmt: skip


def _run(root: str, model: str, repeats: int) -> None:
    """Print the seconds of reading and of a forward, and the process's peak of memory."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    begin = time.perf_counter()
    frozen: Any = bitgnn.load(model)
    graph, parallel = shard_graph(root, mesh), parallelize(frozen, mesh)
    read = time.perf_counter() - begin
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        parallel(graph.x, graph)
        taken.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KILOBYTE
    print(read, statistics.median(taken), peak)
    dist.destroy_process_group()


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[2], int(sys.argv[3]))
