"""Reads an adjacency in any of the forms users hold it into plain edge lists."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type

_INTEGERS = (torch.int32, torch.int64)

_MAX_NODES = 2**31
"""Nodes that an int32 index can tell apart."""


class Edges(NamedTuple):
    """Edges in the order given: rows are destinations, columns sources, all int64."""

    rows: Tensor
    columns: Tensor
    weight: Tensor | None
    num_rows: int
    num_cols: int


def is_sparse_tensor(source: object) -> bool:
    """Whether ``source`` is a ``torch_sparse.SparseTensor``, without importing torch_sparse."""
    return type(source).__name__ == "SparseTensor" and hasattr(source, "csr")


def read_edges(
    source: Any, num_nodes: int | tuple[int, int] | None, weight: Tensor | None, name: str
) -> Edges:
    """Edges of an edge index, an ``EdgeIndex``, or a sparse adjacency whose rows are destinations.

    Args:
        source: what the user gave.
        num_nodes: nodes, (destinations, sources), or None to take it from ``source``.
        weight: weights of an edge index's edges; a sparse adjacency brings its own.
        name: function that error messages name.

    Raises:
        TypeError: ``source`` or a dtype is not understood.
        ValueError: shapes do not fit, or an index lies outside the nodes.
    """
    if is_sparse_tensor(source):
        rowptr, columns, values = source.csr()
        rows = torch.repeat_interleave(
            torch.arange(len(rowptr) - 1, device=rowptr.device), rowptr.diff()
        )
        return _sparse(rows, columns, values, source.sparse_sizes(), num_nodes, weight, name)
    check_type(
        isinstance(source, Tensor),
        lambda: (
            f"{name}: edge_index must be a tensor, an EdgeIndex or a SparseTensor, "
            f"got {name_type(source)}"
        ),
    )
    if source.layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        # Uncoalesced entries stay apart: a duplicate edge counts twice instead of weighing 2.
        coo = source if source.layout == torch.sparse_coo else source.to_sparse_coo()
        check_value(
            coo.sparse_dim() == 2 and coo.dense_dim() == 0,
            lambda: f"{name}: a sparse adjacency must be a matrix, got {list(coo.shape)}",
        )
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
    check_value(
        weight is None,
        lambda: f"{name}: edge_weight must be None with a sparse adjacency, which holds its own",
    )
    check_value(
        num_nodes is None or _pair(num_nodes) == (num_rows, num_cols),
        lambda: (
            f"{name}: num_nodes must be None or {(num_rows, num_cols)} like the sparse "
            f"adjacency, got {num_nodes}"
        ),
    )
    # Ones are a pattern: they need no factors.
    if values is not None and bool((values == 1).all()):
        values = None
    return Edges(rows.long(), columns.long(), values, num_rows, num_cols)


def _edge_index(
    edge_index: Tensor, num_nodes: int | tuple[int, int] | None, weight: Tensor | None, name: str
) -> Edges:
    check_type(
        edge_index.dtype in _INTEGERS,
        lambda: f"{name}: edge_index must be int64 or int32, got {name_type(edge_index)}",
    )
    check_value(
        edge_index.dim() == 2 and edge_index.size(0) == 2,
        lambda: f"{name}: edge_index must have shape [2, E], got {list(edge_index.shape)}",
    )
    if weight is not None:
        check_type(
            isinstance(weight, Tensor) and weight.is_floating_point(),
            lambda: f"{name}: edge_weight must be a float tensor, got {name_type(weight)}",
        )
        check_value(
            weight.shape == edge_index.shape[1:],
            lambda: (
                f"{name}: edge_weight must have shape [{edge_index.size(1)}] like the edges, "
                f"got {list(weight.shape)}"
            ),
        )
        check_value(
            weight.device == edge_index.device,
            lambda: f"{name}: edge_weight must be on {edge_index.device}, got {weight.device}",
        )
    columns, rows = edge_index[0].long(), edge_index[1].long()
    if num_nodes is None:
        num_nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
    num_rows, num_cols = _pair(num_nodes)
    check_value(
        0 <= num_rows <= _MAX_NODES and 0 <= num_cols <= _MAX_NODES,
        lambda: f"{name}: num_nodes must lie in [0, {_MAX_NODES}], got {num_nodes}",
    )
    check_range(columns, num_cols, f"{name}: edge_index[0]", "num_nodes (sources)")
    check_range(rows, num_rows, f"{name}: edge_index[1]", "num_nodes (destinations)")
    return Edges(rows, columns, weight, num_rows, num_cols)


def check_range(index: Tensor, limit: int, what: str, limit_name: str) -> None:
    """Raise ValueError unless all of ``index`` lies in [0, limit), RuntimeError while exporting."""
    if torch.compiler.is_exporting():
        raise RuntimeError(
            f"{what}: torch.export cannot follow the making of a graph; export with a BitAdjacency "
            "(prepare_graph of a frozen model) in place of the edges"
        )
    if torch.jit.is_tracing():
        raise RuntimeError(
            f"{what}: torch.jit.trace would fix this graph's size; use torch.export with a "
            "BitAdjacency (prepare_graph of a frozen model) in place of the edges"
        )
    if index.numel() == 0:
        return
    smallest, largest = torch.stack(index.aminmax()).tolist()  # one wait for a GPU, not two
    check_value(
        smallest >= 0 and largest < limit,
        lambda: (
            f"{what} must lie in [0, {limit}) with {limit_name} {limit}, "
            f"got smallest {smallest}, largest {largest}"
        ),
    )


def check_vector(
    name: str, tensor: Tensor, dtypes: tuple[torch.dtype, ...], like: Tensor, size: int | None
) -> None:
    """Require a vector of one of the dtypes, of a size where one is given, beside ``like``.

    Raises:
        TypeError: the dtype is wrong.
        ValueError: shape or device do not fit.
    """
    check_type(
        isinstance(tensor, Tensor) and tensor.dtype in dtypes,
        lambda: (
            f"BitAdjacency: {name} must be a tensor of {' or '.join(map(str, dtypes))}, "
            f"got {name_type(tensor)}"
        ),
    )
    check_value(
        tensor.dim() == 1 and (size is None or len(tensor) == size),
        lambda: (
            f"BitAdjacency: {name} must have one dimension"
            f"{'' if size is None else f' of {size}'}, got shape {list(tensor.shape)}"
        ),
    )
    check_value(
        tensor.device == like.device,
        lambda: f"BitAdjacency: {name} must be on {like.device} like rowptr, got {tensor.device}",
    )


def _pair(num_nodes: int | tuple[int, int]) -> tuple[int, int]:
    """(destinations, sources)."""
    return num_nodes if isinstance(num_nodes, tuple) else (num_nodes, num_nodes)
