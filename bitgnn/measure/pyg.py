"""The forms in which PyG takes a graph, for comparisons with float models."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor
from torch_geometric.typing import WITH_TORCH_SPARSE
from torch_geometric.utils import to_torch_csr_tensor


def graph_forms(edge_index: Tensor, num_nodes: int) -> dict[str, Any]:
    """An edge index ``[2, E]``, as torch CSR, and as ``SparseTensor`` where that is installed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
        # Flipped: PyG multiplies by the adjacency whose rows are destinations.
        csr = to_torch_csr_tensor(edge_index.flip(0), size=num_nodes)
    forms: dict[str, Any] = {"edge_index": edge_index, "torch CSR": csr}
    if WITH_TORCH_SPARSE:
        from torch_sparse import SparseTensor

        source, destination = edge_index
        size = (num_nodes, num_nodes)
        forms["SparseTensor"] = SparseTensor(row=destination, col=source, sparse_sizes=size)
    return forms
