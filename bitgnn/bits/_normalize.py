"""Self loops, duplicate edges and normalisation factors, with PyG's meaning."""

import torch
from torch import Tensor

from bitgnn.bits._sources import Edges


def drop_duplicates(edges: Edges) -> Edges:
    """Each edge once; weights of its duplicates add up."""
    key = edges.rows * edges.num_cols + edges.columns
    unique, owner = torch.unique(key, return_inverse=True)
    weight = edges.weight
    if weight is not None:
        weight = weight.new_zeros(len(unique)).index_add_(0, owner, weight)
    rows = torch.div(unique, max(1, edges.num_cols), rounding_mode="floor")
    return edges._replace(rows=rows, columns=unique - rows * edges.num_cols, weight=weight)


def add_remaining_self_loops(edges: Edges) -> Edges:
    """Exactly one self loop for each node, of weight 1 or of the node's last loop.

    As ``torch_geometric.utils.add_remaining_self_loops``; the graph must be square.
    """
    loops = edges.rows == edges.columns
    nodes = torch.arange(edges.num_rows, device=edges.rows.device)
    weight = edges.weight
    if weight is not None:
        # The last loop of a node wins, whatever order a scatter would write in.
        position = torch.full((edges.num_rows,), -1, dtype=torch.int64, device=nodes.device)
        held = loops.nonzero().squeeze(1)
        position.scatter_reduce_(0, edges.rows[held], held, "amax")
        loop_weight = torch.ones(edges.num_rows, dtype=weight.dtype, device=nodes.device)
        has_loop = position >= 0
        loop_weight[has_loop] = weight[position[has_loop]]
        weight = torch.cat([weight[~loops], loop_weight])
    return edges._replace(
        rows=torch.cat([edges.rows[~loops], nodes]),
        columns=torch.cat([edges.columns[~loops], nodes]),
        weight=weight,
    )


def weighted_degree(edges: Edges) -> Tensor:
    """Float32 ``[M]``: the sum of weights into a node, duplicates counted."""
    assert edges.weight is not None
    degree = torch.zeros(edges.num_rows, device=edges.rows.device)
    return degree.index_add_(0, edges.rows, edges.weight.float())


def symmetric_factor(degree: Tensor) -> Tensor:
    """Float32 ``[N]``: ``degree ** -1/2``, 0 where infinite.

    As ``torch_geometric.nn.conv.gcn_conv.gcn_norm``; ``degree`` is the number of edges into a
    node, or the sum of their weights. Root and reciprocal are rounded the same way everywhere,
    unlike the power: graphs converted on the CPU and on a GPU have equal factors.
    """
    # float64 on the way: not every library rounds float32 roots correctly.
    factor = degree.float().double().sqrt().float().reciprocal()
    return factor.masked_fill(factor == float("inf"), 0.0)


def mean_factor(count: Tensor) -> Tensor:
    """Float32 ``[M]``: 1 / number of edges into a node, 0 where none.

    As PyG's mean aggregation, weights do not enter the number.
    """
    degree = count.float()
    return torch.where(degree > 0, 1 / degree, 0.0)
