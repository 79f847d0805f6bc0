"""The sliced layout: every edge in its slice, items of bounded size, places that do not overlap."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitgnn import BitAdjacency
from bitgnn.bits import sliced
from bitgnn.bits.sliced import ITEM_EDGES, LANES, SMALL_ITEM_EDGES, STEP, default_slice_size
from bitgnn.ops.reference.bspmm import slice_edges


def random_adjacency(rows, columns, edges, seed):
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.stack(
        [
            torch.randint(max(1, columns), (edges,), generator=generator),
            torch.randint(max(1, rows), (edges,), generator=generator),
        ]
    )
    edge_index[1, : edges // 3] = 0  # a hub, with duplicate edges
    return BitAdjacency.from_edge_index(edge_index, (rows, columns))


def edges_of(layout):
    edges = slice_edges(layout)
    return edges.rowptr, edges.indices


@given(
    rows=st.integers(1, 60),
    columns=st.integers(1, 60),
    edges=st.integers(0, 500),
    max_slice_size=st.integers(1, 80),
    seed=st.integers(0, 1000),
)
def test_holds_every_edge(rows, columns, edges, max_slice_size, seed):
    adjacency = random_adjacency(rows, columns, edges, seed)
    layout = adjacency.sliced(max_slice_size)
    assert layout.slice_size <= max_slice_size
    rowptr, found = edges_of(layout)
    assert torch.equal(rowptr, adjacency.rowptr.long())
    for row in range(rows):
        begin, end = rowptr[row : row + 2].tolist()
        assert sorted(found[begin:end].tolist()) == adjacency.indices[begin:end].tolist()


@given(rows=st.integers(1, 40), edges=st.integers(0, 900), seed=st.integers(0, 100))
def test_items_and_places(rows, edges, seed):
    layout = random_adjacency(rows, 30, edges, seed).sliced(10)
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


def test_no_rows_and_no_columns():
    for rows, columns in [(0, 5), (5, 0), (0, 0)]:
        adjacency = BitAdjacency(torch.zeros(rows + 1, dtype=torch.int32),
                                 torch.zeros(0, dtype=torch.int32), columns)  # fmt: skip
        rowptr, found = edges_of(adjacency.sliced())
        assert rowptr.tolist() == [0] * (rows + 1)
        assert len(found) == 0


def test_kept_after_the_first_call():
    adjacency = random_adjacency(9, 9, 30, 0)
    assert not adjacency.has_sliced()
    assert adjacency.sliced() is adjacency.sliced()
    assert adjacency.has_sliced()
    assert adjacency.sliced(3) is not adjacency.sliced()
    assert adjacency.sliced().nbytes > 0
    assert 1 <= default_slice_size(torch.device("cpu")) <= 65535


@pytest.mark.parametrize("size", [0, -1, 65536])
def test_wrong_slice_sizes(size):
    with pytest.raises(ValueError, match=rf"max_slice_size must lie in \[1, 65535\], got {size}"):
        random_adjacency(5, 5, 9, 0).sliced(size)


def test_more_places_than_32_bits_tell_apart(monkeypatch):
    monkeypatch.setattr(sliced, "INT32_MAX", 200)
    adjacency = random_adjacency(40, 40, 300, 0)
    with pytest.raises(ValueError, match="must need at most 100 places, got"):
        adjacency.sliced(10)
    assert not adjacency.has_sliced()
