"""The float baseline of every comparison: PyG's GCN and the forms in which PyG takes a graph."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.typing import WITH_TORCH_SPARSE
from torch_geometric.utils import to_torch_csr_tensor


class PyGGCN(nn.Module):
    """Plain PyG layers with cached normalisation and ReLU between them, in evaluation mode.

    State-dict keys are those of ``bitgnn.models.GCN``, whose ``input_norm`` is that one's. Signs
    have no use for the ReLUs.
    """

    def __init__(self, sizes: Sequence[int], input_norm: bool = False, relu: bool = True) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(sizes[0], affine=False) if input_norm else None
        self.convs = nn.ModuleList(
            GCNConv(inputs, outputs, cached=True) for inputs, outputs in pairwise(sizes)
        )
        self.relu = relu
        self.eval()

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        """Class scores ``[N, C]``; the first call fixes the graph."""
        if self.norm is not None:
            x = self.norm(x)
        for i, conv in enumerate(self.convs):
            x = conv(x.relu() if self.relu and i > 0 else x, graph)
        return x


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
