"""BitAdjacency: a 0/1 pattern in CSR with optional row and column factors."""

from typing import Any

import torch
from torch import Tensor

from bitgnn._checks import check_value
from bitgnn.bits import pytrees
from bitgnn.bits._pattern import pattern_of
from bitgnn.bits._sources import check_range, check_vector, read_edges
from bitgnn.bits.derived import DerivedLayouts
from bitgnn.bits.factors import (
    add_remaining_self_loops,
    drop_duplicates,
    factorize,
    mean_factor,
    symmetric_factor,
    weighted_degree,
)
from bitgnn.bits.layouts import FRDC_METHODS, INT32_MAX, FrdcLayout, row_indices
from bitgnn.bits.sliced import SlicedLayout
from bitgnn.bits.tensor_version import counted


class BitAdjacency:
    """``A[i, j] = row_scale[i] * pattern[i, j] * col_scale[j]``, duplicate edges counted.

    Rows are destinations. Symmetric normalisation and mean aggregation have exactly this form.
    What is derived from it (:meth:`frdc`, :meth:`sliced`, :meth:`transposed`, :meth:`row_order`) is
    built on first use and kept until the pattern is written to or replaced.

    Args:
        rowptr: int32 or int64 ``[M + 1]``, starting at 0, never falling, ending at E.
        indices: int32 ``[E]``, source (column) of each edge.
        num_cols: N.
        row_scale: float32 ``[M]``, or None for 1.
        col_scale: float32 ``[N]``, or None for 1.

    Raises:
        TypeError: a tensor has another dtype.
        ValueError: shapes, devices or values do not fit together.
    """

    def __init__(
        self,
        rowptr: Tensor,
        indices: Tensor,
        num_cols: int,
        row_scale: Tensor | None = None,
        col_scale: Tensor | None = None,
    ) -> None:
        check_vector("rowptr", rowptr, (torch.int32, torch.int64), rowptr, None)
        check_vector("indices", indices, (torch.int32,), rowptr, None)
        check_value(
            rowptr.numel() > 0, lambda: "BitAdjacency: rowptr must have shape [M + 1], got [0]"
        )
        if row_scale is not None:
            check_vector("row_scale", row_scale, (torch.float32,), rowptr, len(rowptr) - 1)
        if col_scale is not None:
            check_vector("col_scale", col_scale, (torch.float32,), rowptr, num_cols)
        check_value(
            int(rowptr[0]) == 0, lambda: f"BitAdjacency: rowptr must start at 0, got {rowptr[0]}"
        )
        check_value(
            int(rowptr[-1]) == len(indices),
            lambda: (
                f"BitAdjacency: rowptr must end at the number of edges {len(indices)}, "
                f"got {rowptr[-1]}"
            ),
        )
        check_value(
            bool((rowptr[1:] >= rowptr[:-1]).all()),
            lambda: "BitAdjacency: rowptr must never fall, got a smaller entry after a larger one",
        )
        check_range(indices, num_cols, "BitAdjacency: indices", "num_cols")
        self._set(rowptr, indices, num_cols, row_scale, col_scale, 0.0)

    def _set(
        self, rowptr: Any, indices: Any, num_cols: int, row_scale: Any, col_scale: Any, error: float
    ) -> None:
        self.rowptr: Tensor = rowptr
        self.indices: Tensor = indices
        self.num_cols = num_cols
        self.row_scale: Tensor | None = row_scale
        self.col_scale: Tensor | None = col_scale
        self.factorization_error = error
        """Relative Frobenius error of the factors on the edges; 0.0 where they are exact."""
        self._derived: DerivedLayouts | None = None
        self._planned: dict[int, str] = {}
        self._frdc_method = FRDC_METHODS[-1]

    @classmethod
    def _trusted(
        cls,
        rowptr: Any,
        indices: Any,
        num_cols: int,
        row_scale: Any,
        col_scale: Any,
        error: float = 0.0,
    ) -> "BitAdjacency":
        """An adjacency without checks, from parts that went through them before."""
        self = object.__new__(cls)
        self._set(rowptr, indices, num_cols, row_scale, col_scale, error)
        return self

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Any,
        num_nodes: int | tuple[int, int] | None = None,
        edge_weight: Tensor | None = None,
        normalize: str | None = None,
        add_self_loops: bool = False,
        coalesce: bool = False,
    ) -> "BitAdjacency":
        """Build from a graph in any of PyG's forms.

        Steps, in this order: drop duplicates, add self loops, normalise, factorise weights
        (exactly where they have rank one, else by row means; see ``factorization_error``).

        Args:
            edge_index: int64 or int32 ``[2, E]`` (sources, destinations) or a PyG ``EdgeIndex``;
                or an adjacency whose rows are destinations (PyG's ``adj_t``): torch sparse CSR,
                CSC or COO, or ``torch_sparse.SparseTensor``, its values being the weights.
            num_nodes: nodes, or (destinations, sources) of a bipartite graph; None takes it from
                the sparse shape or the largest index.
            edge_weight: float ``[E]``, for an edge index only.
            normalize: "sym" for ``row_scale = col_scale = deg ** -1/2``, deg being the sum of
                weights into a node (PyG's ``gcn_norm``); "mean" for ``row_scale = 1 / number of
                edges``, 0 for empty rows; None for neither. Duplicate edges count.
            add_self_loops: one loop for each node, as PyG's ``add_remaining_self_loops``.
            coalesce: hold each edge once; weights of duplicates add up.

        Raises:
            TypeError: an argument's type or dtype is wrong.
            ValueError: a shape, device, index or option is wrong.
        """
        name = "BitAdjacency.from_edge_index"
        check_value(
            normalize in (None, "sym", "mean"),
            lambda: f"{name}: normalize must be None, 'sym' or 'mean', got {normalize!r}",
        )
        edges = read_edges(edge_index, num_nodes, edge_weight, name)
        check_value(
            edges.num_rows == edges.num_cols or not (add_self_loops or normalize == "sym"),
            lambda: (
                f"{name}: self loops and normalize='sym' need as many sources as destinations, "
                f"got {edges.num_cols} and {edges.num_rows}"
            ),
        )
        if coalesce:
            edges = drop_duplicates(edges)
        if edges.weight is None:
            rowptr, indices = pattern_of(edges, add_self_loops)
            degree = rowptr.diff()
        else:
            if add_self_loops:
                edges = add_remaining_self_loops(edges)
            rowptr, indices = pattern_of(edges)
            degree = weighted_degree(edges)
        row_scale = col_scale = None
        if normalize == "sym":
            row_scale = col_scale = symmetric_factor(degree)
        elif normalize == "mean":
            row_scale = mean_factor(rowptr.diff())
        error = 0.0
        if edges.weight is not None:
            shape = (edges.num_rows, edges.num_cols)
            factors = factorize(edges.rows, edges.columns, edges.weight, shape)
            row_scale = factors.row_scale if row_scale is None else factors.row_scale * row_scale
            if factors.col_scale is not None:
                col_scale = (
                    factors.col_scale if col_scale is None else factors.col_scale * col_scale
                )
            error = factors.error
        return cls._trusted(rowptr, indices, edges.num_cols, row_scale, col_scale, error)

    @property
    def shape(self) -> tuple[int, int]:
        """``(M, N)``: destinations, sources."""
        return self.rowptr.size(0) - 1, self.num_cols

    @property
    def nnz(self) -> int:
        """Number of edges, duplicates counted."""
        return self.indices.size(0)

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.indices.device

    @property
    def nbytes(self) -> int:
        """Bytes of CSR and factors; derived layouts tell their own."""
        return sum(tensor.nbytes for tensor in self.tensors if tensor is not None)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "BitAdjacency":
        """The same adjacency on another device; layouts are planned and built there anew."""

        def move(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.to(device, non_blocking=non_blocking)

        return BitAdjacency._trusted(
            move(self.rowptr),
            move(self.indices),
            self.num_cols,
            move(self.row_scale),
            move(self.col_scale),
            self.factorization_error,
        )

    @property
    def derived_nbytes(self) -> int:
        """Bytes of the derived layouts and the order of the rows, as far as built."""
        return 0 if self._derived is None else self._derived.nbytes

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """Its parts: row pointer, indices and both factors."""
        return self.rowptr, self.indices, self.row_scale, self.col_scale

    def plan_layout(self, words: int, layout: str, method: str | None = None) -> None:
        """Settle the layout in which frozen models aggregate packed rows of ``words`` words.

        Args:
            words: words of 32 bits a row.
            layout: ``"csr"``, ``"sliced"`` or ``"frdc"``; what it needs is built at once.
            method: on FRDC tiles, for rows of all widths; None for the default.

        Raises:
            ValueError: another layout or method, or the layout cannot hold the pattern.
        """
        check_value(
            layout in ("csr", "sliced", "frdc"),
            lambda: (
                "BitAdjacency.plan_layout: layout must be 'csr', 'sliced' or 'frdc', "
                f"got {layout!r}"
            ),
        )
        method = FRDC_METHODS[-1] if method is None else method
        check_value(
            method in FRDC_METHODS,
            lambda: (
                f"BitAdjacency.plan_layout: method must be one of {list(FRDC_METHODS)}, "
                f"got {method!r}"
            ),
        )
        if layout == "sliced":
            self.sliced()
        elif layout == "frdc":
            check_value(
                self.frdc() is not None,
                lambda: "BitAdjacency.plan_layout: layout 'frdc' cannot hold duplicate edges",
            )
            self._frdc_method = method
        self._planned[words] = layout

    @property
    def frdc_arguments(self) -> tuple[Any, ...]:
        """Arguments of operators on FRDC tiles, with the number of the method.

        Raises:
            ValueError: an edge occurs twice, which tiles cannot hold.
        """
        tiles = self.frdc()
        check_value(
            tiles is not None,
            lambda: "BitAdjacency.frdc_arguments: tiles cannot hold duplicate edges",
        )
        assert tiles is not None
        number = FRDC_METHODS.index(self._frdc_method)
        return tiles.tile_rowptr, tiles.tile_cols, tiles.tiles, tiles.num_rows, number

    def planned_layout(self, words: int) -> str:
        """The layout settled for rows of ``words`` words, else ``"csr"``.

        Compiled and exported programs take CSR: they see the tensors of :attr:`tensors` alone.
        """
        return "csr" if torch.compiler.is_compiling() else self._planned.get(words, "csr")

    def frdc(self) -> FrdcLayout | None:
        """The FRDC layout, kept after the first call; None where an edge occurs twice."""
        return self._layouts().frdc()

    def sliced(self, max_slice_size: int | None = None) -> SlicedLayout:
        """The sliced layout, kept for each slice size after the first call.

        Args:
            max_slice_size: columns of a slice at most; None for as many as the device's shared
                memory holds.

        Raises:
            ValueError: ``max_slice_size`` lies outside [1, 65535].
        """
        return self._layouts().sliced(max_slice_size)

    def has_sliced(self) -> bool:
        """Whether the sliced layout of the device's own size has been built."""
        derived = self._derived
        return (
            derived is not None and derived.fits(self.rowptr, self.indices) and derived.has_sliced()
        )

    def transposed(self) -> tuple[Tensor, Tensor]:
        """Row pointer ``[N + 1]`` and int32 ``[E]`` indices of the transposed pattern, kept."""
        if torch.compiler.is_compiling():
            from bitgnn.bits._outside_graphs import transposed

            return transposed(self)
        return self._layouts().transposed()

    def row_order(self) -> Tensor | None:
        """The rows by descending ``degree // 32``, kept after the first call.

        A CUDA graph captured by hand goes on reading the order that was found before its capture.

        Returns:
            Int64 ``[M, 2]``: the first edge of each row, and ``degree + row * 2**32``. None from
            2**31 edges on, while a compiler looks, and where it is not there yet while a CUDA
            stream is captured, whose results cannot be kept.
        """
        if torch.compiler.is_compiling() or self.nnz > INT32_MAX:
            return None
        if self.indices.is_cuda and torch.cuda.is_current_stream_capturing():
            derived = self._derived
            if derived is None or not derived.fits(self.rowptr, self.indices):
                return None
            return derived.found_order
        return self._layouts().row_order()

    def _layouts(self) -> DerivedLayouts:
        """The derived layouts, begun anew once the pattern has changed."""
        derived = self._derived
        if derived is None or not derived.fits(self.rowptr, self.indices):
            self.rowptr, self.indices = counted(self.rowptr), counted(self.indices)
            derived = DerivedLayouts(self.rowptr, self.indices, self.num_cols)
            self._derived = derived
        return derived

    def to_edge_index(self) -> Tensor:
        """Int64 ``[2, E]`` (sources, destinations) in row order; factors are left out."""
        return torch.stack([self.indices.long(), row_indices(self.rowptr)])

    def edge_weight(self) -> Tensor:
        """Float32 ``[E]``: ``row_scale[i] * col_scale[j]`` of each edge, in row order."""
        weight = torch.ones(self.nnz, device=self.device)
        if self.row_scale is not None:
            weight = weight * self.row_scale[row_indices(self.rowptr)]
        return weight if self.col_scale is None else weight * self.col_scale[self.indices.long()]

    def to_torch_csr(self) -> Tensor:
        """The float matrix as torch sparse CSR; duplicate edges stay separate entries."""
        rowptr = self.rowptr.to(self.indices.dtype) if self.nnz < 2**31 else self.rowptr
        indices = self.indices.to(rowptr.dtype)
        return torch.sparse_csr_tensor(
            rowptr, indices, self.edge_weight(), self.shape, check_invariants=False
        )

    def to_dense(self) -> Tensor:
        """Float32 ``[M, N]``; duplicate edges add up."""
        dense = torch.zeros(self.shape, device=self.device)
        place = (row_indices(self.rowptr), self.indices.long())
        return dense.index_put_(place, self.edge_weight(), accumulate=True)

    def __repr__(self) -> str:
        held = [name for name in ("row_scale", "col_scale") if getattr(self, name) is not None]
        factors = f", factors={'+'.join(held)}" if held else ""
        rows, columns = self.shape
        return f"BitAdjacency({rows} x {columns}, nnz={self.nnz}{factors}, device={self.device})"


def _split(adjacency: BitAdjacency) -> tuple[list[Any], tuple[int, float]]:
    return list(adjacency.tensors), (adjacency.num_cols, adjacency.factorization_error)


def _join(leaves: Any, rest: tuple[int, float]) -> BitAdjacency:
    rowptr, indices, row_scale, col_scale = leaves
    num_cols, error = rest
    return BitAdjacency._trusted(rowptr, indices, num_cols, row_scale, col_scale, error)


pytrees.register(BitAdjacency, ("rowptr", "indices", "row_scale", "col_scale"), _split, _join)
