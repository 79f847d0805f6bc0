"""What binds the CPU operators: their times beside the machine's own rates in the same run."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from bench.ceilings import OPERATIONS, Ceilings, Repeated
from bench.graphs import Graph
from bench.operators.cpu import edge_values, signs, symmetric_adjacency, torch_csr
from bitgnn.measure.timing import Timing, compare
from bitgnn.ops import bmm, bspmm

Functions = Mapping[str, Callable[[], Any]]
Record = dict[str, Any]

ROUNDS = 300_000
GRAPH_FEATURES = 128  # gathers of ceilings.cpp read four words


def timings(functions: Functions, **options: Any) -> tuple[dict[str, Timing], Record]:
    """Interleaved times of all functions, and the same as a JSON-ready record.

    The machine's functions repeat their work inside a call; their times are those of one turn.
    """
    times = compare(functions, **options)
    for name, fn in functions.items():
        if isinstance(fn, Repeated):
            once = tuple(seconds / fn.times for seconds in times[name].seconds)
            times[name] = replace(times[name], seconds=once, calls=times[name].calls * fn.times)
    return times, {name: timing.to_dict() for name, timing in times.items()}


def faults_per_call(fn: Callable[[], Any], calls: int = 3) -> float:
    """Pages that the system maps anew in a call of ``fn``, on average."""
    fn()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(calls):
        fn()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / calls


def rates(ceilings: Ceilings, threads: int, **options: Any) -> Record:
    """Operations a second of the machine's instructions, on one thread and on all."""
    names = list(OPERATIONS) if ceilings.vector_bits else ["dependent_adds"]
    counts = sorted({1, threads})
    functions = {
        f"{name}, threads {count}": ceilings.operations(name, count, ROUNDS)
        for name in names
        for count in counts
    }
    times, record = timings(functions, **options)
    per_second = {
        name: {
            str(count): count * ROUNDS * OPERATIONS[name] / times[f"{name}, threads {count}"].median
            for count in counts
        }
        for name in names
    }
    return {"per_second": per_second, "times": record}


def bmm_profile(
    ceilings: Ceilings, shape: tuple[int, int, int], threads: int, **options: Any
) -> Record:
    """BMM.BBF of ``[n, k] × [m, k]ᵀ`` beside its parts and torch's product of the same signs."""
    n, m, k = shape
    x, x_bits = signs(n, k)
    w, w_bits = signs(m, k)
    transposed = w.t().contiguous()
    result = bmm.bbf(x_bits, w_bits)
    functions: dict[str, Callable[[], Any]] = {
        "ours": lambda: bmm.bbf(x_bits, w_bits),
        "torch": lambda: x @ transposed,
        "torch, result reused": partial(torch.mm, x, transposed, out=torch.empty(n, m)),
        "write": ceilings.write(threads, result, stream=False),
    }
    products = []
    if ceilings.vector_bits:
        products = ["xor_popcount_add", "parity_popcount_add", "fused_multiply_adds"]
        for name in products:
            # The whole product's operations, so that times compare directly.
            rounds = ceilings.rounds(name, 2 * n * m * k / threads)
            functions[name] = ceilings.operations(name, threads, rounds)
    times, record = timings(functions, **options)
    floor = {name: times[name].median for name in [*products, "write"]}
    bits = [floor[name] for name in products if name != "fused_multiply_adds"]
    best = max(min(bits), floor["write"]) if bits else None
    torch_time = times["torch"].median
    return {
        "name": f"BMM BBF, [{n}, {k}] × [{m}, {k}]ᵀ",
        "operations": 2 * n * m * k,
        "result_bytes": 4 * n * m,
        "ratio": torch_time / times["ours"].median,
        "floor": floor,
        "highest_ratio": None if best is None else torch_time / best,
        "bound": None
        if best is None
        else ("write of the result" if best == floor["write"] else "vector operations"),
        "times": record,
    }


def bspmm_profile(ceilings: Ceilings, graph: Graph, threads: int, **options: Any) -> Record:
    """BSpMM.BBF on a graph beside its parts, and torch's product with fresh and reused memory."""
    adjacency = symmetric_adjacency(graph)
    values = edge_values(adjacency, graph)
    matrix = torch_csr(graph, values, torch.int32)
    x, bits = signs(graph.num_nodes, GRAPH_FEATURES)
    result = bspmm.bbf(bits, adjacency)
    reused = torch.empty_like(result)
    functions: dict[str, Callable[[], Any]] = {
        "ours": lambda: bspmm.bbf(bits, adjacency),
        "BBB": lambda: bspmm.bbb(bits, adjacency),
        "write past the caches": ceilings.write(threads, result, stream=True),
        "write through the caches": ceilings.write(threads, result, stream=False),
        "read of indices": ceilings.read(threads, adjacency.indices),
        "gather of rows": ceilings.gather(threads, adjacency.indices, bits.words),
        "torch": lambda: matrix @ x,
        "torch, result reused": lambda: torch.addmm(reused, matrix, x, beta=0, out=reused),
        "fresh zeros": lambda: torch.zeros_like(result),
    }
    times, record = timings(functions, **options)
    floor = {name: times[name].median for name in ("BBB", "write past the caches")}
    best = max(floor, key=lambda name: floor[name])
    return {
        "name": f"BSpMM BBF, H = {GRAPH_FEATURES}, {graph.name}",
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "result_bytes": result.nbytes,
        "ratio": times["torch"].median / times["ours"].median,
        "ratio_reused": times["torch, result reused"].median / times["ours"].median,
        "floor": floor,
        "highest_ratio": times["torch"].median / floor[best],
        "bound": "sums of neighbours" if best == "BBB" else "write of the result",
        "faults": {
            name: faults_per_call(functions[name])
            for name in ("ours", "torch", "torch, result reused", "fresh zeros")
        },
        "times": record,
    }
