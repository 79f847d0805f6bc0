"""The operator benchmark: pack, BMM and BSpMM against torch on the same machine and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bench.cases import Skipped
from bench.graphs import Graph, load_flickr, power_law_graph
from bench.operators.case import (
    SEED,
    OperatorCase,
    aggregates_right,
    multiplies_right,
    packs_right,
    thresholds_right,
)
from bench.operators.int8 import int8_cases
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.data import DataError
from bitgnn.ops import add, bmm, bspmm, concat
from bitgnn.ops.layout_choice import LAYOUTS

PACK_BYTES = 100_000_000


@dataclass(frozen=True)
class Sizes:
    """How large the operands are; the quick ones only show that everything runs."""

    pack_bytes: int = PACK_BYTES
    cube: int = 2048
    tall: int = 4096
    wide: int = 1024
    narrow: int = 128
    linear: tuple[int, int, int] = (20_000, 500, 64)
    synthetic_nodes: int = 232_965
    synthetic_edges: int = 14_300_000
    hidden: tuple[int, ...] = (64, 128, 256)


QUICK = Sizes(1_000_000, 128, 256, 64, 32, (200, 50, 16), 1000, 20_000, (64, 128))


def cases(sizes: Sizes, data_root: str | Path | None) -> Iterator[OperatorCase | Skipped]:
    """Every comparison of the operator benchmark, made one at a time to bound memory."""
    torch.manual_seed(SEED)
    yield from _pack_cases(sizes)
    yield from _bmm_cases(sizes)
    yield from _bmm_variants(*sizes.linear)
    yield from int8_cases(*sizes.linear, "cpu")
    yield from _auxiliary_cases(sizes.linear[0], 128)
    try:
        flickr = load_flickr(data_root)
    except DataError as error:
        yield Skipped("BSpMM", "Flickr", str(error))
    else:
        yield from _bspmm_cases(flickr, sizes.hidden, {"bbb": 25.0, "bbf": 20.0})
        yield from _bspmm_variants(flickr, 128)
    synthetic = power_law_graph(
        sizes.synthetic_nodes, sizes.synthetic_edges, exponent=2.5, seed=SEED
    )
    yield from _bspmm_cases(synthetic, sizes.hidden, {"bbb": 50.0, "bbf": 40.0})


def read_baselines(x: Tensor) -> dict[str, Callable[[], Any]]:
    """Ways to read every byte of float32 ``x`` once with all threads, writing next to nothing.

    None of them is the STREAM benchmark itself; the fastest stands for the read rate.
    """
    flat = x.flatten()
    threads = torch.get_num_threads()
    parts = np.array_split(flat.numpy().view(np.int64), threads)
    pool = ThreadPoolExecutor(threads)
    return {
        "torch.sum": flat.sum,
        "torch.amax": flat.amax,
        "torch.dot(x, x)": lambda: torch.dot(flat, flat),
        "numpy bitwise or, one thread a part": lambda: list(pool.map(np.bitwise_or.reduce, parts)),
    }


def _pack_cases(sizes: Sizes) -> Iterator[OperatorCase]:
    columns = 1000
    x = torch.randn(sizes.pack_bytes // 4 // columns, columns)
    details = {"bytes_read": x.nbytes}
    name = f"fp32 [{x.shape[0]}, {x.shape[1]}] to bits"
    yield OperatorCase(
        "pack",
        name,
        lambda: BitTensor.from_float(x),
        read_baselines(x),
        target=0.7,
        check=partial(packs_right, x),
        details=details,
    )
    yield OperatorCase(
        "pack",
        f"{name} and row scales",
        lambda: BitTensor.from_float(x, scale="mean"),
        read_baselines(x),
        details=details,
    )


def signs(rows: int, columns: int) -> tuple[Tensor, BitTensor]:
    """A random ±1 matrix as floats and as bits."""
    x = torch.randn(rows, columns)
    bits = BitTensor.from_float(x)
    return bits.to_float(), bits


def _bbf_case(n: int, m: int, k: int, target: float) -> OperatorCase:
    x, x_bits = signs(n, k)
    w, w_bits = signs(m, k)
    transposed = w.t().contiguous()
    return OperatorCase(
        "BMM",
        f"BBF, [{n}, {k}] × [{m}, {k}]ᵀ",
        lambda: bmm.bbf(x_bits, w_bits),
        {"torch x @ w.T": lambda: x @ w.t(), "torch x @ wt": lambda: x @ transposed},
        target=target,
        check=lambda: torch.equal(bmm.bbf(x_bits, w_bits), x @ w.t()),
    )


def _bmm_cases(sizes: Sizes) -> Iterator[OperatorCase]:
    yield _bbf_case(sizes.cube, sizes.cube, sizes.cube, 20.0)
    # "4096×128×1024" can be read as M×N×K or as M×K×N; both are measured.
    yield _bbf_case(sizes.tall, sizes.narrow, sizes.wide, 25.0)
    yield _bbf_case(sizes.tall, sizes.wide, sizes.narrow, 25.0)
    n, k, m = sizes.linear
    x, w = torch.randn(n, k), torch.randn(m, k)
    w_bits = BitTensor.from_float(w)
    yield OperatorCase(
        "BMM",
        f"FBB, [{n}, {k}] → {m}, packing inside",
        lambda: bmm.fbb(x, w_bits),
        {"torch linear": lambda: functional.linear(x, w)},
        target=8.0,
        check=partial(multiplies_right, x, w_bits),
    )


def _bmm_variants(n: int, k: int, m: int) -> Iterator[OperatorCase]:
    """All seven letters at the shape of a first GCN layer, scales as freezing leaves them."""
    x, w = torch.randn(n, k), torch.randn(m, k)
    x_bits, w_bits = BitTensor.from_float(x), BitTensor.from_float(w)
    x_scaled = BitTensor.from_float(x, scale="mean")
    w_scaled = BitTensor.from_float(w, scale="mean")
    variants = {
        "BBB": lambda: bmm.bbb(x_bits, w_bits),
        "BBF": lambda: bmm.bbf(x_scaled, w_scaled),
        "FBB": lambda: bmm.fbb(x, w_bits),
        "FBF": lambda: bmm.fbf(x, w_scaled),
        "BFB": lambda: bmm.bfb(x_bits, w),
        "BFF": lambda: bmm.bff(x_scaled, w),
        "FFB": lambda: bmm.ffb(x, w),
    }
    for letters, ours in variants.items():
        yield OperatorCase(
            "BMM variants",
            f"{letters}, [{n}, {k}] → {m}",
            ours,
            {"torch linear": lambda: functional.linear(x, w)},
        )


def _auxiliary_cases(n: int, k: int) -> Iterator[OperatorCase]:
    a, b = torch.randn(n, k), torch.randn(n, k)
    a_bits, b_bits = BitTensor.from_float(a), BitTensor.from_float(b)
    groups: dict[str, tuple[Any, dict[str, Callable[[], Any]]]] = {
        "ADD": (add, {"torch add": lambda: a + b}),
        "CONCAT": (concat, {"torch cat": lambda: torch.cat([a, b], 1)}),
    }
    for group, (module, baselines) in groups.items():
        for letters in ("BBB", "BBF", "FFB"):
            operands = (a, b) if letters[0] == "F" else (a_bits, b_bits)
            ours = partial(getattr(module, letters.lower()), *operands)
            name = f"{group} {letters}, [{n}, {k}]"
            yield OperatorCase("ADD and CONCAT", name, ours, baselines)


def torch_csr(graph: Graph, values: Tensor, dtype: torch.dtype) -> Tensor:
    """The graph with float32 ``values`` ``[E]`` as torch CSR, its indices of type ``dtype``."""
    shape = (graph.num_nodes, graph.num_nodes)
    return torch.sparse_csr_tensor(
        graph.rowptr.to(dtype), graph.indices.to(dtype), values, shape, check_invariants=False
    )


def _sparse_baselines(graph: Graph, values: Tensor, x: Tensor) -> dict[str, Callable[[], Tensor]]:
    int32, int64 = (torch_csr(graph, values, t) for t in (torch.int32, torch.int64))
    return {
        "torch CSR int32 @ dense": lambda: int32 @ x,
        "torch CSR int64 @ dense": lambda: int64 @ x,
    }


def edge_values(adjacency: BitAdjacency, graph: Graph) -> Tensor:
    """float32 ``[E]``: the entries row[i] · col[j] that the factors stand for."""
    row, col = adjacency.row_scale, adjacency.col_scale
    if row is None or col is None:
        raise TypeError("bench: the adjacency must carry both factors")
    return torch.repeat_interleave(row, graph.rowptr.diff()) * col[graph.indices]


def symmetric_adjacency(graph: Graph) -> BitAdjacency:
    """The graph as bits with the factors of symmetric normalisation, no loops added."""
    return BitAdjacency.from_edge_index(graph.edge_index(), graph.num_nodes, normalize="sym")


def _bspmm_cases(
    graph: Graph, hidden: tuple[int, ...], targets: dict[str, float]
) -> Iterator[OperatorCase]:
    adjacency = symmetric_adjacency(graph)
    values = edge_values(adjacency, graph)
    for size in hidden:
        x, bits = signs(graph.num_nodes, size)
        baselines = _sparse_baselines(graph, values, x)
        for letters, target in targets.items():
            yield OperatorCase(
                "BSpMM",
                f"{letters.upper()}, H = {size}, {graph.name}",
                partial(getattr(bspmm, letters), bits, adjacency),
                baselines,
                target=target if size == 128 else None,
                check=partial(aggregates_right, adjacency, bits),
                details={"nodes": graph.num_nodes, "edges": graph.num_edges},
            )
        threshold = torch.randn(size) / 2
        yield OperatorCase(
            "BSpMM",
            f"BBB with thresholds, H = {size}, {graph.name}",
            partial(bspmm.bbb, bits, adjacency, threshold=threshold),
            baselines,
            check=partial(thresholds_right, adjacency, bits, threshold),
            details={"nodes": graph.num_nodes, "edges": graph.num_edges},
        )


def _bspmm_variants(graph: Graph, size: int) -> Iterator[OperatorCase]:
    """All eight letters, and every layout of the two on bits."""
    adjacency = symmetric_adjacency(graph)
    values = edge_values(adjacency, graph)
    matrix = torch_csr(graph, values, torch.int32)
    x, bits = signs(graph.num_nodes, size)
    variants: dict[str, Callable[[], Any]] = {
        "BBB": lambda: bspmm.bbb(bits, adjacency),
        "BBF": lambda: bspmm.bbf(bits, adjacency),
        "FBB": lambda: bspmm.fbb(x, adjacency),
        "FBF": lambda: bspmm.fbf(x, adjacency),
        "BFB": lambda: bspmm.bfb(bits, matrix),
        "BFF": lambda: bspmm.bff(bits, matrix),
        "FFB": lambda: bspmm.ffb(x, matrix),
        "FFF": lambda: bspmm.fff(x, matrix),
    }
    for layout in LAYOUTS:
        for letters, function in (("BBB", bspmm.bbb), ("BBF", bspmm.bbf)):
            variants[f"{letters} {layout}"] = partial(function, bits, adjacency, layout=layout)
    baselines = _sparse_baselines(graph, values, x)
    for letters, ours in variants.items():
        yield OperatorCase(
            "BSpMM variants", f"{letters}, H = {size}, {graph.name}", ours, baselines
        )
