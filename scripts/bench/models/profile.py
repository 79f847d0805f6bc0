"""What binds whole frozen models on a CPU: their stages beside the rates of the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.ceilings import GATHERED_WORDS, Ceilings, Repeated
from bench.models.floor import Aggregation, aggregations
from bench.models.goals import goals
from bench.models.ours import Frozen, freeze_network
from bench.models.peers import PYG, peers
from bench.operators.profile import Functions, Record, timings
from bench.tasks import NodeTask
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.measure.timing import MIN_REPEATS, Timing, compare

GRAPHS = ("cora", "citeseer", "pubmed", "flickr", "reddit_eighth")
FEATURES = ("floats", "packed")
BASELINES = ("SparseTensor bf16", "torch CSR fp32")
"""Forms of PyG's model: the fastest one on every graph, and what there is without torch-sparse."""
WORD_BYTES, WORD_BITS = 4, 32
BETWEEN, CALLING = "between the calls", "calls on one node"


@dataclass(frozen=True)
class Bound:
    """Work that no implementation can avoid, and what it takes at the machine's own rate.

    Attributes:
        work: what it is.
        amount: bytes read, rows gathered, or products and sums of single bits.
        unit: of the amount.
        run: does as much at the machine's rate.
    """

    work: str
    amount: float
    unit: str
    run: Repeated


def model_profiles(
    ceilings: Ceilings, key: str, load: Callable[[], NodeTask], threads: int, **options: Any
) -> list[Record]:
    """The "bin" GCN on one graph, from floats and from packed features."""
    task = load()
    network = freeze_network("GCN", "bin", task)
    name, baseline = _baseline(task)
    records = []
    for features in FEATURES:
        figure = _figure(ceilings, network, features, task, threads, baseline.median, options)
        figure["baselines"] = {name: baseline.to_dict()}
        wanted = goals("cpu", "GCN", key, "bin", features)
        figure["goal"] = wanted[0].value if wanted else None
        records.append(figure)
    return records


def _baseline(task: NodeTask) -> tuple[str, Timing]:
    """PyG in the first form that is installed, in as few rounds as a timing may have."""
    found = {peer.name: peer for peer in peers("GCN", task) if peer.family == PYG}
    for name in BASELINES:
        make = found[name].make if name in found else None
        if make is not None:
            return f"PyG {name}", compare({"": make()[0]}, repeats=MIN_REPEATS)[""]
    raise ValueError(f"profile: PyG takes {task.name} in none of {BASELINES}")


@torch.inference_mode()
def _figure(
    ceilings: Ceilings,
    network: Frozen,
    features: str,
    task: NodeTask,
    threads: int,
    best: float,
    options: Mapping[str, Any],
) -> Record:
    model = network.model
    x, graph = network.inputs[features]
    calls = {
        f"call {i}: {', '.join(step.kind for step in steps)}": call
        for i, (steps, call) in enumerate(model.repeatable_calls(x, graph), 1)
    }
    bounds = _bounds(ceilings, network, features, task, threads)
    functions: Functions = {
        "forward": partial(model, x, graph),
        CALLING: partial(model, *_one_node(network, features, task)),
        **calls,
        **{bound.work: bound.run for bound in bounds},
    }
    times, record = timings(functions, **options)
    forward = times["forward"].median
    seconds = {name: times[name].median for name in calls}
    seconds[BETWEEN] = max(0.0, forward - sum(seconds.values()))
    at_once = {b.work: times[b.work].median for b in bounds if b.unit != "rows"}
    gathers = {b.work: times[b.work].median for b in bounds if b.unit == "rows"}
    longest = max(at_once, key=lambda work: at_once[work])
    floor = {longest: at_once[longest], **gathers}
    return {
        "name": f"GCN {task.name}, bin, {features}",
        "nodes": task.num_nodes,
        "edges": task.num_edges,
        "ratio": best / forward,
        "highest_ratio": best / sum(floor.values()),
        "bound": max(floor, key=lambda work: floor[work]),
        "floor": floor,
        "stages": {
            name: {"seconds": value, "share": value / forward} for name, value in seconds.items()
        },
        "calling": {"seconds": times[CALLING].median, "share": times[CALLING].median / forward},
        "bounds": {
            bound.work: {
                "amount": bound.amount,
                "unit": bound.unit,
                "seconds": times[bound.work].median,
                "per_second": bound.amount / times[bound.work].median,
            }
            for bound in bounds
        },
        "times": record,
    }


def _one_node(network: Frozen, features: str, task: NodeTask) -> tuple[Any, Any]:
    """What the model takes for one node, in the form that its features and graph have."""
    graph = network.model.prepare_graph(task.edge_index[:, :0], 1)
    if features == "floats":
        return task.x[:1], graph
    layout = "sparse" if isinstance(network.inputs[features][0], BitAdjacency) else "dense"
    return network.model.pack_features(task.x[:1], layout=layout), graph


def _bounds(
    ceilings: Ceilings, network: Frozen, features: str, task: NodeTask, threads: int
) -> list[Bound]:
    """Reading the features, the products that no zero word spares, a row for every edge."""
    x, graph = network.inputs[features]
    adjacency = network.graph
    assert isinstance(adjacency, BitAdjacency)  # all layers of a GCN share it
    hidden, classes = task.hidden_channels("GCN"), task.num_classes
    stored = _words(x)
    found = [Bound("read of features", stored.nbytes, "bytes", ceilings.read(threads, stored))]
    bits = network.inputs.get("packed dense", network.inputs["packed"])[0]
    assert isinstance(bits, BitTensor)
    if ceilings.vector_bits:
        # A word without a set bit adds what is known from the weights alone.
        words = int((bits.words != 0).sum())
        operations = 2.0 * (words * WORD_BITS * hidden + task.num_nodes * hidden * classes)
        found.append(_products(ceilings, operations, threads))
    widths = [task.x.size(1), hidden, classes]
    needed = aggregations(network.model, widths, task.num_nodes, graph)
    for i, aggregation in enumerate(needed, 1):
        found.append(_gather(ceilings, f"gathers of layer {i}", aggregation, adjacency, threads))
    return found


def _words(x: Any) -> Tensor:
    """What is stored of features, as words of 32 bits."""
    if isinstance(x, BitAdjacency):  # the pattern of set bits
        return x.indices
    return x.words if isinstance(x, BitTensor) else x.contiguous().view(torch.int32)


def _products(ceilings: Ceilings, operations: float, threads: int) -> Bound:
    name = "parity_popcount_add"  # the faster one of the two wherever this was measured
    rounds = ceilings.rounds(name, operations / threads)
    return Bound(
        "products of signs", operations, "operations", ceilings.operations(name, threads, rounds)
    )


def _gather(
    ceilings: Ceilings,
    work: str,
    aggregation: Aggregation,
    adjacency: BitAdjacency,
    threads: int,
) -> Bound:
    """Rows as narrow as they may be, the words of a gather that is measured at least."""
    words = -(-int(aggregation.row_bytes) // WORD_BYTES)
    width = next((w for w in GATHERED_WORDS if w >= words), GATHERED_WORDS[-1])
    table = torch.zeros(aggregation.nodes, width, dtype=torch.int32)
    run = ceilings.gather(threads, adjacency.indices, table)
    return Bound(work, aggregation.edges, "rows", run)
