"""BitAdjacency: a 0/1 pattern in CSR with row and column factors, or with the weights of edges."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from bitgnn._memory import tells_of_memory
from bitgnn.bits import pytrees
from bitgnn.bits.derived import Derived
from bitgnn.bits.edges import Edges, check_csr, drop_duplicates, read_edges
from bitgnn.bits.factors import compressed
from bitgnn.bits.layouts import row_indices
from bitgnn.bits.planes import Planes, check_bits, planes_of, quantized

LESS_OF_GRAPHS = (
    "give edges as int32 and without weights, delete what else is held, or write the graph to "
    "files with bitgnn.distributed.Partitioner, in bounded memory"
)


class BitAdjacency(Derived):
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
        self._begin()
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
    def tensors(self) -> tuple[Tensor | None, ...]:
        """Its parts: row pointer, indices, both factors and the values."""
        return self.rowptr, self.indices, self.row_scale, self.col_scale, self.values

    def planes(self) -> Planes | None:
        """The bit planes of values in ``value_bits``, kept; None while a stream is captured.

        Those that were there before are found then, too.
        """
        if self.indices.is_cuda and torch.cuda.is_current_stream_capturing():
            return self._derived.get("planes") if self._fits() else None
        found: Planes = self._kept("planes", lambda: planes_of(self))
        return found

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
