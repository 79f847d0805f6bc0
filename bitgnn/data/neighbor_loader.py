"""NeighborLoader: mini-batches of sampled neighbourhoods after a plain install."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.typing import EdgeType, InputNodes

from bitgnn.data.neighbor_sampler import Graph, NeighborSampler

__all__ = ["NeighborLoader"]


class NeighborLoader(NodeLoader):
    """PyG's ``NeighborLoader`` without pyg-lib and torch-sparse, called the same way.

    Batches are PyG's: the seeds' nodes come first, and ``batch_size``, ``input_id``, ``n_id``,
    ``e_id``, ``num_sampled_nodes`` and ``num_sampled_edges`` are there. Neighbours are drawn
    uniformly by :class:`~bitgnn.data.NeighborSampler`::

        loader = NeighborLoader(data, [15, 10], input_nodes=data.train_mask, batch_size=1024)
        for batch in loader:
            scores = model(batch.x, batch.edge_index)[: batch.batch_size]

    Args:
        data: ``Data``, ``HeteroData`` or a pair of feature store and graph store, such as
            :class:`~bitgnn.data.PackedFeatureStore` in both roles.
        num_neighbors: neighbours of each node, one number a hop, -1 for all of them; of a
            heterogeneous graph also by edge type.
        input_nodes: seeds, numbers or a mask; with their type for a heterogeneous graph; None is
            all nodes.
        input_time: None; temporal sampling is not supported.
        replace: draw with replacement.
        subgraph_type: ``"directional"``, ``"bidirectional"`` or ``"induced"``.
        disjoint: give each seed nodes of its own.
        temporal_strategy: as ``input_time``.
        time_attr: as ``input_time``.
        weight_attr: None; weighted sampling is not supported.
        transform: applied to each batch.
        transform_sampler_output: applied to what the sampler found.
        is_sorted: ``edge_index`` is sorted by destination.
        filter_per_worker: gather features in the workers; None decides by where they lie.
        **options: of ``torch.utils.data.DataLoader``: ``batch_size``, ``shuffle``, ``num_workers``.

    Raises:
        NotImplementedError: temporal or weighted sampling is asked for.
    """

    def __init__(
        self,
        data: Graph,
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]],
        input_nodes: InputNodes = None,
        input_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        **options: Any,
    ) -> None:
        for name, given in (
            ("input_time", input_time is not None),
            ("temporal_strategy", temporal_strategy != "uniform"),
            ("time_attr", time_attr is not None),
            ("weight_attr", weight_attr is not None),
        ):
            if given:
                kind = "weighted" if name == "weight_attr" else "temporal"
                raise NotImplementedError(
                    f"NeighborLoader: {name} asks for {kind} sampling, which is not supported; "
                    "use torch_geometric.loader.NeighborLoader with pyg-lib"
                )
        sampler = NeighborSampler(
            data,
            num_neighbors,
            replace=replace,
            subgraph_type=subgraph_type,
            disjoint=disjoint,
            is_sorted=is_sorted,
            share_memory=options.get("num_workers", 0) > 0,
        )
        super().__init__(
            data,
            sampler,
            input_nodes=input_nodes,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            **options,
        )
