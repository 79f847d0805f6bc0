"""BSpMM of ternary rows on a CUDA device beside cuSPARSE, and in every layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.cases import Case, Goal
from bench.cuda_ceilings import Ceilings, bit_ceiling
from bench.graphs import Graph
from bitgnn.bits import BitAdjacency, BitTensor, TernaryTensor
from bitgnn.ops import bspmm

SCALE = 0.9


def ternary_cases(
    graph: Graph, adjacency: BitAdjacency, matrix: Tensor, x: Tensor, ceilings: Ceilings
) -> Iterator[Case]:
    """Sums of ternary rows, beside cuSPARSE and in every layout."""
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
        yield Case(
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
    yield Case(
        "BSpMM layouts",
        f"TBF default, H = {width}, {graph.name}",
        partial(bspmm.tbf, rows, adjacency),
        methods,
        goal=Goal("ratio", 1 / 1.15),
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
