"""Reference of aggregations on tiles and slices: those on CSR, of the edges that a layout holds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from bitgnn.ops.reference._sums import slice_edges, tile_edges
from bitgnn.ops.reference.bspmm import BIT_ROWS, bspmm_bbb, bspmm_bbf
from bitgnn.ops.reference.pairs import JOINT, bspmm_bmm
from bitgnn.ops.reference.table import SLICES, operator

NUM_METHODS = 3
"""Ways to reconcile a 0/1 pattern with +-1 activations; they differ in cost, not in result."""
TILES = "tile_rowptr:_ tile_cols:T tiles:T row:num_rows"


def _over(
    base: Callable[..., Tensor], layout: str, edges: Callable[..., Any], row: str
) -> Callable[..., Tensor]:
    """``base`` with the parts that ``edges`` takes in the place of row pointer and indices.

    Args:
        base: an operator on CSR.
        layout: ending of the operator's name.
        edges: makes row pointer and column indices of a layout's parts.
        row: of the operator table.
    """
    parameters = inspect.signature(base, eval_str=True).parameters
    parts = inspect.signature(edges, eval_str=True).parameters
    place = list(parameters).index("rowptr")
    rest = list(parameters.values())
    signature = inspect.Signature(
        [*rest[:place], *parts.values(), *rest[place + 2 :]], return_annotation=Tensor
    )

    def reference(*arguments: Any, **keywords: Any) -> Tensor:
        given = signature.bind(*arguments, **keywords).arguments
        rowptr, indices = edges(*(given.pop(name) for name in parts))
        return base(rowptr=rowptr, indices=indices, **given)

    reference.__name__ = reference.__qualname__ = f"{base.__name__}_{layout}"
    reference.__doc__ = f":func:`{base.__name__}` on the edges of another layout."
    reference.__signature__ = signature  # type: ignore[attr-defined]
    return operator(row)(reference)


def _of_tiles(
    tile_rowptr: Tensor, tile_cols: Tensor, tiles: Tensor, num_rows: int, method: int
) -> tuple[Tensor, Tensor]:
    if not 0 <= method < NUM_METHODS:
        raise ValueError(f"method must lie in [0, {NUM_METHODS}), got {method}")
    return tile_edges(tile_rowptr, tile_cols, tiles, num_rows)


def _of_slices(
    rowptr: Tensor,
    local_indices: Tensor,
    group_steps: Tensor,
    group_places: Tensor,
    slice_groups: Tensor,
    row_slots: Tensor,
    row_items: Tensor,
    slice_size: int,
    places: int,
) -> tuple[Tensor, Tensor]:
    tables = (group_steps, group_places, slice_groups, row_slots, row_items)
    return slice_edges(local_indices, *tables, slice_size, places)


_TILED, _SLICED = f"{TILES} {BIT_ROWS}", f"{SLICES} {BIT_ROWS}"

bspmm_bbb_frdc = _over(bspmm_bbb, "frdc", _of_tiles, f"{_TILED} -> bits:num_rows,size")
"""Words x ``[N, W]`` aggregated over FRDC tiles to words ``[M, W]``."""
bspmm_bbf_frdc = _over(bspmm_bbf, "frdc", _of_tiles, f"{_TILED} -> value:num_rows,size")
"""Words x aggregated over FRDC tiles to float32, or to int32 with ``integer``."""
bspmm_bbb_sliced = _over(bspmm_bbb, "sliced", _of_slices, f"{_SLICED} -> bits:P-1,size")
"""Words x ``[N, W]`` aggregated over column slices to words ``[M, W]``."""
bspmm_bbf_sliced = _over(bspmm_bbf, "sliced", _of_slices, f"{_SLICED} -> value:P-1,size")
"""Words x aggregated over column slices to float32, or to int32 with ``integer``."""
bspmm_bmm_sliced = _over(bspmm_bmm, "sliced", _of_slices, f"{SLICES} {JOINT} -> bits:P-1,M")
"""Words of a sum over column slices plus a product, compared."""
