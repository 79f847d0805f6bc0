"""Adjacency arguments of BSpMM: choice of layout, and float matrices as CSR."""

import warnings
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

from bitgnn._checks import name_type
from bitgnn._library import load_libraries
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.bits.contents import Contents
from bitgnn.bits.layouts import default_slice_size
from bitgnn.ops import _arguments

LAYOUTS = ("csr", "sliced", "frdc")


def choose_layout(function: str, adjacency: BitAdjacency, layout: str) -> str:
    """A layout that can be had: duplicate edges turn "frdc" into "csr", with a warning."""
    if layout not in LAYOUTS:
        raise ValueError(
            f"{function}: layout must be None or one of {list(LAYOUTS)}, got {layout!r}"
        )
    if layout == "frdc" and adjacency.frdc() is None:
        warnings.warn(
            f"{function}: layout 'frdc' cannot hold duplicate edges; layout 'csr' serves instead. "
            "Build the adjacency with coalesce=True if duplicates should count once.",
            UserWarning,
            stacklevel=4,
        )
        return "csr"
    return layout


def default_layout(words: int, adjacency: BitAdjacency) -> str:
    """CSR, or on a GPU "sliced" where it is expected to be faster and can be had."""
    if adjacency.device.type != "cuda":
        return "csr"
    if torch.compiler.is_compiling():  # a program that builds nothing takes what was built
        return "sliced" if adjacency.has_sliced() else "csr"
    shape = (*adjacency.shape, adjacency.nnz, words)
    count = torch.cuda.get_device_properties(adjacency.device).multi_processor_count
    if not _suits_slices(*shape, count, default_slice_size(adjacency.device)):
        return "csr"
    is_captured = torch.cuda.is_current_stream_capturing()
    return "csr" if is_captured and not adjacency.has_sliced() else "sliced"


@lru_cache(maxsize=4096)
def _suits_slices(*numbers: int) -> bool:
    """True if C++ prefers slices for a shape and a device; False without compiled operators."""
    if load_libraries()[0] is None:
        return False
    with _disable_current_modes():  # a question is no call to be recorded
        return bool(torch.ops.bitgnn.suits_slices(*numbers))


def pattern_arguments(
    function: str, x: BitTensor, adjacency: BitAdjacency, layout: str | None
) -> tuple[str, tuple[Any, ...]]:
    """Check both operands; return the layout and its operator's arguments after x and size."""
    check_pattern(function, adjacency, x.words.size(0), x.words.device)
    if layout is None:
        layout = default_layout(x.words.size(1), adjacency)
    else:
        layout = choose_layout(function, adjacency, layout)
    if layout == "sliced":
        return layout, adjacency.sliced().arguments
    if layout == "frdc":
        tiles = adjacency.frdc()
        assert tiles is not None, "choose_layout checked that tiles can hold the edges"
        return layout, (tiles.tile_rowptr, tiles.tile_cols, tiles.tiles, tiles.num_rows)
    return layout, (adjacency.rowptr, adjacency.indices)


def check_factors(name: str, adjacency: BitAdjacency, rows: int, device: torch.device) -> None:
    """Check as :func:`check_pattern`, and require factors or nothing in place of values."""
    check_pattern(name, adjacency, rows, device)
    if adjacency.values is not None:
        raise ValueError(
            f"{name}: adjacency must have factors or none, got values, which the functions of bmm "
            "and bspmm take one after the other"
        )


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
    adjacency.check_written()


def compressed_rows(
    function: str, adjacency: Any, columns: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Row pointer, int32 column indices and float32 values of a float-valued sparse matrix.

    The last result is whether indices were looked at: once for each tensor and version of them; in
    a compiled program they are not, and the operator must.
    """
    if isinstance(adjacency, BitAdjacency):
        check_pattern(function, adjacency, columns, device)
        return adjacency.rowptr, adjacency.indices, adjacency.edge_weight(), True
    if isinstance(adjacency, Tensor) and adjacency.layout != torch.strided:
        if adjacency.dim() != 2:
            raise ValueError(f"{function}: adjacency must be a matrix, got {list(adjacency.shape)}")
        csr = adjacency if adjacency.layout == torch.sparse_csr else adjacency.to_sparse_csr()
        rowptr, indices, values = csr.crow_indices(), csr.col_indices(), csr.values()
    else:
        if not (type(adjacency).__name__ == "SparseTensor" and hasattr(adjacency, "csr")):
            raise TypeError(
                f"{function}: adjacency must be a torch sparse CSR or COO tensor, a SparseTensor "
                f"or a BitAdjacency (its letter is F), got {name_type(adjacency)}"
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
