"""Times mini-batches through frozen models and PyG's: a JSON record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import PrefetchLoader

from bench.cases import WrongResultError
from bench.command import exits_with_status, parse, run_benchmark
from bench.tables.timings import stream_table
from bench.tasks import QUICK_GRAPH, SEED, NodeTask, load_task, untrained_model
from bitgnn.bits import BitTensor
from bitgnn.convert import freeze
from bitgnn.data import NeighborLoader
from bitgnn.inference import FrozenModel, stream
from bitgnn.inference.bound_program import Features
from bitgnn.inference.stream import gathered
from bitgnn.measure.timing import Clock, compare

KINDS = {"GCN": torch_geometric.nn.GCN, "GraphSAGE": torch_geometric.nn.GraphSAGE}
"""PyG's models of two layers; the frozen ones have the same names and widths."""
FANOUTS = (25, 10)
BATCH_SIZE = 1024
NUM_BATCHES = 4
GRAPHS = {"cpu": "flickr", "cuda": "reddit"}
PARTS = ("conversion", "forward")


@dataclass(frozen=True)
class StreamCase:
    """One model over the same batches in every form.

    Attributes:
        kind: of :data:`KINDS`.
        task: on the CPU, where loaders hold it.
        batches: of sampled neighbours.
    """

    kind: str
    task: NodeTask
    batches: Sequence[Data]

    group = "stream"

    @property
    def name(self) -> str:
        """Model and graph."""
        return f"{self.kind}, {self.task.name}"

    def run(self, clock: Clock, repeats: int) -> dict[str, Any]:
        """Times one model over the batches."""
        kind, task, batches, device = self.kind, self.task, self.batches, clock.device
        untrained = untrained_model(task, kind, "bin").to(device)
        frozen = freeze(untrained, check=False)  # random weights
        packed = frozen.pack_features(task.x.to(device), layout="dense")
        assert isinstance(packed, BitTensor)
        stores: dict[str, Features] = {"packed rows": packed, "float rows": task.x}
        if device == "cuda":
            stores = {
                "packed rows on the GPU": packed,
                "packed rows on the CPU": packed.to("cpu"),
            }
        calls: dict[str, Callable[[], Any]] = {
            f"bitgnn, {name}": partial(_pass, partial(stream, frozen, batches, x), device)
            for name, x in stores.items()
        }
        network = _pyg(kind, task, device)
        pyg_stores = {"float rows": task.x}
        if device == "cuda":
            pyg_stores["float rows on the GPU"] = task.x.to(device)
        for name, x in pyg_stores.items():
            results = partial(_pyg_stream, network, batches, x, device)
            calls[f"PyG fp32, {name}"] = partial(_pass, results, device)
        for store in stores.values():
            for batch, found in zip(batches, stream(frozen, batches, store), strict=True):
                if not _is_exact(frozen, batch, found.result, task.x, device):
                    raise WrongResultError("a batch gives a wrong result")
        # By the wall clock on a GPU too: conversions and copies are the host's affair.
        timings = compare(calls | _parts(frozen, batches, packed, device), repeats=repeats)
        parts = {name: timings.pop(name) for name in PARTS}
        ours = timings[next(iter(calls))]
        return {
            "model": kind,
            "graph": task.name,
            "device": device,
            "hidden": task.hidden_channels(kind),
            "batches": len(batches),
            "nodes": [batch.n_id.numel() for batch in batches],
            "edges": [batch.edge_index.size(1) for batch in batches],
            "checked": True,
            "conversion_share": parts["conversion"].median / ours.median,
            "parts": {name: timing.to_dict() for name, timing in parts.items()},
            "contenders": {
                name: timing.to_dict() | {"batches_per_second": len(batches) / timing.median}
                for name, timing in timings.items()
            },
        }


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the mini-batch benchmark; the exit status is 1 where a result is wrong."""
    names = {"cpu": "stream_cpu", "cuda": "stream_cuda"}
    arguments = parse("Times mini-batches through frozen models against PyG's.", names, argv)
    key = QUICK_GRAPH if arguments.quick else GRAPHS[arguments.device]
    task = load_task(key, arguments.device, arguments.data_root)
    task = replace(task, x=task.x.cpu(), edge_index=task.edge_index.cpu())
    torch.manual_seed(SEED)
    graph = Data(edge_index=task.edge_index, num_nodes=task.num_nodes)
    loader = NeighborLoader(graph, list(FANOUTS), batch_size=BATCH_SIZE)
    batches = list(islice(loader, NUM_BATCHES))
    return run_benchmark(
        arguments,
        [StreamCase(kind, task, batches) for kind in KINDS],
        lambda record: stream_table([record]),
        line=_line,
        sampler="bitgnn.data.NeighborLoader, ahead of the timing",
        fanouts=FANOUTS,
        batch_size=BATCH_SIZE,
    )


def _pyg(kind: str, task: NodeTask, device: str) -> nn.Module:
    torch.manual_seed(SEED)
    network: nn.Module = KINDS[kind](
        task.x.size(1), task.hidden_channels(kind), 2, task.num_classes
    )
    return network.to(device).eval()


def _pass(results: Callable[[], Iterable[Any]], device: str) -> None:
    """Ask for every result, and wait for the last."""
    held = list(results())
    if device == "cuda":
        torch.cuda.synchronize()
    del held


@torch.inference_mode()
def _pyg_stream(
    network: nn.Module, batches: Sequence[Data], x: Tensor, device: str
) -> Iterator[Tensor]:
    """The same batches through PyG, on a GPU with PyG's own prefetching of copies."""
    is_here = x.device.type == device

    def collected() -> Iterator[Data]:
        for batch in batches:
            rows = None if is_here and device == "cuda" else x.index_select(0, batch.n_id)
            yield Data(
                x=rows, edge_index=batch.edge_index, n_id=batch.n_id, batch_size=batch.batch_size
            )

    loader: Iterable[Data] = collected()
    if device == "cuda":
        loader = PrefetchLoader(loader, torch.device(device))
    for batch in loader:
        if device == "cuda":
            # PrefetchLoader copies on a stream of its own, and would copy a later batch to this
            # one's memory as soon as Python lets go of it, computed or not.
            batch.record_stream(torch.cuda.current_stream())
        rows = x.index_select(0, batch.n_id) if batch.x is None else batch.x
        yield network(rows, batch.edge_index)[: batch.batch_size]


def _is_exact(frozen: FrozenModel, batch: Data, found: Tensor, x: Tensor, device: str) -> bool:
    """True if a result is the model's on the subgraph, prepared and packed anew."""
    graph = frozen.prepare_graph(batch.edge_index.to(device), batch.n_id.numel(), layout="csr")
    return torch.equal(frozen(x[batch.n_id].to(device), graph)[: batch.batch_size], found)


def _parts(
    frozen: FrozenModel, batches: Sequence[Data], packed: BitTensor, device: str
) -> dict[str, Callable[[], Any]]:
    """Conversion of every graph, with its copy to the device, and the forwards, each on its own."""

    def convert(batch: Data) -> Any:
        edges = batch.edge_index.to(device)
        return frozen.prepare_graph(edges, batch.n_id.numel(), layout="csr")

    ready = []
    for batch in batches:
        rows = gathered(packed, batch.n_id.to(device))
        ready.append((rows, convert(batch)))
    return {
        "conversion": partial(_pass, lambda: map(convert, batches), device),
        "forward": partial(_pass, lambda: [frozen(x, graph) for x, graph in ready], device),
    }


def _line(result: dict[str, Any]) -> str:
    """Line of a case on the terminal."""
    rates = [f"{n} {c['batches_per_second']:.1f}" for n, c in result["contenders"].items()]
    share = f"conversion {result['conversion_share']:.0%} of a batch's time"
    return f"{result['name']}: {share}; batches a second: {', '.join(rates)}"


if __name__ == "__main__":
    raise SystemExit(main())
