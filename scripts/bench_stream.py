"""Times mini-batches through frozen models and PyG's: a JSON record."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import PrefetchLoader

from bench.command import parse, record
from bench.entry import exits_with_status, save_record
from bench.sampling import neighbour_batches
from bench.tasks import GRAPHS, QUICK_GRAPH, SEED, NodeTask, load_task, untrained_model
from bitgnn.bits import BitTensor
from bitgnn.convert import freeze
from bitgnn.inference import FrozenModel, stream
from bitgnn.inference.bound_program import Features
from bitgnn.inference.stream import gathered
from bitgnn.measure.timing import Timing, compare

KINDS = {"GCN": torch_geometric.nn.GCN, "GraphSAGE": torch_geometric.nn.GraphSAGE}
"""PyG's models of two layers; the frozen ones have the same names and widths."""
FANOUTS = (25, 10)
BATCH_SIZE = 1024
NUM_BATCHES = 4
DEFAULT_GRAPHS = {"cpu": "flickr", "cuda": "reddit"}
WARM_UPS = 1
PARTS = ("conversion", "forward")


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the mini-batch benchmark; the exit status is 1 where a result is wrong."""
    arguments = parse(
        "Times mini-batches through frozen models against PyG's.",
        "stream",
        argv,
        devices=True,
        cpu_suffix="_cpu",
        extend=_options,
    )
    name = QUICK_GRAPH if arguments.quick else arguments.graph or DEFAULT_GRAPHS[arguments.device]
    task = _on_cpu(load_task(name, arguments.device, arguments.data_root))
    sampled = neighbour_batches(
        task.edge_index, task.num_nodes, fanouts=FANOUTS, batch_size=BATCH_SIZE, random_seed=SEED
    )
    batches = list(islice(sampled, arguments.batches))
    results = []
    for kind in arguments.models:
        results.append(run_case(kind, task, batches, arguments.device, arguments.repeats))
        found = record(
            f"stream_{arguments.device}",
            arguments,
            results=results,
            sampler="random neighbours in plain torch, ahead of the timing",
            fanouts=FANOUTS,
            batch_size=BATCH_SIZE,
        )
        save_record(arguments.output, found)
        print("\n".join(_lines(results[-1])))
    print(f"written: {arguments.output}")
    return 0 if all(result["checked"] for result in results) else 1


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--graph", choices=list(GRAPHS), help="default: one meant for the device")
    parser.add_argument("--models", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--batches", type=int, default=NUM_BATCHES, help="mini-batches in a pass")


def _on_cpu(task: NodeTask) -> NodeTask:
    """The task where loaders hold it."""
    x, edge_index = task.x.cpu(), task.edge_index.cpu()
    return NodeTask(
        task.name, x, edge_index, task.num_classes, task.hidden, dict(task.hidden_by_model)
    )


def run_case(
    kind: str, task: NodeTask, batches: Sequence[Data], device: str, repeats: int
) -> dict[str, Any]:
    """Times one model over the same batches in every form.

    Returns:
        A JSON-ready record: seconds of every pass, batches a second, the part of conversion, and
        whether every result equals that of the frozen model on the batch's own subgraph.
    """
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
    contenders: dict[str, Callable[[], Any]] = {
        f"bitgnn, {name}": partial(_pass, partial(stream, frozen, batches, x), device)
        for name, x in stores.items()
    }
    network = _pyg(kind, task, device)
    pyg_stores = {"float rows": task.x}
    if device == "cuda":
        pyg_stores["float rows on the GPU"] = task.x.to(device)
    for name, x in pyg_stores.items():
        results = partial(_pyg_stream, network, batches, x, device)
        contenders[f"PyG fp32, {name}"] = partial(_pass, results, device)
    checked = all(
        _is_exact(frozen, batch, found.result, task.x, device)
        for x in stores.values()
        for batch, found in zip(batches, stream(frozen, batches, x), strict=True)
    )
    alone = _parts(frozen, batches, packed, device)
    timings = compare(contenders | alone, warmup=WARM_UPS, repeats=repeats)
    parts = {name: timings.pop(name) for name in PARTS}
    ours = timings[next(iter(contenders))]
    return {
        "model": kind,
        "graph": task.name,
        "device": device,
        "hidden": task.hidden_channels(kind),
        "batches": len(batches),
        "nodes": [batch.n_id.numel() for batch in batches],
        "edges": [batch.edge_index.size(1) for batch in batches],
        "checked": checked,
        "conversion_share": parts["conversion"].median / ours.median,
        "parts": {name: timing.to_dict() for name, timing in parts.items()},
        "contenders": {
            name: timing.to_dict() | {"batches_per_second": _rate(timing, batches)}
            for name, timing in timings.items()
        },
    }


def _rate(timing: Timing, batches: Sequence[Data]) -> float:
    return len(batches) / timing.median


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
    """The same batches through PyG, on a GPU behind PyG's own prefetching of copies."""
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
    """Whether a result is the model's on the subgraph, prepared and packed anew."""
    graph = frozen.prepare_graph(batch.edge_index.to(device), batch.n_id.numel(), layout="csr")
    return torch.equal(frozen(x[batch.n_id].to(device), graph)[: batch.batch_size], found)


def _parts(
    frozen: FrozenModel, batches: Sequence[Data], packed: BitTensor, device: str
) -> dict[str, Callable[[], Any]]:
    """Conversion of every graph alone, its copy to the device included, and the forwards alone."""

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


def _lines(result: dict[str, Any]) -> list[str]:
    """What the terminal shows of a case."""
    share = f"{result['conversion_share']:.0%}"
    lines = [f"{result['model']}, {result['graph']}: conversion {share} of a batch's time"]
    for name, entry in result["contenders"].items():
        lines.append(f"  {name}: {entry['batches_per_second']:.1f} batches/s")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
