"""Results of rows, to the bit, do not depend on what other rows and edges there are."""

import itertools

import pytest
import torch
from torch import Tensor

from bitgnn import BitAdjacency
from bitgnn.ops.reference.table import TABLE

# Rows of operators over a pattern: operands with one of these sizes in front have a row of each.
OF_ROWS, OF_EDGES = ("P-1", "R"), "E"
ROWS = {name: row.operands for name, row in TABLE.items()}
OVER_PATTERNS = [name for name, held in ROWS.items() if "indices" in held]
# Products, and what packs, adds or joins rows; transpose_bits turns rows into columns.
BY_ROWS = [
    name
    for name, row in TABLE.items()
    if name not in OVER_PATTERNS and name != "transpose_bits"
    if not callable(row.results) and all(sizes[0] == "N" for _, sizes in row.results)
    if len(row.results[0][1]) == 2 or name == "pack_scaled"
]
# Long and short rows, and rows of nothing; some on both sides of every limit of a mean degree.
DEGREES = [0, 1, 7, 16, 17, 40, 64, 129, 300, 1, 2, 0, 700, 3, 3, 130, 33, 5, 2000, 8, 4, 15, 2]
CUTS = [0, 1, 3, 8, 9, 12, 13, 18, 19, len(DEGREES)]


def tensors(found):
    return [t.cpu() for t in (found if isinstance(found, tuple) else (found,))]


def run(name, given, device):
    moved = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in given.items()}
    return tensors(getattr(torch.ops.bitgnn, name)(**moved))


def is_of(name, key, sizes):
    return ROWS[name].get(key, ("",))[0] in sizes


def range_of(name, given, first, last):
    """Arguments of rows [first, last) of a pattern."""
    rowptr = given["rowptr"]
    edges = slice(int(rowptr[first]), int(rowptr[last]))
    part = {"rowptr": rowptr[first : last + 1] - rowptr[first]}
    for key, value in given.items():
        if key == "order" and value is not None:
            held = BitAdjacency(part["rowptr"], given["indices"][edges], len(given["x"]))
            part[key] = held.row_order()
        elif isinstance(value, Tensor) and is_of(name, key, OF_ROWS):
            part[key] = value[first:last]
        elif isinstance(value, Tensor) and is_of(name, key, OF_EDGES):
            part[key] = value[edges]
    return given | part


def assert_parts_equal(whole, parts):
    for n, expected in enumerate(whole):
        found = torch.cat([part[n] for part in parts])
        assert found.dtype == expected.dtype
        assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("name", OVER_PATTERNS)
def test_ranges_of_a_pattern(name, device, sampler):
    # As many sources as let means lie on both sides of each limit, whole and in ranges.
    for seed, (sources, size, outputs) in enumerate(
        [(40, 64, 7), (200, 33, 49), (40, 70, 64), (60, 130, 130), (150, 300, 70), (20, 9, 40)]
    ):
        draw = sampler(seed=seed)
        pattern = draw.rows(DEGREES, sources)
        if "values" in ROWS[name]:
            pattern["values"] = draw.floats(len(pattern["indices"]))
        chosen = {} if name.startswith(("gat", "transformer", "pack")) else pattern
        given = draw.arguments(name, sources, size, outputs, True, **chosen)
        if "order" in given:
            given["order"] = BitAdjacency(given["rowptr"], given["indices"], sources).row_order()
        rows = len(given["rowptr"]) - 1
        cuts = CUTS if rows == len(DEGREES) else [0, 1, rows // 2, rows]
        cuts = sorted({min(cut, rows) for cut in cuts})
        heads = (0, 1, 2, 3) if name == "bmm_bspmm_narrow" and outputs <= 48 else (None,)
        for head in heads:
            some = given if head is None else given | {"head": head}
            parts = [
                run(name, range_of(name, some, first, last), device)
                for first, last in itertools.pairwise(cuts)
            ]
            assert_parts_equal(run(name, some, device), parts)


@pytest.mark.parametrize("name", BY_ROWS)
def test_ranges_of_rows(name, device, sampler):
    for seed, (rows, size, outputs) in enumerate([(70, 64, 7), (33, 130, 70), (300, 31, 257)]):
        given = sampler(seed=seed).arguments(name, rows, size, outputs, True)
        cuts = [0, 1, 17, 18, rows // 2 + 5, rows]
        parts = []
        for first, last in itertools.pairwise(cuts):
            part = {
                key: value[first:last]
                for key, value in given.items()
                if isinstance(value, Tensor) and is_of(name, key, ("N",))
            }
            parts.append(run(name, given | part, device))
        assert_parts_equal(run(name, given, device), parts)


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("factors", [False, True])
@pytest.mark.parametrize("outputs", [41, 60, 64, 100, 130, 172])
def test_sums_of_products_of_dense_and_of_sparse_graphs(outputs, factors, order, device, sampler):
    """The number of edges for each source decides between kernels on a GPU."""
    draw, sources = sampler(seed=outputs), 600
    pattern = draw.rows([row % 50 for row in range(700)] + [900, 5000], sources)
    chosen = {**pattern, "x": draw.bits(sources, 128), "root": None, "head": 0, "order": None}
    given = draw.arguments("bmm_bspmm_narrow", sources, 128, outputs, True, **chosen)
    given["shift"] = None
    if order:
        held = BitAdjacency(given["rowptr"], given["indices"], sources)
        given["order"] = held.row_order()
    if not factors:
        given |= dict.fromkeys(("x_scale", "col", "w_scale", "row"))
    assert len(given["indices"]) >= 16 * sources
    cuts = [0, 100, 101, 400, 700, 701, 702]
    parts = [
        run("bmm_bspmm_narrow", range_of("bmm_bspmm_narrow", given, first, last), device)
        for first, last in itertools.pairwise(cuts)
    ]
    whole = run("bmm_bspmm_narrow", given, device)
    assert_parts_equal(whole, parts)
    assert torch.equal(whole[0], run("bmm_bspmm_narrow", given, "cpu")[0])
