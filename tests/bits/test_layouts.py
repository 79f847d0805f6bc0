"""FRDC tiles hold exactly the pattern; derived layouts are kept until it changes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitgnn import BitAdjacency
from bitgnn.bits.layouts import FRDC_METHODS


def random_pattern(rows, columns, seed, density=0.2):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, columns, generator=generator) < density


def from_pattern(pattern):
    destination, source = pattern.nonzero(as_tuple=True)
    return BitAdjacency.from_edge_index(torch.stack([source, destination]), tuple(pattern.shape))


@given(rows=st.integers(0, 40), columns=st.integers(0, 40), seed=st.integers(0, 1000))
def test_frdc_holds_the_pattern(rows, columns, seed):
    pattern = random_pattern(rows, columns, seed)
    tiles = from_pattern(pattern).frdc()
    dense = torch.zeros(-(-rows // 4) * 4, -(-columns // 4) * 4, dtype=torch.bool)
    assert len(tiles.tile_rowptr) == -(-rows // 4) + 1
    for tile_row in range(-(-rows // 4)):
        start, end = tiles.tile_rowptr[tile_row : tile_row + 2].tolist()
        held = tiles.tile_cols[start:end].tolist()
        assert held == sorted(set(held))
        for tile in range(start, end):
            bits = int(tiles.tiles[tile]) & 0xFFFF
            assert bits != 0
            for position in range(16):
                if bits >> position & 1:
                    row = 4 * tile_row + position // 4
                    dense[row, 4 * int(tiles.tile_cols[tile]) + position % 4] = True
    assert torch.equal(dense[:rows, :columns], pattern)
    assert int(dense.sum()) == int(pattern.sum())
    assert tiles.tile_cols.dtype == torch.int32
    assert tiles.tiles.dtype == torch.int16
    assert tiles.nbytes == 4 * len(tiles.tile_rowptr) + 6 * len(tiles.tiles)


def test_duplicates_do_not_fit_in_tiles():
    edge_index = torch.tensor([[0, 0, 1], [2, 2, 2]])
    assert BitAdjacency.from_edge_index(edge_index, 3).frdc() is None
    assert BitAdjacency.from_edge_index(edge_index, 3, coalesce=True).frdc() is not None


def test_layouts_are_kept():
    adjacency = from_pattern(random_pattern(10, 12, 0))
    assert adjacency.frdc() is adjacency.frdc()
    assert adjacency.sliced(4) is adjacency.sliced(4)
    assert adjacency.sliced(4) is not adjacency.sliced()


def test_full_tile_has_the_sign_bit():
    tiles = from_pattern(torch.ones(4, 4, dtype=torch.bool)).frdc()
    assert tiles.tiles.tolist() == [-1]


LAYOUTS = {
    "frdc": lambda adjacency: adjacency.frdc(),
    "sliced": lambda adjacency: adjacency.sliced(3),
}


def same_layout(found, expected):
    """Whether two layouts hold the same."""
    pairs = zip(vars(found).values(), vars(expected).values(), strict=True)
    return all(a.equal(b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


CHANGES = {
    "written": lambda adjacency: adjacency.indices.copy_(
        torch.tensor([4, 0, 3, 1], dtype=torch.int32)
    ),
    "replaced": lambda adjacency: setattr(
        adjacency, "indices", torch.tensor([4, 0, 3, 1], dtype=torch.int32)
    ),
    "moved": lambda adjacency: setattr(
        adjacency.indices, "data", torch.tensor([4, 0, 3, 1], dtype=torch.int32)
    ),
    "rows": lambda adjacency: adjacency.rowptr.copy_(torch.tensor([0, 2, 2, 4], dtype=torch.int32)),
}


@pytest.mark.parametrize("made", ["ordinary", "in inference mode"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_changed_pattern_has_new_layouts(layout, change, made):
    with torch.inference_mode(made == "in inference mode"):
        rowptr = torch.tensor([0, 1, 3, 4], dtype=torch.int32)
        indices = torch.tensor([0, 1, 4, 2], dtype=torch.int32)
        adjacency = BitAdjacency(rowptr, indices, 5)
    build = LAYOUTS[layout]
    before = build(adjacency)
    assert build(adjacency) is before
    with torch.inference_mode():
        CHANGES[change](adjacency)
    after = build(adjacency)
    assert build(adjacency) is after
    fresh = BitAdjacency(adjacency.rowptr.clone(), adjacency.indices.clone(), 5)
    assert same_layout(after, build(fresh))
    assert not same_layout(after, before)


def test_bytes_of_derived_layouts():
    adjacency = from_pattern(random_pattern(9, 9, 0))
    assert adjacency.derived_nbytes == 0
    tiles, slices = adjacency.frdc(), adjacency.sliced()
    assert adjacency.derived_nbytes == tiles.nbytes + slices.nbytes - adjacency.rowptr.nbytes


def test_planned_layouts():
    adjacency = from_pattern(random_pattern(9, 9, 0))
    adjacency.plan_layout(4, "sliced")
    assert adjacency.has_sliced()
    assert adjacency.planned_layout(4) == "sliced"
    assert adjacency.planned_layout(3) == "csr"
    assert adjacency.to("cpu").planned_layout(4) == "csr"
    adjacency.plan_layout(2, "frdc", "if_else")
    assert adjacency.planned_layout(2) == "frdc"
    tiles = adjacency.frdc()
    assert adjacency.frdc_arguments == (
        tiles.tile_rowptr, tiles.tile_cols, tiles.tiles, 9, FRDC_METHODS.index("if_else"),
    )  # fmt: skip
    with pytest.raises(ValueError, match="must be 'csr', 'sliced' or 'frdc', got 'tiles'"):
        adjacency.plan_layout(4, "tiles")
    with pytest.raises(ValueError, match=r"method must be one of .* got 'carry_save'"):
        adjacency.plan_layout(4, "frdc", "carry_save")
    twice = BitAdjacency.from_edge_index(torch.zeros(2, 2, dtype=torch.int64), 1)
    for use in (lambda: twice.plan_layout(1, "frdc"), lambda: twice.frdc_arguments):
        with pytest.raises(ValueError, match="cannot hold duplicate edges"):
            use()
