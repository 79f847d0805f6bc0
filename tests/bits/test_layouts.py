"""Derived layouts hold exactly the pattern, are kept until it changes, and can be planned."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitgnn import BitAdjacency
from bitgnn.bits import layouts
from bitgnn.bits.layouts import (
    ITEM_EDGES,
    LANES,
    SMALL_ITEM_EDGES,
    STEP,
    default_slice_size,
)
from bitgnn.ops.reference.bspmm import slice_edges

CUDA = pytest.param("cuda", marks=pytest.mark.cuda)


def pattern_of(rows, columns, seed=0):
    """A random 0/1 matrix and its adjacency."""
    pattern = torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed)) < 0.2
    return pattern, BitAdjacency.from_edge_index(pattern.t().nonzero().t(), (rows, columns))


def with_hub(rows, columns, edges, seed=0):
    """Random edges, a third of them into the first row, with duplicates."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (max(1, columns), max(1, rows))
    edge_index = torch.stack([torch.randint(s, (edges,), generator=generator) for s in sizes])
    edge_index[1, : edges // 3] = 0
    return BitAdjacency.from_edge_index(edge_index, (rows, columns))


@given(rows=st.integers(0, 40), columns=st.integers(0, 40), seed=st.integers(0, 1000))
def test_frdc_holds_the_pattern(rows, columns, seed):
    pattern, adjacency = pattern_of(rows, columns, seed)
    tiles = adjacency.frdc()
    dense = torch.zeros(-(-rows // 4) * 4, -(-columns // 4) * 4, dtype=torch.bool)
    assert len(tiles.tile_rowptr) == -(-rows // 4) + 1
    for tile_row in range(-(-rows // 4)):
        start, end = tiles.tile_rowptr[tile_row : tile_row + 2].tolist()
        held = tiles.tile_cols[start:end].tolist()
        assert held == sorted(set(held))
        for tile in range(start, end):
            bits = int(tiles.tiles[tile]) & 0xFFFF
            assert bits != 0
            for position in (k for k in range(16) if bits >> k & 1):
                row = 4 * tile_row + position // 4
                dense[row, 4 * int(tiles.tile_cols[tile]) + position % 4] = True
    assert torch.equal(dense[:rows, :columns], pattern)
    assert int(dense.sum()) == int(pattern.sum())
    assert (tiles.tile_cols.dtype, tiles.tiles.dtype) == (torch.int32, torch.int16)
    assert tiles.nbytes == 4 * len(tiles.tile_rowptr) + 6 * len(tiles.tiles)


def test_full_tiles_have_the_sign_bit_and_no_tile_duplicates():
    full = BitAdjacency.from_edge_index(torch.ones(4, 4).to_sparse_coo())
    assert full.frdc().tiles.tolist() == [-1]
    edge_index = torch.tensor([[0, 0, 1], [2, 2, 2]])
    assert BitAdjacency.from_edge_index(edge_index, 3).frdc() is None
    assert BitAdjacency.from_edge_index(edge_index, 3, coalesce=True).frdc() is not None


def edges_of(layout):
    edges = slice_edges(layout)
    return edges.rowptr, edges.indices


@given(
    rows=st.integers(1, 60),
    columns=st.integers(1, 60),
    edges=st.integers(0, 900),
    max_slice_size=st.integers(1, 80),
    seed=st.integers(0, 1000),
)
def test_slices_hold_every_edge(rows, columns, edges, max_slice_size, seed):
    adjacency = with_hub(rows, columns, edges, seed)
    layout = adjacency.sliced(max_slice_size)
    assert layout.slice_size <= max_slice_size
    rowptr, found = edges_of(layout)
    assert torch.equal(rowptr, adjacency.rowptr.long())
    for row in range(rows):
        begin, end = rowptr[row : row + 2].tolist()
        assert sorted(found[begin:end].tolist()) == adjacency.indices[begin:end].tolist()
    groups = len(layout.group_places)
    assert layout.slice_groups[-1] == groups
    assert len(layout.local_indices) == int(layout.group_steps[-1]) * LANES * STEP
    counts = torch.zeros(groups, LANES, dtype=torch.int64)
    held = (layout.local_indices.long() & 0xFFFF) != layout.slice_size
    group = torch.repeat_interleave(torch.arange(groups), layout.group_steps.diff().long())
    counts.index_add_(0, group, held.view(-1, LANES, STEP).sum(2))
    assert int(counts.sum()) == edges
    assert bool((counts <= ITEM_EDGES).all())
    large = counts.amax(1) > SMALL_ITEM_EDGES if groups else torch.zeros(0, dtype=torch.bool)
    assert torch.equal(layout.group_places & 1, large.int())
    # Falling sizes keep the lanes of a group together.
    for first, last in zip(layout.slice_groups[:-1], layout.slice_groups[1:], strict=True):
        sizes = counts[first:last].flatten()
        assert bool((sizes[1:] <= sizes[:-1]).all())
    units = 2 + (layout.row_items & 1)
    places = sorted(zip((layout.row_items >> 1).tolist(), units.tolist(), strict=True))
    ends = [place + size for place, size in places]
    assert all(end <= place for end, (place, _) in zip(ends, places[1:], strict=False))
    assert not ends or ends[-1] <= layout.places


@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (5, 0), (0, 0)])
def test_slices_without_rows_or_columns(rows, columns):
    nothing = torch.zeros(rows + 1, dtype=torch.int32), torch.zeros(0, dtype=torch.int32)
    rowptr, found = edges_of(BitAdjacency(*nothing, columns).sliced())
    assert rowptr.tolist() == [0] * (rows + 1)
    assert len(found) == 0


def test_wrong_slices(monkeypatch):
    assert 1 <= default_slice_size(torch.device("cpu")) <= 65535
    for size in (0, -1, 65536):
        match = rf"max_slice_size must lie in \[1, 65535\], got {size}"
        with pytest.raises(ValueError, match=match):
            with_hub(5, 5, 9).sliced(size)
    monkeypatch.setattr(layouts, "INT32_MAX", 200)
    adjacency = with_hub(40, 40, 300)
    with pytest.raises(ValueError, match="must need at most 100 places, got"):
        adjacency.sliced(10)
    assert not adjacency.has_sliced()


DEGREES = {
    "no rows": [],
    "one empty row": [0],
    "one row": [5],
    "empty rows alone": [0] * 33,
    "hub": [1, 0, 2, 300, 1, 31, 32, 33, 0, 63, 64, 65],
    "all equal": [2] * 31,
}


def with_degrees(degrees, dtype=torch.int32, device="cpu"):
    rowptr = torch.tensor([0, *degrees], dtype=torch.int64).cumsum(0).to(dtype)
    indices = torch.zeros(int(rowptr[-1]), dtype=torch.int32)  # duplicate edges
    return BitAdjacency(rowptr.to(device), indices.to(device), 3)


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("degrees", DEGREES.values(), ids=DEGREES)
def test_rows_by_descending_steps(degrees, dtype, device):
    adjacency = with_degrees(degrees, dtype, device)
    order = adjacency.row_order()
    assert order.shape == (len(degrees), 2)
    assert order.dtype == torch.int64
    assert order.device == adjacency.device
    expected = sorted(range(len(degrees)), key=lambda row: -(degrees[row] // 32))
    assert (order[:, 1] >> 32).tolist() == expected
    assert (order[:, 1] & 0xFFFFFFFF).tolist() == [degrees[row] for row in expected]
    assert order[:, 0].tolist() == [sum(degrees[:row]) for row in expected]


@pytest.mark.cuda
def test_no_row_order_of_a_capture_is_kept():
    adjacency = with_degrees([1, 4, 0], device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        adjacency.indices.clone()
        found = adjacency.row_order()
    assert found is None
    order = adjacency.row_order()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        adjacency.indices.clone()
        found = adjacency.row_order()
    assert found is order


LAYOUTS = {
    "frdc": lambda adjacency: adjacency.frdc(),
    "sliced": lambda adjacency: adjacency.sliced(3),
    "row order": lambda adjacency: adjacency.row_order(),
    "transposed": lambda adjacency: adjacency.transposed(),
}


def parts(layout):
    """What a layout holds, as lists."""
    held = vars(layout).values() if hasattr(layout, "num_rows") else layout
    return [part.tolist() if isinstance(part, torch.Tensor) else part for part in held]


def _other(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


CHANGES = {
    "written": lambda a: a.indices.copy_(_other(2, 0, 1, *range(3, 102)[::-1])),
    "replaced": lambda a: setattr(a, "indices", _other(2, 0, 1, *range(3, 102)[::-1])),
    "moved": lambda a: setattr(a.indices, "data", _other(2, 0, 1, *range(3, 102)[::-1])),
    "rows": lambda a: a.rowptr.copy_(_other(0, 99, 100, 102)),
    "rows replaced": lambda a: setattr(a, "rowptr", _other(0, 99, 100, 102)),
}


@pytest.mark.parametrize("made", ["ordinary", "in inference mode"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_changed_pattern_has_new_layouts(layout, change, made):
    with torch.inference_mode(made == "in inference mode"):
        adjacency = BitAdjacency(_other(0, 1, 3, 102), torch.arange(102).int(), 102)
    build = LAYOUTS[layout]
    before = build(adjacency)
    assert build(adjacency) is before
    held = parts(before)
    with torch.inference_mode():
        CHANGES[change](adjacency)
    after = build(adjacency)
    assert build(adjacency) is after
    fresh = BitAdjacency(adjacency.rowptr.clone(), adjacency.indices.clone(), 102)
    assert parts(after) == parts(build(fresh))
    # The order of rows does not depend on columns.
    assert (parts(after) != held) == (layout != "row order" or "rows" in change)


def test_layouts_are_kept_and_counted():
    _, adjacency = pattern_of(9, 9)
    assert adjacency.derived_nbytes == 0
    assert not adjacency.has_sliced()
    tiles, slices = adjacency.frdc(), adjacency.sliced()
    assert adjacency.has_sliced()
    assert adjacency.sliced() is slices
    assert adjacency.derived_nbytes == tiles.nbytes + slices.nbytes - adjacency.rowptr.nbytes
    before, order = adjacency.derived_nbytes, adjacency.row_order()
    assert adjacency.derived_nbytes - before == order.nbytes == 9 * 16
    assert adjacency.sliced(3) is not slices


def test_planned_slices():
    _, adjacency = pattern_of(9, 9)
    adjacency.plan_slices(4)
    assert adjacency.has_sliced()
    assert adjacency.reads_slices(4)
    assert not adjacency.reads_slices(3)
    assert not adjacency.to("cpu").reads_slices(4)
