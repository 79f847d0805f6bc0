"""The layouts derived from an adjacency, kept until its pattern is written to or replaced."""

from __future__ import annotations

import torch
from torch import Tensor

from bitgnn._checks import check_value
from bitgnn.bits._pattern import pattern_of
from bitgnn.bits._sources import Edges
from bitgnn.bits.layouts import FrdcLayout, build_frdc, row_indices
from bitgnn.bits.sliced import MAX_SLICE_SIZE, SlicedLayout, build_sliced, default_slice_size
from bitgnn.bits.tensor_version import Watch

DEGREE_BITS = 32

# As in csrc/pairs/arguments.h: edges that a few lanes take at a time.
ORDER_STEP = 32


def build_row_order(rowptr: Tensor) -> Tensor:
    """Int64 ``[M, 2]``: the first edge of each row, and ``degree + row * 2**32``.

    Rows come by descending ``degree // 32``, those of one such step as they lie. Waits for the
    device, so that every stream may read the result.

    Args:
        rowptr: ``[M + 1]``, of degrees below 2**31.
    """
    degree = rowptr.diff().long()
    rows = torch.sort(degree // ORDER_STEP, descending=True, stable=True).indices
    order = torch.stack([rowptr[rows].long(), degree[rows] + (rows << DEGREE_BITS)], dim=1)
    if order.is_cuda:
        torch.cuda.current_stream(order.device).synchronize()
    return order


class DerivedLayouts:
    """Layouts of one pattern in CSR, each built on first use.

    Layouts are those of the pattern as it was; whoever asks for one first calls :meth:`fits`.

    Args:
        rowptr: ``[M + 1]``.
        indices: ``[E]``.
        num_cols: N.
    """

    def __init__(self, rowptr: Tensor, indices: Tensor, num_cols: int) -> None:
        self._rowptr = rowptr
        self._indices = indices
        self._num_cols = num_cols
        self._watch = Watch((rowptr, indices))
        self._frdc: FrdcLayout | None = None
        self._frdc_tried = False
        self._sliced: dict[int, SlicedLayout] = {}
        self._transposed: tuple[Tensor, Tensor] | None = None
        self.found_order: Tensor | None = None
        """The order of :meth:`row_order` once it has been asked for."""

    def fits(self, rowptr: Tensor, indices: Tensor) -> bool:
        """Whether these are the tensors the layouts come from, and unchanged since.

        A compiler sees neither versions nor addresses; while it looks, nothing is written.
        """
        return torch.compiler.is_compiling() or self._watch.unchanged((rowptr, indices))

    @property
    def nbytes(self) -> int:
        """Bytes of the layouts built so far; a row pointer shared with the pattern counts once."""
        tiles = 0 if self._frdc is None else self._frdc.nbytes
        sliced = sum(layout.nbytes - self._rowptr.nbytes for layout in self._sliced.values())
        order = 0 if self.found_order is None else self.found_order.nbytes
        transposed = sum(part.nbytes for part in self._transposed or ())
        return tiles + sliced + order + transposed

    def frdc(self) -> FrdcLayout | None:
        """FRDC tiles; None where an edge occurs twice."""
        if not self._frdc_tried:
            self._frdc = build_frdc(self._rowptr, self._indices, self._num_cols)
            self._frdc_tried = True
        return self._frdc

    def sliced(self, max_slice_size: int | None) -> SlicedLayout:
        """Column slices.

        Raises:
            ValueError: ``max_slice_size`` lies outside [1, 65535].
        """
        device = self._indices.device
        size = default_slice_size(device) if max_slice_size is None else max_slice_size
        layout = self._sliced.get(size)
        if layout is None:
            check_value(
                1 <= size <= MAX_SLICE_SIZE,
                lambda: (
                    f"BitAdjacency.sliced: max_slice_size must lie in [1, {MAX_SLICE_SIZE}], "
                    f"got {size}"
                ),
            )
            layout = build_sliced(self._rowptr, self._indices, self._num_cols, size)
            self._sliced[size] = layout
        return layout

    def has_sliced(self) -> bool:
        """Whether slices of the device's own size have been built."""
        return default_slice_size(self._indices.device) in self._sliced

    def transposed(self) -> tuple[Tensor, Tensor]:
        """Row pointer and indices of the transposed pattern; indices ascend in each row."""
        if self._transposed is None:
            rows, columns = row_indices(self._rowptr), self._indices.long()
            edges = Edges(columns, rows, None, self._num_cols, len(self._rowptr) - 1)
            rowptr, indices = pattern_of(edges)
            self._transposed = rowptr.to(self._rowptr.dtype), indices
        return self._transposed

    def row_order(self) -> Tensor:
        """Rows by descending degree, see :func:`build_row_order`."""
        if self.found_order is None:
            self.found_order = build_row_order(self._rowptr)
        return self.found_order
