"""The commands `bitgnn partition` and `bitgnn infer`: a graph as parts, a saved model on these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist
from rich.console import Console
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from tqdm import tqdm

from bitgnn._files import atomic_file
from bitgnn.distillation.named import named_device, named_graph
from bitgnn.distillation.ranks import group
from bitgnn.distributed.manifest import read_manifest
from bitgnn.distributed.parallel import parallelize
from bitgnn.distributed.partitioner import Partitioner
from bitgnn.distributed.power_law import PowerLawGraph
from bitgnn.distributed.sharding import shard_graph
from bitgnn.inference import FrozenModel, load

SYNTHETIC = "synthetic:"


@dataclass(frozen=True)
class PartitionCommand:
    """Options of the command line, named as in ``bitgnn partition --help``."""

    data: Sequence[str]
    parts: int
    order: Any
    undirected: bool
    self_loops: bool
    normalize: Any
    features: Path | None
    nodes: int | None
    seed: int
    output: Path
    data_root: str | None


def run_partition(command: PartitionCommand, console: Console) -> None:
    """Write the parts of a graph and print what they hold."""
    Partitioner(
        _source(command), command.parts, command.output, num_nodes=command.nodes,
        x=command.features, order=command.order, undirected=command.undirected,
        add_self_loops=command.self_loops, normalize=command.normalize,
    ).generate_partition()  # fmt: skip
    found = read_manifest(command.output)
    title = f"{found.source}{' (made up)' if found.is_synthetic else ''}"
    features = found.num_features or 0
    largest = max(part.edges for part in found.parts)
    console.print(
        f"{title}: {found.num_nodes} nodes, {found.num_edges} edges, {features} features in "
        f"{found.num_parts} parts of at most {largest} edges",
        soft_wrap=True,
        highlight=False,
    )
    console.print(f"Written: {command.output}", soft_wrap=True)


def _source(command: PartitionCommand) -> Any:
    if len(command.data) > 1:
        return tuple(command.data)
    (name,) = command.data
    if name.startswith(SYNTHETIC):
        return PowerLawGraph(name.removeprefix(SYNTHETIC), seed=command.seed)
    if name.endswith(".npy") or Path(name).is_dir():
        return name
    return named_graph(name, command.data_root, command.seed)


@dataclass(frozen=True)
class InferCommand:
    """Options of the command line, named as in ``bitgnn infer --help``."""

    root: Path
    model: Path
    output: Path
    device: str
    timeout: int


def run_infer(command: InferCommand, console: Console) -> None:
    """Write the results of this rank's nodes; the first rank prints.

    Under torchrun all ranks run it together, alone it is the only rank.
    """
    frozen, manifest = load(command.model), read_manifest(command.root)
    if not isinstance(frozen, FrozenModel):
        raise ValueError(
            f"{command.model} must hold a model that is a program, got a {type(frozen).__name__}"
        )
    if manifest.num_features is None:
        raise ValueError(f"{command.root} must hold features, write it with --features")
    with ranks(command.device, command.timeout) as mesh:
        model, graph = parallelize(frozen, mesh), shard_graph(command.root, mesh)
        rank, count = mesh.get_rank(), mesh.size()
        with tqdm(disable=rank > 0, unit="chunk") as bar:

            def told(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            result = model(graph.x, graph, told)
        command.output.mkdir(parents=True, exist_ok=True)
        for name, rows in (("nodes", graph.own_nodes()), ("result", result)):
            _write(command.output / f"{name}-{rank:05d}-of-{count:05d}.npy", rows)
        dist.barrier()  # all files are there before the first rank says so
        if rank == 0:
            console.print(
                f"{manifest.num_nodes} nodes written to {command.output} by {count} ranks",
                soft_wrap=True,
                highlight=False,
            )


@contextmanager
def ranks(device: str, timeout: int) -> Iterator[DeviceMesh]:
    """The mesh of the ranks that torchrun started, or of this process alone."""
    kind = named_device(device).type
    with group(kind, timeout):
        yield init_device_mesh(kind, (dist.get_world_size(),))


def _write(path: Path, rows: Tensor) -> None:
    with atomic_file(path) as file:
        np.save(file, rows.cpu().numpy(), allow_pickle=False)
