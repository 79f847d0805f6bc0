"""BSpMM on a CUDA device against cuSPARSE, on real graphs and one of Reddit's size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.cases import Goal, Skipped
from bench.cuda_ceilings import Ceilings, bit_ceiling
from bench.graphs import REDDIT, Graph, heavy_tailed_graph, load_flickr
from bench.operators.case import (
    SEED,
    OperatorCase,
    aggregates_right,
    pattern_sums,
    thresholds_right,
)
from bitgnn.bits import BitAdjacency, BitTensor, TernaryTensor
from bitgnn.data import DataError, load
from bitgnn.ops import bspmm
from bitgnn.ops.layout_choice import LAYOUTS

DEVICE = "cuda"
QUICK_SIZE = (2_000, 40_000, 500)
INTEGER_COLUMNS = 41
WIDTHS = (128, 256)


Goals = dict[tuple[str, int], Goal]
"""Figures for one graph by letters and width."""
GOALS: dict[str, Goals] = {
    "reddit": {
        ("BBB", 128): Goal("seconds", 0.40e-3),
        ("BBB", 256): Goal("seconds", 0.55e-3),
        ("BBF", 128): Goal("seconds", 0.50e-3),
        ("FBF float32", 128): Goal("ratio", 1.3),
        ("FBF float16", 128): Goal("ratio", 2.0),
        ("FBF int8", INTEGER_COLUMNS): Goal("ratio", 6.0),
    },
    "flickr": {("BBB", 128): Goal("seconds", 14e-6), ("BBB", 256): Goal("seconds", 20e-6)},
    "pubmed": {("BBB", 128): Goal("seconds", 4e-6)},
    "cora": {},
}
SCALE = 0.9
"""Of ternary values, which are +1 or -1 from half of it on."""
NEAR_BEST = Goal("ratio", 1 / 1.15)
"""The default layout is at most 1.15 times slower than the best."""


def graph_cases(
    ceilings: Ceilings, data_root: str | Path | None, quick: bool
) -> Iterator[OperatorCase | Skipped]:
    """Every aggregation, one graph after the other."""
    torch.manual_seed(SEED)
    size = QUICK_SIZE if quick else REDDIT
    loaders: dict[str, Callable[[], Graph]] = {
        "cora": partial(_citation_graph, "Cora", data_root),
        "pubmed": partial(_citation_graph, "PubMed", data_root),
        "flickr": partial(load_flickr, data_root),
        "reddit": lambda: heavy_tailed_graph(
            size[0], size[1], max_degree=size[2], seed=SEED, device=DEVICE
        ),
    }
    for key, make in loaders.items():
        try:
            graph = make()
        except DataError as error:
            yield Skipped("BSpMM", key, str(error))
            continue
        yield from _cases(graph, GOALS[key], ceilings)
        torch.cuda.empty_cache()


def _citation_graph(name: str, data_root: str | Path | None) -> Graph:
    data = load(name, data_root)
    adjacency = BitAdjacency.from_edge_index(data.edge_index, data.num_nodes, add_self_loops=True)
    return Graph(name, adjacency.rowptr.long(), adjacency.indices.long())


def _cases(graph: Graph, goals: Goals, ceilings: Ceilings) -> Iterator[OperatorCase]:
    n = graph.num_nodes
    rowptr = graph.rowptr.to(DEVICE, torch.int32)
    indices = graph.indices.to(DEVICE, torch.int32)
    factor = rowptr.diff().clamp(min=1).float().rsqrt()
    adjacency = BitAdjacency(rowptr, indices, n, factor, factor)
    matrix = adjacency.to_torch_csr()
    for width in WIDTHS:
        x = torch.randn(n, width, device=DEVICE)
        bits = BitTensor.from_float(x)
        signs = bits.to_float()
        half = _half(matrix)
        baselines = {
            "cuSPARSE fp32": partial(torch.matmul, matrix, signs),
            "cuSPARSE fp16": partial(torch.matmul, half, signs.half()),
        }
        threshold = torch.randn(width, device=DEVICE) / 2
        right = partial(aggregates_right, adjacency, bits)
        compares = partial(thresholds_right, adjacency, bits, threshold)
        bounded = partial(bspmm.bbb, bits, adjacency, threshold=threshold)
        for letters, ours, out_bytes, check in (
            ("BBB", partial(bspmm.bbb, bits, adjacency), width / 8, right),
            ("BBB with thresholds", bounded, width / 8, compares),
            ("BBF", partial(bspmm.bbf, bits, adjacency), width * 4.0, right),
        ):
            seconds, binds = bit_ceiling(ceilings, n, graph.num_edges, width, out_bytes)
            yield OperatorCase(
                "BSpMM",
                f"{letters}, H = {width}, {graph.name}",
                ours,
                baselines,
                goal=goals.get((letters, width)),
                work=graph.num_edges,
                unit="edge",
                ceiling_seconds=seconds,
                binds=binds,
                check=check,
                details={"nodes": n, "edges": graph.num_edges},
            )
        yield from _layout_cases(graph, adjacency, bits)
        yield from _ternary_cases(graph, adjacency, matrix, x, ceilings)
        if width == WIDTHS[0]:
            yield from _dense_cases(graph, adjacency, matrix, x, goals, ceilings)
    yield from _integer_cases(graph, adjacency, matrix, goals, ceilings)


def _half(matrix: Tensor) -> Tensor:
    return torch.sparse_csr_tensor(
        matrix.crow_indices(),
        matrix.col_indices(),
        matrix.values().half(),
        matrix.shape,
        check_invariants=False,
    )


def _layout_cases(graph: Graph, adjacency: BitAdjacency, bits: BitTensor) -> Iterator[OperatorCase]:
    """Every layout of BBB against the default choice."""
    layouts: dict[str, Callable[[], Any]] = {
        layout: partial(bspmm.bbb, bits, adjacency, layout=layout) for layout in LAYOUTS
    }
    if adjacency.frdc() is None:
        del layouts["frdc"]
    yield OperatorCase(
        "BSpMM layouts",
        f"BBB default, H = {bits.size}, {graph.name}",
        partial(bspmm.bbb, bits, adjacency),
        layouts,
        goal=NEAR_BEST,
        work=graph.num_edges,
        unit="edge",
    )


def _dense_cases(
    graph: Graph,
    adjacency: BitAdjacency,
    matrix: Tensor,
    x: Tensor,
    goals: Goals,
    ceilings: Ceilings,
) -> Iterator[OperatorCase]:
    n, width = x.shape
    for dtype, values in ((torch.float32, matrix), (torch.float16, _half(matrix))):
        kind = str(dtype).removeprefix("torch.")
        rows = x.to(dtype)
        # Pieces of 128 bytes are the widest that come at the full rate of the cache.
        pieces = width * rows.element_size() / 128
        table = n * 128.0
        gather = graph.num_edges * pieces / ceilings.gather_rate(128, table)
        memory = ceilings.memory_seconds(4.0 * graph.num_edges + rows.nbytes, 4.0 * n * width)
        yield OperatorCase(
            "BSpMM",
            f"FBF {kind}, H = {width}, {graph.name}",
            partial(bspmm.fbf, rows, adjacency),
            {f"cuSPARSE {kind}": partial(torch.matmul, values, rows)},
            goal=goals.get((f"FBF {kind}", width)),
            work=graph.num_edges,
            unit="edge",
            ceiling_seconds=max(gather, memory) + ceilings.launch_seconds,
            binds="gathers" if gather > memory else "memory",
            check=partial(_close, adjacency, matrix, rows),
        )


def _close(adjacency: BitAdjacency, matrix: Tensor, x: Tensor) -> bool:
    return torch.allclose(bspmm.fbf(x, adjacency), matrix @ x.float(), rtol=1e-3, atol=1e-3)


def _integer_cases(
    graph: Graph,
    adjacency: BitAdjacency,
    matrix: Tensor,
    goals: Goals,
    ceilings: Ceilings,
) -> Iterator[OperatorCase]:
    x = torch.randint(
        -128, 128, (graph.num_nodes, INTEGER_COLUMNS), device=DEVICE, dtype=torch.int8
    )
    floats = x.float()
    # Rows padded to 48 bytes.
    gather = graph.num_edges / ceilings.gather_rate(48, graph.num_nodes * 48.0)
    yield OperatorCase(
        "BSpMM",
        f"FBF int8 to int32, H = {INTEGER_COLUMNS}, {graph.name}",
        partial(bspmm.fbf, x, adjacency, integer=True),
        {"cuSPARSE fp32": partial(torch.matmul, matrix, floats)},
        goal=goals.get(("FBF int8", INTEGER_COLUMNS)),
        work=graph.num_edges,
        unit="edge",
        ceiling_seconds=gather + ceilings.launch_seconds,
        binds="gathers",
        check=partial(_integers_right, adjacency, x),
    )


def _integers_right(adjacency: BitAdjacency, x: Tensor) -> bool:
    found = bspmm.fbf(x, adjacency, integer=True)
    return torch.equal(found.double(), pattern_sums(adjacency, x.double()))


def _ternary_cases(
    graph: Graph, adjacency: BitAdjacency, matrix: Tensor, x: Tensor, ceilings: Ceilings
) -> Iterator[OperatorCase]:
    """Sums of ternary rows, against cuSPARSE and in every layout."""
    n, width = x.shape
    rows = TernaryTensor.from_float(x, SCALE)
    floats = rows.to_float()
    methods: dict[str, Callable[[], Any]] = {
        f"{layout} carry_save": partial(bspmm.tbf, rows, adjacency, layout=layout)
        for layout in ("csr", "sliced")
    }
    methods["sums of both planes, then their difference"] = partial(_by_planes, adjacency, rows)
    for letters, function, out_bytes in (
        ("TBB", bspmm.tbb, width / 8),
        ("TBF", bspmm.tbf, width * 4.0),
    ):
        seconds, binds = bit_ceiling(ceilings, n, graph.num_edges, 2 * width, out_bytes)
        yield OperatorCase(
            "BSpMM",
            f"{letters}, H = {width}, {graph.name}",
            partial(function, rows, adjacency),
            {"cuSPARSE fp32": partial(torch.matmul, matrix, floats)},
            work=graph.num_edges,
            unit="edge",
            ceiling_seconds=seconds,
            binds=binds,
            check=partial(_ternary_right, adjacency, rows),
        )
    yield OperatorCase(
        "BSpMM layouts",
        f"TBF default, H = {width}, {graph.name}",
        partial(bspmm.tbf, rows, adjacency),
        methods,
        goal=NEAR_BEST,
        work=graph.num_edges,
        unit="edge",
    )


def _sums_of_planes(adjacency: BitAdjacency, rows: TernaryTensor) -> Tensor:
    """Integer sums without a kernel of their own: both planes of a row as one row of bits."""
    planes = BitTensor(rows.words.flatten(1), 64 * rows.words.size(2))
    first, second = bspmm.bbf(planes, adjacency, integer=True, layout="csr").chunk(2, 1)
    return (first - second)[:, : rows.size] >> 1


def _by_planes(adjacency: BitAdjacency, rows: TernaryTensor) -> Tensor:
    assert adjacency.row_scale is not None
    assert rows.scale is not None
    return (adjacency.row_scale * rows.scale).unsqueeze(1) * _sums_of_planes(adjacency, rows)


def _ternary_right(adjacency: BitAdjacency, rows: TernaryTensor) -> bool:
    positive = bspmm.tbb(rows, adjacency).to_float() > 0  # as are the factors
    return torch.equal(bspmm.tbf(rows, adjacency), _by_planes(adjacency, rows)) and torch.equal(
        positive, _sums_of_planes(adjacency, rows) >= 0
    )
