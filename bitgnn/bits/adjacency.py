"""BitAdjacency: a 0/1 pattern in CSR with row and column factors, or with the weights of edges."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from bitgnn._memory import tells_of_memory
from bitgnn.bits import pytrees
from bitgnn.bits.edges import Edges, check_csr, drop_duplicates, read_edges
from bitgnn.bits.factors import compressed
from bitgnn.bits.layouts import (
    INT32_MAX,
    FrdcLayout,
    SlicedLayout,
    build_frdc,
    build_row_order,
    build_sliced,
    default_slice_size,
    row_indices,
)
from bitgnn.bits.patterns import pattern_of
from bitgnn.bits.planes import Planes, check_bits, planes_of, quantized
from bitgnn.bits.tensor_version import Watch, counted

LESS_OF_GRAPHS = (
    "give edges as int32 and without weights, delete what else is held, or write the graph to "
    "files with bitgnn.distributed.Partitioner, in bounded memory"
)


class BitAdjacency:
    """``A[i, j] = row_scale[i] * pattern[i, j] * col_scale[j]``, duplicate edges counted.

    Rows are destinations. Symmetric normalisation and mean aggregation have exactly this form.
    With ``values`` it is ``A[i, j] = row_scale[i] * values[e]``, any weight of the edge ``e``; sums
    then add or subtract values in the order of a row's entries, on every device. Values in
    ``value_bits`` are integers of so many bits: the sums of their planes are exact in any order.
    What is derived from it (:meth:`frdc`, :meth:`sliced`, :meth:`planes`, :meth:`transposed`,
    :meth:`row_order`) is built on first use and kept until the pattern is written to or replaced.

    Args:
        rowptr: int32 or int64 ``[M + 1]``, starting at 0, never falling, ending at E.
        indices: int32 ``[E]``, source (column) of each edge.
        num_cols: N.
        row_scale: float32 ``[M]``, or None for 1.
        col_scale: float32 ``[N]``, or None for 1.
        values: float32 ``[E]``, the weight of each edge, in place of column factors.

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
        values: Tensor | None = None,
    ) -> None:
        check_csr(rowptr, indices, num_cols, row_scale, col_scale, values)
        self._set(rowptr, indices, num_cols, row_scale, col_scale, values)

    def _set(
        self,
        rowptr: Any,
        indices: Any,
        num_cols: int,
        row_scale: Any = None,
        col_scale: Any = None,
        values: Any = None,
        value_bits: int | None = None,
    ) -> None:
        self.rowptr: Tensor = rowptr
        self.indices: Tensor = indices
        self.num_cols = num_cols
        self.row_scale: Tensor | None = row_scale
        self.col_scale: Tensor | None = col_scale
        self.values: Tensor | None = values
        self.value_bits: int | None = value_bits
        self._derived: dict[Hashable, Any] = {}
        self._watch: Watch | None = None
        self._planned: set[int] = set()
        self._checked = self._pattern_state()

    @classmethod
    def _trusted(cls, *parts: Any) -> BitAdjacency:
        """An adjacency without checks, from the arguments of :meth:`_set`."""
        self = object.__new__(cls)
        self._set(*parts)
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
        value_bits: int | None = None,
    ) -> BitAdjacency:
        """Build from a graph in any of PyG's forms.

        Steps, in this order: drop duplicates, add self loops, drop edges of weight 0, normalise.
        A weight that all edges into a node share becomes its row factor; other weights become
        ``values``, normalised, exactly. So do those that take a gradient, which passes through to
        ``edge_weight``; edges of weight 0 then stay.

        Args:
            edge_index: int64 or int32 ``[2, E]`` (sources, destinations) or a PyG ``EdgeIndex``;
                or an adjacency whose rows are destinations (PyG's ``adj_t``): torch sparse CSR,
                CSC or COO, ``torch_sparse.SparseTensor``, or a matrix of ``scipy.sparse``, its
                values being the weights.
            num_nodes: nodes, or (destinations, sources) of a bipartite graph; None takes it from
                the sparse shape or the largest index.
            edge_weight: finite floats ``[E]``, of any sign, for an edge index only.
            normalize: "sym" for ``row_scale = col_scale = deg ** -1/2``, deg being the sum of
                weights into a node (PyG's ``gcn_norm``); "mean" for ``row_scale = 1 / number of
                edges``, 0 for empty rows; None for neither. Duplicate edges count, and in a mean
                those of weight 0, as in PyG.
            add_self_loops: one loop for each node, as PyG's ``add_remaining_self_loops``.
            coalesce: hold each edge once; weights of duplicates add up.
            value_bits: round values to integers of 1 to 4 bits, from 2 on with negative weights,
                times a factor of their row, whose largest magnitude stays as it is; entries that
                round to 0 go. Sums of bits are then integers, exact in any order, which popcounts
                of each plane give on dense graphs. None keeps floats.

        Raises:
            TypeError: an argument's type or dtype is wrong.
            ValueError: a shape, device, index or option is wrong, a weight is NaN or infinite, or
                "sym" meets a negative sum of weights into a node.
        """
        name = "BitAdjacency.from_edge_index"
        if normalize not in (None, "sym", "mean"):
            raise ValueError(f"{name}: normalize must be None, 'sym' or 'mean', got {normalize!r}")
        check_bits(value_bits, name)
        edges = read_edges(edge_index, num_nodes, edge_weight, name)
        if coalesce:
            edges = drop_duplicates(edges)
        made = cls._from_edges(edges, normalize == "sym", normalize == "mean", add_self_loops, name)
        return made if value_bits is None or made.values is None else quantized(made, value_bits)

    @classmethod
    @tells_of_memory("BitAdjacency.from_edge_index", LESS_OF_GRAPHS)
    def _from_edges(
        cls, edges: Edges, symmetric: bool, mean: bool, add_self_loops: bool, name: str
    ) -> BitAdjacency:
        """Build from edges; a mean divides the symmetric normalisation, if there is one."""
        if edges.num_rows != edges.num_cols and (add_self_loops or symmetric):
            raise ValueError(
                f"{name}: self loops and normalize='sym' need as many sources as destinations, "
                f"got {edges.num_cols} and {edges.num_rows}"
            )
        rowptr, indices, *weights = compressed(edges, symmetric, mean, add_self_loops)
        return cls._trusted(rowptr, indices, edges.num_cols, *weights)

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
        """Bytes of CSR and of factors or values, without derived layouts."""
        return sum(tensor.nbytes for tensor in self.tensors if tensor is not None)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> BitAdjacency:
        """Copy to another device; layouts are planned and built there anew."""
        rowptr, indices, *weights = (
            None if tensor is None else tensor.to(device, non_blocking=non_blocking)
            for tensor in self.tensors
        )
        return self._trusted(rowptr, indices, self.num_cols, *weights, self.value_bits)

    @property
    def derived_nbytes(self) -> int:
        """Bytes of the derived layouts and the order of the rows, as far as built."""
        total = 0
        for held in self._derived.values():
            parts = held if isinstance(held, tuple) else (held,)
            total += sum(part.nbytes for part in parts if part is not None)
            if isinstance(held, SlicedLayout):
                total -= self.rowptr.nbytes  # shared with the pattern
        return total

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """Its parts: row pointer, indices, both factors and the values."""
        return self.rowptr, self.indices, self.row_scale, self.col_scale, self.values

    def plan_slices(self, words: int) -> None:
        """Build slices now, over which frozen models aggregate rows of ``words`` words."""
        self.sliced()
        self._planned.add(words)

    def reads_slices(self, words: int) -> bool:
        """True if slices are planned for rows of ``words`` words.

        Compiled and exported programs take CSR: they see only the tensors of :attr:`tensors`.
        """
        return words in self._planned and not torch.compiler.is_compiling()

    def frdc(self) -> FrdcLayout | None:
        """The FRDC layout, kept after the first call; None where an edge occurs twice."""
        found: FrdcLayout | None = self._kept(
            "frdc", lambda: build_frdc(self.rowptr, self.indices, self.num_cols)
        )
        return found

    def sliced(self, max_slice_size: int | None = None) -> SlicedLayout:
        """The sliced layout, kept for each slice size after the first call.

        Args:
            max_slice_size: columns of a slice at most; None for as many as the device's shared
                memory holds.

        Raises:
            ValueError: ``max_slice_size`` lies outside [1, 65535].
        """
        size = default_slice_size(self.device) if max_slice_size is None else max_slice_size
        found: SlicedLayout = self._kept(
            ("sliced", size), lambda: build_sliced(self.rowptr, self.indices, self.num_cols, size)
        )
        return found

    def has_sliced(self) -> bool:
        """True if the sliced layout of the device's own size has been built."""
        return self._fits() and ("sliced", default_slice_size(self.device)) in self._derived

    def planes(self) -> Planes | None:
        """The bit planes of values in ``value_bits``, kept; None while a stream is captured.

        Those that were there before are found then, too.
        """
        if self.indices.is_cuda and torch.cuda.is_current_stream_capturing():
            return self._derived.get("planes") if self._fits() else None
        found: Planes = self._kept("planes", lambda: planes_of(self))
        return found

    def transposed(self) -> tuple[Tensor, Tensor]:
        """Row pointer ``[N + 1]`` and int32 ``[E]`` indices of the transposed pattern, kept."""
        if torch.compiler.is_compiling():
            from bitgnn.bits._outside_graphs import transposed

            return transposed(self)
        return self._kept_transposed()

    def row_ranges(self, size: int) -> Iterator[tuple[slice, BitAdjacency]]:
        """Ranges of at most ``size`` rows and the adjacency of each, whose entries are views."""
        rows = self.shape[0]
        bounds = [*range(0, rows, size), rows]

        def places() -> Tensor:
            return self.rowptr[torch.tensor(bounds, device=self.device)].cpu()

        ends = self._kept(("row ranges", size), places).tolist()
        for (start, stop), (first, last) in zip(pairwise(bounds), pairwise(ends), strict=True):
            part, entries = slice(start, stop), slice(first, last)
            row, values = (
                None if held is None else held[cut]
                for held, cut in ((self.row_scale, part), (self.values, entries))
            )
            rowptr, indices = self.rowptr[start : stop + 1] - first, self.indices[entries]
            factors = row, self.col_scale, values
            yield part, self._trusted(rowptr, indices, self.num_cols, *factors, self.value_bits)

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
            return self._derived.get("order") if self._fits() else None
        found: Tensor = self._kept("order", lambda: build_row_order(self.rowptr))
        return found

    def check_written(self) -> None:
        """Check the pattern again if a part was written to or replaced since it was checked.

        Kernels trust it. Writes that count nowhere are not noticed: to tensors of inference mode,
        and by other libraries.

        Raises:
            TypeError: a tensor has another dtype.
            ValueError: row pointers fall, or an index lies outside of the columns.
        """
        before, now = self._checked, self._pattern_state()
        if now is None:
            return
        if before is not None:
            is_same = now[0] is before[0] and now[1] is before[1]
            if is_same and now[2:] == before[2:]:
                return
            check_csr(self.rowptr, self.indices, self.num_cols, *self.tensors[2:])
        self._checked = now

    def _pattern_state(self) -> tuple[Any, ...] | None:
        """Row pointer, indices, writes to them, columns; None where writes are not counted."""
        rowptr, indices = self.rowptr, self.indices
        if torch.compiler.is_compiling() or type(rowptr) is not Tensor:
            return None
        if rowptr.is_inference() or indices.is_inference():
            return None
        return rowptr, indices, rowptr._version + indices._version, self.num_cols

    def _kept_transposed(self) -> tuple[Tensor, Tensor]:
        def build() -> tuple[Tensor, Tensor]:
            rows, columns = row_indices(self.rowptr), self.indices.long()
            rowptr, indices = pattern_of(Edges(columns, rows, None, self.num_cols, self.shape[0]))
            return rowptr.to(self.rowptr.dtype), indices

        found: tuple[Tensor, Tensor] = self._kept("transposed", build)
        return found

    def transposed_order(self) -> Tensor:
        """Int64 ``[E]``: the entry of each entry of :meth:`transposed`, kept."""
        found: Tensor = self._kept(
            "transposed order", lambda: torch.argsort(self.indices, stable=True)
        )
        return found

    def _kept(self, key: Hashable, build: Callable[[], Any]) -> Any:
        """A derived layout, built on first use and anew once the pattern has changed."""
        if not self._fits():
            self.rowptr, self.indices = counted(self.rowptr), counted(self.indices)
            self._derived, self._watch = {}, Watch(self._sources)
        if key not in self._derived:
            self._derived[key] = build()
        return self._derived[key]

    def _fits(self) -> bool:
        """True if the layouts come from these very tensors, unchanged since.

        A compiler sees neither versions nor addresses; while it looks, nothing is written.
        """
        watch = self._watch
        if watch is None:
            return False
        return torch.compiler.is_compiling() or watch.unchanged(self._sources)

    @property
    def _sources(self) -> tuple[Tensor | None, ...]:
        """The tensors that layouts come from."""
        return self.rowptr, self.indices, None if self.value_bits is None else self.values

    def to_edge_index(self) -> Tensor:
        """Int64 ``[2, E]`` (sources, destinations) in row order; weights are left out."""
        return torch.stack([self.indices.long(), row_indices(self.rowptr)])

    def edge_weight(self) -> Tensor:
        """Float32 ``[E]`` by row: ``row_scale[i] * values[e] * col_scale[j]``, absent ones 1."""
        weight = self.values
        if weight is None:
            weight = torch.ones(self.nnz, device=self.device, dtype=torch.float32)
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

    def to_scipy(self) -> Any:
        """The float matrix as ``scipy.sparse.csr_array``; duplicate edges stay separate entries."""
        from scipy.sparse import csr_array

        parts = (self.edge_weight(), self.indices, self.rowptr)
        return csr_array(tuple(part.cpu().numpy() for part in parts), shape=self.shape)

    def to_dense(self) -> Tensor:
        """Float32 ``[M, N]``; duplicate edges add up."""
        dense = torch.zeros(self.shape, device=self.device, dtype=torch.float32)
        place = (row_indices(self.rowptr), self.indices.long())
        return dense.index_put_(place, self.edge_weight(), accumulate=True)

    def __repr__(self) -> str:
        held = [name for name in ("row_scale", "col_scale") if getattr(self, name) is not None]
        factors = f", factors={'+'.join(held)}" if held else ""
        if self.values is not None:
            factors = ", values" + (f" in {self.value_bits} bits" if self.value_bits else "")
        rows, columns = self.shape
        return f"BitAdjacency({rows} x {columns}, nnz={self.nnz}{factors}, device={self.device})"


pytrees.register(
    BitAdjacency,
    ("rowptr", "indices", "row_scale", "col_scale", "values"),
    lambda held: (list(held.tensors), (held.num_cols, held.value_bits)),
    lambda leaves, rest: BitAdjacency._trusted(*leaves[:2], rest[0], *leaves[2:], rest[1]),
)
