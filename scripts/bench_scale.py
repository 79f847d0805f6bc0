"""Time and memory of frozen models against nodes, edges and GPUs, each beside its floor.

Graphs are made up and drawn on the GPUs: a power law in the sizes of public data sets. Without
--ranks it runs as one process, with it under torchrun on so many GPUs of this machine. Other cases:
"training" steps over ranks, sums of "scores" over them, "replays" (so many forwards, for so many
seconds, whose results and memory must stay), a "cpu" beside PyG and from disk, "orders" of nodes.
"""

import argparse
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from bench.node_orders import default_root, order_records
from bench.scale_cpu import from_disk, whole
from bench.scale_replays import replays_record
from bench.scale_training import LAYERS, MESSAGES, scores_record, training_record
from bitgnn import BitTensor, freeze
from bitgnn.distributed import PowerLawGraph, ShardedAdjacency, parallelize, shard_graph
from bitgnn.inference import FrozenModel
from bitgnn.measure.report import environment, write_json
from bitgnn.models import GraphSAGE
from bitgnn.nn import GCNConv

MEMORY_RATE, L2_EDGES, RANDOM_ROWS, GATHER_RATE = 4.3e12, 300e9, 42e9, 370e9
"""Bytes a second of an H200's memory; edges a second whose rows lie in its L2 cache; random sectors
a second from a table of 2 GiB, as scripts/bench/ceilings.cu measures them; bytes a second that an
all-gather over NVLink receives through NCCL."""
SECTOR, L2_BYTES = 32, 50 << 20
MODELS = ("letters", "GraphSAGE")
CASES = ("forward", "training", "scores", "replays", "cpu", "orders")


class Size(NamedTuple):
    """A made-up graph and the model on it; no layers stand for one aggregation of bits."""

    nodes: int
    edges: int
    features: int = 128
    hidden: int = 128
    layers: int = 3
    classes: int = 172


SIZES = {
    "small": Size(20_000, 300_000),
    "reddit": Size(232_965, 114_615_892, layers=0),
    "arxiv": Size(169_343, 1_166_243, classes=40),
    "products": Size(2_449_029, 61_859_140, classes=47),
    "papers100M-eighth": Size(13_882_494, 201_960_734),
    "papers100M": Size(111_059_956, 1_615_685_872),
    "papers100M-symmetrised": Size(111_059_956, 3_231_371_744),
    "igbh": Size(547_306_935, 5_812_005_639, features=1024, hidden=256, classes=19),
    "billion": Size(1_000_000_000, 10_000_000_000, layers=1, classes=16),
}


class Letters(torch.nn.Module):
    """GCN layers whose products are bits, which alone are aggregated; sums are the scores."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        widths = [size.features, *[size.hidden] * (size.layers - 1), size.classes]
        self.convs = torch.nn.ModuleList()
        for place, pair in enumerate(itertools.pairwise(widths)):
            ends = "F" if place == 0 else "B", "F" if place == size.layers - 1 else "B"
            letters = f"{ends[0]}BB+BB{ends[1]}"
            conv = GCNConv(*pair, precision=letters, add_self_loops=False, normalize=False)
            self.convs.append(conv)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Scores of the nodes."""
        for conv in self.convs:
            x = conv(x, edge_index)
        return x


def model_of(size: Size, kind: str) -> FrozenModel:
    """An untrained network whose layers settled on a few random nodes."""
    torch.manual_seed(0)
    shape = size.features, size.hidden, size.classes, size.layers
    is_sage = kind == "GraphSAGE"
    model = GraphSAGE(*shape, precision="bin", input_norm=False) if is_sage else Letters(size)
    x, edges = torch.randn(64, size.features), torch.randint(0, 64, (2, 512))
    with torch.no_grad():
        model.train()(x, edges)
    frozen: FrozenModel = freeze(model.eval(), output="classes", features="packed")
    return frozen


def floor_of(size: Size, ranks: int) -> dict[str, Any]:
    """Least milliseconds that memory, or the cache, and the exchange take, each alone."""
    widths = [size.features, *[size.hidden] * (max(1, size.layers) - 1)]
    hidden = [size.hidden] * max(1, size.layers)
    memory, gathered = 0.0, 0.0
    in_cache = size.nodes * size.hidden // 8 <= L2_BYTES
    for read, width in zip(widths, hidden, strict=True):
        row = -(-width // 8)
        sectors = -(-row // SECTOR)
        columns = 4 * size.edges / MEMORY_RATE
        rows = size.edges / L2_EDGES if in_cache else size.edges * sectors / RANDOM_ROWS
        memory += max(columns, rows)
        memory += size.nodes * (8 + read / 8 + row) / MEMORY_RATE
        gathered += size.nodes * row * (ranks - 1) / ranks / GATHER_RATE
    bound = "L2 cache" if in_cache else "random sectors of memory"
    return {"ms": 1e3 * memory / ranks, "bound": bound, "exchange_ms": 1e3 * gathered}


def timed(run: Callable[[], Any], device: torch.device, repeats: int) -> list[float]:
    """Milliseconds of the slowest rank, by repeat."""
    run()
    found = []
    for _ in range(repeats):
        dist.barrier()
        _wait(device)
        begin = time.perf_counter()
        run()
        _wait(device)
        found.append(time.perf_counter() - begin)
    slowest = torch.tensor(found, device=device, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return [1e3 * seconds for seconds in slowest.tolist()]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


class _Done:
    def wait(self) -> None:
        """Nothing: nothing was sent."""


def _sends_nothing(*_: Any, **__: Any) -> _Done:
    return _Done()


def measure(name: str, mesh: DeviceMesh, args: argparse.Namespace) -> dict[str, Any]:
    """One size: times, memory of each rank, and a digest of the result."""
    size, ranks, repeats, capture = SIZES[name], mesh.size(), args.repeats, args.capture
    device = torch.device(mesh.device_type)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    made = PowerLawGraph(size.nodes, size.edges, size.features)
    graph = shard_graph(made, mesh, chunk_rows=None if size.layers else size.nodes)
    _wait(device)
    built = time.perf_counter() - begin
    setup = _peak(device)
    run = _runner(size, graph, mesh, args)
    result = run()
    repeated = timed(run, device, repeats)
    total = statistics.median(repeated)
    peak = _peak(device)
    record = {
        "size": name, "model": args.model, **size._asdict(), "ranks": ranks,
        "ms": total, "repeats_ms": repeated, "floor": floor_of(size, ranks),
        "drawn_s": built, "edges_of_ranks": _of_ranks(graph.nnz, device),
        "peak_bytes": _of_ranks(peak, device), "setup_peak_bytes": _of_ranks(setup, device),
        "digest": digest(graph, result), "captured": capture,
    }  # fmt: skip
    if ranks > 1 and not capture:
        bits = _bits(size, graph)
        times = max(1, size.layers)
        exchange = timed(lambda: [graph.places.gather(bits) for _ in range(times)], device, repeats)
        alone = statistics.median(exchange)
        # Not a Mock, which would keep the tensors of all calls.
        with mock.patch("bitgnn.distributed.places._all_gather", _sends_nothing):
            computing = statistics.median(timed(run, device, repeats))
        share = (computing + alone - total) / alone
        record |= {"exchange_ms": alone, "computing_ms": computing, "hidden_share": share}
    return record


def _runner(
    size: Size, graph: ShardedAdjacency, mesh: DeviceMesh, args: argparse.Namespace
) -> Callable[[], torch.Tensor]:
    assert graph.x is not None
    if not size.layers:
        bits: BitTensor = graph.x
        return lambda: graph.aggregate(bits)
    model = parallelize(model_of(size, args.model), mesh, capture=args.capture)
    x = graph.x
    if args.model == "GraphSAGE":  # whose features have a scale
        x = BitTensor(x.words, size.features, torch.ones(len(x), device=graph.device))
    return lambda: model(x, graph)


def _bits(size: Size, graph: ShardedAdjacency) -> torch.Tensor:
    """Words of as many bits as an exchange sends."""
    shape = graph.places.rows, size.hidden // 32
    return torch.zeros(shape, dtype=torch.int32, device=graph.device)


def digest(graph: ShardedAdjacency, result: torch.Tensor) -> str:
    """The same for every number of ranks: sums over nodes, weighted by their numbers."""
    start, total = graph.places.starts[graph.places.rank], 0
    for at in range(0, len(result), 1 << 20):
        rows = result[at : at + (1 << 20)].long()
        rows = rows if rows.dim() == 1 else rows.sum(1) + 7 * rows[:, 0]
        nodes = torch.arange(len(rows), device=rows.device) + start + at
        total += int(((rows + 1) * (nodes % 65521 + 1)).sum())
    found = torch.tensor(total, device=result.device)
    dist.all_reduce(found)
    return hashlib.sha256(str(int(found)).encode()).hexdigest()[:16]


def _peak(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else 0


def _of_ranks(number: int, device: torch.device) -> list[int]:
    held = torch.tensor([number], device=device)
    found = [torch.zeros_like(held) for _ in range(dist.get_world_size())]
    dist.all_gather(found, held)
    return [int(one) for one in found]


def work(args: argparse.Namespace) -> None:
    """Measure the sizes on this process's device; the first rank prints and writes."""
    kind = args.device
    backend = "nccl" if kind == "cuda" else "gloo"
    place = None
    if kind == "cuda":
        place = torch.device(kind, int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(place)
    alone: dict[str, Any] = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    given = {} if "RANK" in os.environ else alone
    dist.init_process_group(backend, device_id=place, **given)
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    device = torch.cuda.get_device_name() if kind == "cuda" else "CPU"
    found: list[dict[str, Any]] = []
    for made in _records(mesh, args):
        record = {"device": device, **made}
        found.append(record)
        if dist.get_rank() == 0:
            print(json.dumps(record), flush=True)
            _write(args, f"scale_{kind}", found)  # whatever comes after
        if kind == "cuda":
            torch.cuda.empty_cache()
    dist.destroy_process_group()


def _records(mesh: DeviceMesh, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Records of the case, one after the other."""
    if args.case == "scores":
        yield scores_record(torch.device(mesh.device_type), timed, args.repeats)
    elif args.case == "training":
        for name in args.sizes:
            yield from _steps(name, mesh, args)
    elif args.case == "replays":
        yield from (_replays(name, mesh, args) for name in args.sizes)
    else:
        yield from (measure(name, mesh, args) for name in args.sizes)


def _replays(name: str, mesh: DeviceMesh, args: argparse.Namespace) -> dict[str, Any]:
    """Forwards on one size; the model is gone before its process group is."""
    size, device = SIZES[name], torch.device(mesh.device_type)
    graph = shard_graph(PowerLawGraph(size.nodes, size.edges, size.features), mesh)
    run = _runner(size, graph, mesh, args)
    found = replays_record(run, device, args.replays, args.seconds)
    return {
        "size": name, "model": args.model, **size._asdict(), "ranks": mesh.size(),
        "captured": args.capture, **found, "digest": digest(graph, run()),
    }  # fmt: skip


def _steps(name: str, mesh: DeviceMesh, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Steps of full-batch training on one size."""
    size, device = SIZES[name], torch.device(mesh.device_type)
    graph = shard_graph(PowerLawGraph(size.nodes, size.edges, size.features), mesh)
    widths = [size.features, *[size.hidden] * (size.layers - 1), size.classes]
    for layer, messages in itertools.product(LAYERS, MESSAGES):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        made = training_record(layer, messages, widths, graph, mesh, timed, args.repeats)
        peak = _of_ranks(_peak(device), device)
        yield {"size": name, **size._asdict(), "ranks": mesh.size(), **made, "peak_bytes": peak}


def _write(args: argparse.Namespace, benchmark: str, records: list[dict[str, Any]]) -> None:
    if args.output:
        head = {
            "benchmark": benchmark, "case": args.case, "settings": {"repeats": args.repeats},
            "made_up": True, "environment": environment(Path(__file__).parents[1]),
        }  # fmt: skip
        write_json(Path(args.output), {**head, "records": records})


def plot(records: list[dict[str, Any]], file: str) -> None:
    """Times against edges, a line for each number of GPUs, floors dashed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    whole = sorted((r for r in records if r["layers"]), key=lambda r: int(r["edges"]))
    for ranks in sorted({record["ranks"] for record in whole}):
        held = [r for r in whole if r["ranks"] == ranks]
        edges = [r["edges"] for r in held]
        (line,) = axes.plot(
            edges, [r["ms"] for r in held], "o-", label=f"{ranks} GPU{'s' * (ranks > 1)}"
        )
        floors = [r["floor"]["ms"] for r in held]
        axes.plot(edges, floors, "--", color=line.get_color(), label=f"floor, {ranks}")
    axes.set(
        xscale="log", yscale="log", xlabel="edges", ylabel="ms", title="Three layers of 128 bits"
    )
    axes.legend()
    figure.savefig(file, dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["papers100M"])
    parser.add_argument("--case", choices=CASES, default=CASES[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: a GPU if there is one")
    parser.add_argument("--root", help="folder of data sets for --case orders")
    parser.add_argument("--ranks", type=int, default=1, help="GPUs of this machine (default: 1)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--model", choices=MODELS, default=MODELS[0])
    parser.add_argument("--capture", action="store_true", help="as one CUDA graph")
    parser.add_argument("--replays", type=int, default=1000, help="least forwards of replays")
    parser.add_argument("--seconds", type=float, default=0.0, help="least time of replays")
    parser.add_argument("--output", help="file for the records")
    parser.add_argument("--plot", nargs="+", help="draw these records into --output instead")
    arguments = sys.argv[1:] if arguments is None else arguments
    args = parser.parse_args(arguments)
    args.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if args.case == "orders":
        root = args.root or default_root()
        _write(args, "scale_orders", order_records(args.device, root, args.repeats))
        return 0
    if args.case == "cpu":
        _write(args, "scale_cpu", [whole(repeats=args.repeats), from_disk()])
        return 0
    if args.plot:
        records = [r for file in args.plot for r in json.loads(Path(file).read_text())["records"]]
        plot(records, args.output)
        return 0
    if args.ranks > 1 and "RANK" not in os.environ:
        launch = ["torch.distributed.run", "--standalone", f"--nproc-per-node={args.ranks}"]
        return subprocess.run([sys.executable, "-m", *launch, __file__, *arguments]).returncode
    work(args)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
