"""The command `bitgnn partition`: a graph by name or files, written as parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bitgnn.distillation.named import named_graph
from bitgnn.distributed.manifest import read_manifest
from bitgnn.distributed.partitioner import Partitioner
from bitgnn.distributed.power_law import PowerLawGraph

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
