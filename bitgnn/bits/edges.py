"""Reads graphs of all forms into edges."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.bits.layouts import row_indices

_MAX_NODES = 2**31
"""Nodes that an int32 index can tell apart."""


class Edges(NamedTuple):
    """Edges in the order given: rows are destinations, columns sources, all int32 or all int64."""

    rows: Tensor
    columns: Tensor
    weight: Tensor | None
    num_rows: int
    num_cols: int


def read_edges(
    source: Any, num_nodes: int | tuple[int, int] | None, weight: Tensor | None, name: str
) -> Edges:
    """Edges of an edge index, an ``EdgeIndex``, or a sparse adjacency whose rows are destinations.

    ``num_nodes`` are nodes, (destinations, sources), or None to take them from ``source``; a
    ``weight`` is only for an edge index. Messages begin with ``name``.
    """
    # A torch_sparse.SparseTensor, without importing torch_sparse.
    if type(source).__name__ == "SparseTensor" and hasattr(source, "csr"):
        rowptr, columns, values = source.csr()
        rows = row_indices(rowptr)
        return _sparse(rows, columns, values, source.sparse_sizes(), num_nodes, weight, name)
    # A matrix or array of scipy.sparse, without importing scipy.
    if type(source).__module__.startswith("scipy.sparse") and hasattr(source, "tocoo"):
        return _scipy(source.tocoo(), num_nodes, weight, name)
    if not isinstance(source, Tensor):
        raise TypeError(
            f"{name}: edge_index must be a tensor, an EdgeIndex, a SparseTensor or a sparse matrix "
            f"of scipy, got {name_type(source)}"
        )
    if source.layout == torch.sparse_csr and source.dim() == 2 and source.dense_dim() == 0:
        rows, columns = torch.repeat_interleave(source.crow_indices().diff()), source.col_indices()
        return _sparse(rows, columns, source.values(), source.shape, num_nodes, weight, name)
    if source.layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        # Uncoalesced entries stay apart: a duplicate edge counts twice instead of weighing 2.
        coo = source if source.layout == torch.sparse_coo else source.to_sparse_coo()
        if coo.sparse_dim() != 2 or coo.dense_dim() != 0:
            raise ValueError(f"{name}: a sparse adjacency must be a matrix, got {list(coo.shape)}")
        rows, columns = coo._indices()
        return _sparse(rows, columns, coo._values(), coo.shape, num_nodes, weight, name)
    if hasattr(source, "sparse_size") and hasattr(source, "as_tensor"):
        held = source.sparse_size()
        if num_nodes is None and None not in held:
            num_nodes = (held[1], held[0])
        source = source.as_tensor()
    return _edge_index(source, num_nodes, weight, name)


def _sparse(
    rows: Tensor,
    columns: Tensor,
    values: Tensor | None,
    shape: Any,
    num_nodes: int | tuple[int, int] | None,
    weight: Tensor | None,
    name: str,
) -> Edges:
    num_rows, num_cols = (int(size) for size in shape)
    if weight is not None:
        raise ValueError(
            f"{name}: edge_weight must be None with a sparse adjacency, which holds its own"
        )
    if num_nodes is not None and _pair(num_nodes) != (num_rows, num_cols):
        raise ValueError(
            f"{name}: num_nodes must be None or {(num_rows, num_cols)} like the sparse "
            f"adjacency, got {num_nodes}"
        )
    # Ones are a pattern.
    if values is not None and bool((values == 1).all()):
        values = None
    if values is not None:
        _check_finite(values, f"{name}: the values of a sparse adjacency")
    return Edges(rows, columns, values, num_rows, num_cols)


def _scipy(
    coo: Any, num_nodes: int | tuple[int, int] | None, weight: Tensor | None, name: str
) -> Edges:
    if len(coo.shape) != 2:
        raise ValueError(f"{name}: a sparse adjacency must be a matrix, got {list(coo.shape)}")
    if coo.data.dtype.kind not in "biuf":
        raise TypeError(f"{name}: a sparse adjacency must hold real numbers, got {coo.data.dtype}")
    rows, columns = (torch.from_numpy(part.astype("int64")) for part in (coo.row, coo.col))
    values = torch.from_numpy(coo.data.astype("float32"))
    return _sparse(rows, columns, values, coo.shape, num_nodes, weight, name)


def _edge_index(
    edge_index: Tensor, num_nodes: int | tuple[int, int] | None, weight: Tensor | None, name: str
) -> Edges:
    if edge_index.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name}: edge_index must be int64 or int32, got {name_type(edge_index)}")
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"{name}: edge_index must have shape [2, E], got {list(edge_index.shape)}")
    if weight is not None:
        if not isinstance(weight, Tensor) or not weight.is_floating_point():
            raise TypeError(f"{name}: edge_weight must be a float tensor, got {name_type(weight)}")
        if weight.shape != edge_index.shape[1:]:
            raise ValueError(
                f"{name}: edge_weight must have shape [{edge_index.size(1)}] like the edges, "
                f"got {list(weight.shape)}"
            )
        if weight.device != edge_index.device:
            raise ValueError(
                f"{name}: edge_weight must be on {edge_index.device}, got {weight.device}"
            )
        _check_finite(weight, f"{name}: edge_weight")
    columns, rows = edge_index
    if num_nodes is None:
        num_nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
    num_rows, num_cols = _pair(num_nodes)
    if not (0 <= num_rows <= _MAX_NODES and 0 <= num_cols <= _MAX_NODES):
        raise ValueError(f"{name}: num_nodes must lie in [0, {_MAX_NODES}], got {num_nodes}")
    check_range(columns, num_cols, f"{name}: edge_index[0]", "num_nodes (sources)")
    check_range(rows, num_rows, f"{name}: edge_index[1]", "num_nodes (destinations)")
    return Edges(rows, columns, weight, num_rows, num_cols)


def _check_finite(weight: Tensor, what: str) -> None:
    finite = torch.isfinite(weight)
    if not bool(finite.all()):
        place = int((~finite).nonzero()[0])
        raise ValueError(f"{what} must be finite, got {float(weight[place])} at place {place}")


def _pair(num_nodes: int | tuple[int, int]) -> tuple[int, int]:
    """(destinations, sources)."""
    return num_nodes if isinstance(num_nodes, tuple) else (num_nodes, num_nodes)


def check_range(index: Tensor, limit: int, what: str, limit_name: str) -> None:
    """Raise ValueError unless all of ``index`` is in [0, limit), RuntimeError while exporting."""
    ready = "a BitAdjacency (prepare_graph of a frozen model) in place of the edges"
    if torch.compiler.is_exporting():
        raise RuntimeError(
            f"{what}: torch.export cannot follow the making of a graph; export with {ready}"
        )
    if torch.jit.is_tracing():
        raise RuntimeError(
            f"{what}: torch.jit.trace would fix this graph's size; use torch.export with {ready}"
        )
    if index.numel() == 0:
        return
    smallest, largest = torch.stack(index.aminmax()).tolist()  # one wait for a GPU, not two
    if smallest < 0 or largest >= limit:
        raise ValueError(
            f"{what} must lie in [0, {limit}) with {limit_name} {limit}, "
            f"got smallest {smallest}, largest {largest}"
        )


def check_csr(
    rowptr: Any, indices: Any, num_cols: int, row_scale: Any, col_scale: Any, values: Any
) -> None:
    """Require a pattern in CSR and, if given, factors of rows, and of columns or values."""
    _check_vector("rowptr", rowptr, (torch.int32, torch.int64), rowptr, None)
    _check_vector("indices", indices, (torch.int32,), rowptr, None)
    if rowptr.numel() == 0:
        raise ValueError("BitAdjacency: rowptr must have shape [M + 1], got [0]")
    if row_scale is not None:
        _check_vector("row_scale", row_scale, (torch.float32,), rowptr, len(rowptr) - 1)
    if col_scale is not None:
        _check_vector("col_scale", col_scale, (torch.float32,), rowptr, num_cols)
    if values is not None:
        _check_vector("values", values, (torch.float32,), rowptr, len(indices))
        if col_scale is not None:
            raise ValueError("BitAdjacency: col_scale must be None beside values, got factors")
    if int(rowptr[0]) != 0:
        raise ValueError(f"BitAdjacency: rowptr must start at 0, got {rowptr[0]}")
    if int(rowptr[-1]) != len(indices):
        raise ValueError(
            f"BitAdjacency: rowptr must end at the number of edges {len(indices)}, got {rowptr[-1]}"
        )
    if not bool((rowptr[1:] >= rowptr[:-1]).all()):
        raise ValueError(
            "BitAdjacency: rowptr must never fall, got a smaller entry after a larger one"
        )
    check_range(indices, num_cols, "BitAdjacency: indices", "num_cols")


def _check_vector(
    name: str, tensor: Any, dtypes: tuple[torch.dtype, ...], like: Tensor, size: int | None
) -> None:
    """Require a vector of one of the dtypes, of the given size, on the device of ``like``."""
    if not isinstance(tensor, Tensor) or tensor.dtype not in dtypes:
        raise TypeError(
            f"BitAdjacency: {name} must be a tensor of {' or '.join(map(str, dtypes))}, "
            f"got {name_type(tensor)}"
        )
    if tensor.dim() != 1 or (size is not None and len(tensor) != size):
        raise ValueError(
            f"BitAdjacency: {name} must have one dimension"
            f"{'' if size is None else f' of {size}'}, got shape {list(tensor.shape)}"
        )
    if tensor.device != like.device:
        raise ValueError(
            f"BitAdjacency: {name} must be on {like.device} like rowptr, got {tensor.device}"
        )


def drop_duplicates(edges: Edges) -> Edges:
    """Merge duplicate edges; their weights add up."""
    key = edges.rows.long() * edges.num_cols + edges.columns
    unique, owner = torch.unique(key, return_inverse=True)
    weight = edges.weight
    if weight is not None:
        weight = weight.new_zeros(len(unique)).index_add_(0, owner, weight)
    rows = torch.div(unique, max(1, edges.num_cols), rounding_mode="floor")
    return edges._replace(rows=rows, columns=unique - rows * edges.num_cols, weight=weight)


def drop_zeros(edges: Edges) -> Edges:
    """Drop edges of weight 0, which are no entries of a pattern."""
    if edges.weight is None:
        return edges
    kept = edges.weight != 0
    if bool(kept.all()):
        return edges
    rows, columns, weight = edges.rows[kept], edges.columns[kept], edges.weight[kept]
    return edges._replace(rows=rows, columns=columns, weight=weight)


def add_remaining_self_loops(edges: Edges) -> Edges:
    """Give each node exactly one self loop, of weight 1 or that of its last loop.

    As ``torch_geometric.utils.add_remaining_self_loops``; the graph must be square.
    """
    loops = edges.rows == edges.columns
    nodes = torch.arange(edges.num_rows, device=edges.rows.device)
    weight = edges.weight
    if weight is not None:
        # The last loop of a node wins, whatever order a scatter would write in.
        position = torch.full((edges.num_rows,), -1, dtype=torch.int64, device=nodes.device)
        held = loops.nonzero().squeeze(1)
        position.scatter_reduce_(0, edges.rows[held].long(), held, "amax")
        loop_weight = torch.ones(edges.num_rows, dtype=weight.dtype, device=nodes.device)
        has_loop = position >= 0
        loop_weight[has_loop] = weight[position[has_loop]]
        weight = torch.cat([weight[~loops], loop_weight])
    return edges._replace(
        rows=torch.cat([edges.rows[~loops], nodes]),
        columns=torch.cat([edges.columns[~loops], nodes]),
        weight=weight,
    )
