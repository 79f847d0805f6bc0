"""Adjacency arguments of BSpMM: choice of layout and method, and float matrices as CSR."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from bitgnn._checks import name_type
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.bits.contents import Contents
from bitgnn.bits.layouts import FRDC_METHODS, ITEM_EDGES, default_slice_size
from bitgnn.ops import _arguments

METHODS = {"csr": ("carry_save",), "sliced": ("carry_save",), "frdc": FRDC_METHODS}
"""Methods of each layout; the last one is the layout's default."""


def choose_layout(
    function: str, x: BitTensor, adjacency: BitAdjacency, layout: str | None, method: str | None
) -> tuple[str, str]:
    """Settle layout and method; None picks. Duplicate edges turn "frdc" into "csr", warning."""
    if layout is None:
        layout = "frdc" if method in FRDC_METHODS else default_layout(x.words.size(1), adjacency)
    valid = METHODS.get(layout)
    if valid is None:
        raise ValueError(
            f"{function}: layout must be None or one of {list(METHODS)}, got {layout!r}"
        )
    if method is not None and method not in valid:
        raise ValueError(
            f"{function}: method must be None or one of {list(valid)} with layout {layout!r}, "
            f"got {method!r}; valid combinations are {METHODS}"
        )
    if layout == "frdc" and adjacency.frdc() is None:
        warnings.warn(
            f"{function}: layout 'frdc' cannot hold duplicate edges; layout 'csr' serves instead. "
            "Build the adjacency with coalesce=True if duplicates should count once.",
            UserWarning,
            stacklevel=4,
        )
        return "csr", METHODS["csr"][-1]
    return layout, valid[-1] if method is None else method


def default_layout(words: int, adjacency: BitAdjacency) -> str:
    """CSR, or on a GPU "sliced" where it is expected to be faster and can be had."""
    if not adjacency.indices.is_cuda or _csr_microseconds(adjacency.nnz, words) <= SLICED_START:
        return "csr"
    rows, columns = adjacency.shape
    slices = max(1, -(-columns // default_slice_size(adjacency.device)))
    csr, sliced = expected_microseconds(rows, slices, adjacency.nnz, words)
    if csr <= sliced:
        return "csr"
    if expected_items(rows, slices, adjacency.nnz) > MAX_ITEMS:
        return "csr"
    can_build = not (torch.compiler.is_compiling() or torch.cuda.is_current_stream_capturing())
    return "sliced" if can_build or adjacency.has_sliced() else "csr"


MAX_ITEMS = 2**31 // 8
"""Items whose places 32-bit numbers tell apart, with room for the error of the estimate."""


def expected_items(rows: int, slices: int, edges: int) -> float:
    """Expected number of (row, slice) pairs that hold a neighbour, for random columns."""
    shares = max(1, rows * slices)
    return shares * (1.0 - math.exp(-edges / shares)) + edges / (2 * ITEM_EDGES)


def expected_microseconds(rows: int, slices: int, edges: int, words: int) -> tuple[float, float]:
    """Time of CSR and of the sliced layout, a fit to measurements of 13 graphs on an H200.

    CSR gathers from the second-level cache and slows down as rows outgrow what it serves at full
    rate. Slices gather pieces of four words out of shared memory, and pay for each item, a row's
    share of a slice, whose count goes through memory.
    """
    items = expected_items(rows, slices, edges)
    sliced = SLICED_START + -(-words // 4) * (1.4e-6 * edges + 55e-6 * items)
    return _csr_microseconds(edges, words), sliced


SLICED_START = 22.0
"""Microseconds of the sliced layout on a graph without edges."""


def _csr_microseconds(edges: int, words: int) -> float:
    per_edge = 7.6e-6 if words <= 4 else 12e-6 if words <= 8 else 16e-6 * -(-words // 16)
    return 6.0 + per_edge * edges


def pattern_arguments(
    function: str, x: BitTensor, adjacency: BitAdjacency, layout: str | None, method: str | None
) -> tuple[str, tuple[Any, ...]]:
    """Check both operands; return the layout and its operator's arguments after x and size."""
    check_pattern(function, adjacency, x.words.size(0), x.words.device)
    if layout is None and method is None:
        layout = default_layout(x.words.size(1), adjacency)
    else:
        layout, method = choose_layout(function, x, adjacency, layout, method)
    if layout == "sliced":
        return layout, adjacency.sliced().arguments
    if layout == "frdc":
        tiles = adjacency.frdc()
        assert tiles is not None, "choose_layout checked that tiles can hold the edges"
        assert method is not None, "choose_layout settled it"
        number = FRDC_METHODS.index(method)
        return layout, (
            tiles.tile_rowptr, tiles.tile_cols, tiles.tiles, tiles.num_rows, number,
        )  # fmt: skip
    return layout, (adjacency.rowptr, adjacency.indices)


def check_pattern(name: str, adjacency: BitAdjacency, rows: int, device: torch.device) -> None:
    """Require a BitAdjacency that fits ``rows`` rows of x on ``device``."""
    if not isinstance(adjacency, BitAdjacency):
        raise TypeError(
            f"{name}: adjacency must be a BitAdjacency (its letter is B), "
            f"got {name_type(adjacency)}"
        )
    if adjacency.num_cols != rows:
        raise ValueError(
            f"{name}: adjacency must have {rows} columns like the rows of x, "
            f"got {adjacency.num_cols}"
        )
    _arguments.same_device(name, "adjacency", adjacency.indices.device, device)


def compressed_rows(
    function: str, adjacency: Any, columns: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Row pointer, int32 column indices and float32 values of a float-valued sparse matrix.

    The last result is whether indices were looked at: once for each tensor and version of them; in
    a compiled program they are not, and the operator must.
    """
    if isinstance(adjacency, Tensor) and adjacency.layout != torch.strided:
        if adjacency.dim() != 2:
            raise ValueError(f"{function}: adjacency must be a matrix, got {list(adjacency.shape)}")
        csr = adjacency if adjacency.layout == torch.sparse_csr else adjacency.to_sparse_csr()
        rowptr, indices, values = csr.crow_indices(), csr.col_indices(), csr.values()
    else:
        if not (type(adjacency).__name__ == "SparseTensor" and hasattr(adjacency, "csr")):
            raise TypeError(
                f"{function}: adjacency must be a torch sparse CSR or COO tensor or a "
                f"SparseTensor (its letter is F), got {name_type(adjacency)}"
            )
        rowptr, indices, held = adjacency.csr()
        values = (
            torch.ones(len(indices), device=indices.device, dtype=torch.float32)
            if held is None
            else held
        )
    if not values.is_floating_point():
        raise TypeError(f"{function}: adjacency must hold floats, got {values.dtype}")
    if adjacency.size(1) != columns:
        raise ValueError(
            f"{function}: adjacency must have {columns} columns like the rows of x, "
            f"got {adjacency.size(1)}"
        )
    _arguments.same_device(function, "adjacency", values.device, device)
    is_checked = not torch.compiler.is_compiling()
    if is_checked:
        _check_once(function, adjacency, rowptr, indices)
    return rowptr, indices.to(torch.int32), values.to(torch.float32), is_checked


_CHECKED = WeakIdKeyDictionary()
"""Versions and bytes of the row pointer and indices of each matrix that was looked at."""


def _check_once(function: str, adjacency: Any, rowptr: Tensor, indices: Tensor) -> None:
    """Require indices inside the matrix; float matrices of torch do not check them themselves."""
    if rowptr.is_inference() or indices.is_inference():
        versions = None  # they have none
    else:
        versions = (rowptr._version, indices._version)
        known, contents = _CHECKED.get(adjacency, (None, None))
        if known == versions and contents.are_those_of((rowptr, indices)):
            return
    rows, columns = adjacency.size(0), adjacency.size(1)
    ascends = (
        rowptr.shape == (rows + 1,)
        and int(rowptr[0]) == 0
        and int(rowptr[-1]) == len(indices)
        and bool((rowptr.diff() >= 0).all())
    )
    if not ascends:
        raise ValueError(
            f"{function}: adjacency must have row pointers that ascend from 0 to its "
            f"{len(indices)} entries"
        )
    if len(indices):
        least, most = (int(bound) for bound in torch.aminmax(indices))
        if not (least >= 0 and most < columns):
            raise ValueError(
                f"{function}: adjacency must have column indices in [0, {columns}), "
                f"got {least if least < 0 else most}"
            )
    if versions is not None:
        _CHECKED[adjacency] = versions, Contents((rowptr, indices))
