"""NeighborSampler and NeighborLoader: PyG's mini-batches on this package's operator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
import torch_geometric.loader
import torch_geometric.sampler
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData, remote_backend_utils
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput
from torch_geometric.sampler.base import NumNeighbors, SubgraphType
from torch_geometric.typing import EdgeType, InputNodes, NodeType

Graph: TypeAlias = Data | HeteroData | tuple[FeatureStore, GraphStore]
"""Sources that PyG's loaders sample from."""
SEEDS = 2**63 - 1
"""Random seeds of the operator."""


class NeighborSampler(torch_geometric.sampler.NeighborSampler):
    """PyG's ``NeighborSampler`` without pyg-lib and torch-sparse: uniform sampling hop by hop.

    It serves every loader that takes a sampler: ``NodeLoader(data, sampler, ...)`` and
    ``LinkLoader(data, sampler, ...)``, PyG's ``NeighborLoader`` and ``LinkNeighborLoader`` as
    ``neighbor_sampler=``. Draws follow ``torch.manual_seed`` and do not depend on the number of
    threads. Seeds come first among the nodes, and repeated ones stay. Where pyg-lib or torch-sparse
    is installed, PyG's own sampler is there, too.

    Args:
        data: ``Data``, ``HeteroData`` or a pair of feature store and graph store.
        num_neighbors: neighbours of each node, one number a hop, -1 for all of them; of a
            heterogeneous graph also by edge type.
        replace: draw with replacement.
        subgraph_type: ``"directional"`` returns the edges drawn, ``"bidirectional"`` these in both
            directions, ``"induced"`` all edges between the nodes.
        disjoint: give each seed nodes of its own; batches tell them apart by ``batch``.
        is_sorted: ``edge_index`` is sorted by destination.
        share_memory: hold the graph in shared memory, for loaders with workers.
        sample_direction: ``"forward"`` samples sources of edges, ``"backward"`` destinations.

    Raises:
        ValueError: an option has another value, or numbers of hops differ.
    """

    def __init__(
        self,
        data: Graph,
        num_neighbors: NumNeighbors | Sequence[int] | Mapping[EdgeType, Sequence[int]],
        *,
        replace: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        disjoint: bool = False,
        is_sorted: bool = False,
        share_memory: bool = False,
        sample_direction: Literal["forward", "backward"] = "forward",
    ) -> None:
        if sample_direction not in ("forward", "backward"):
            raise ValueError(
                "NeighborSampler: sample_direction must be 'forward' or 'backward', got "
                f"{sample_direction!r}"
            )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Using '.*' without a 'pyg-lib' installation")
            super().__init__(
                data,
                num_neighbors,
                subgraph_type=subgraph_type,
                replace=replace,
                disjoint=disjoint,
                is_sorted=is_sorted,
                share_memory=share_memory,
                sample_direction=sample_direction,
            )
        if self.is_hetero:
            # Stores list node types with features only.
            ends = {kind[side] for kind in self.edge_types for side in (0, -1)}
            for kind in sorted(ends - set(self.num_nodes)):
                self.node_types.append(kind)
                self.num_nodes[kind] = remote_backend_utils.size(*data, kind)

    def _sample(
        self, seed: Tensor | Mapping[NodeType, Tensor], seed_time: Any = None, **_: Any
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Sample for PyG's ``sample_from_nodes`` and ``sample_from_edges``."""
        if seed_time is not None:
            raise NotImplementedError(
                "NeighborSampler: temporal sampling is not supported; use PyG's with pyg-lib"
            )
        node_types: list[Any] = [None]
        edge_types: list[Any] = [None]
        graph: tuple[list[Any], ...]
        if isinstance(seed, Mapping):
            node_types, edge_types = self.node_types, self.edge_types
            names = [self.to_rel_type[kind] for kind in edge_types]
            place = {kind: i for i, kind in enumerate(node_types)}
            none = torch.empty(0, dtype=torch.int64)
            fanouts = self.num_neighbors.get_mapped_values(edge_types)
            graph = (
                [self.colptr_dict[name] for name in names],
                [self.row_dict[name] for name in names],
                [seed.get(kind, none).long() for kind in node_types],
                [self.num_nodes[kind] for kind in node_types],
                [place[kind[0]] for kind in edge_types],
                [place[kind[-1]] for kind in edge_types],
                [fanout for name in names for fanout in fanouts[name]],
            )
        else:
            fanouts = self.num_neighbors.get_mapped_values()
            nodes = len(self.colptr) - 1
            graph = ([self.colptr], [self.row], [seed.long()], [nodes], [0], [0], fanouts)
        is_induced = self.subgraph_type == SubgraphType.induced
        drawn = torch.ops.bitgnn.sample_neighbors(
            *graph, int(torch.randint(SEEDS, ())), self.replace, self.disjoint, is_induced
        )
        node, batch, row, col, edge, num_nodes, num_edges = drawn
        if self.sample_direction == "backward":
            row, col = col, row
            if isinstance(seed, Mapping):
                edge_types = [self.to_restored_edge_type[kind] for kind in edge_types]
        found = {"node": node, "batch": batch, "num_sampled_nodes": num_nodes.tolist()}
        typed = {name: dict(zip(node_types, values, strict=True)) for name, values in found.items()}
        found = {"row": row, "col": col, "edge": edge, "num_sampled_edges": num_edges.tolist()}
        typed |= {
            name: dict(zip(edge_types, values, strict=True)) for name, values in found.items()
        }
        parts: dict[str, Any] = dict(typed)
        if not isinstance(seed, Mapping):
            parts = {name: values[None] for name, values in typed.items()}
        if not self.disjoint:
            parts["batch"] = None
        if is_induced:
            parts["num_sampled_nodes"] = parts["num_sampled_edges"] = None
        return (HeteroSamplerOutput if isinstance(seed, Mapping) else SamplerOutput)(**parts)


class NeighborLoader(torch_geometric.loader.NeighborLoader):
    """PyG's ``NeighborLoader`` without pyg-lib and torch-sparse, called the same way.

    It is an instance of PyG's, as ``BasicGNN.inference(loader)`` asks for. Batches are PyG's: the
    seeds' nodes come first, and ``batch_size``, ``input_id``, ``n_id``, ``e_id``,
    ``num_sampled_nodes`` and ``num_sampled_edges`` are there. Neighbours are drawn
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
        input_time: None, as ``time_attr``; temporal sampling is not supported.
        replace: draw with replacement.
        subgraph_type: ``"directional"``, ``"bidirectional"`` or ``"induced"``.
        disjoint: give each seed nodes of its own.
        temporal_strategy: ``"uniform"``, likewise.
        time_attr: None.
        weight_attr: None; weighted sampling is not supported.
        transform: applied to each batch.
        transform_sampler_output: applied to what the sampler found.
        is_sorted: ``edge_index`` is sorted by destination.
        filter_per_worker: gather features in the workers; None decides by where they are.
        neighbor_sampler: one made before, in place of what the options above say.
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
        neighbor_sampler: torch_geometric.sampler.NeighborSampler | None = None,
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
        if "directed" in options:  # PyG's own, deprecated, would be taken and left unread
            raise TypeError(
                "NeighborLoader: got an unexpected keyword argument 'directed'; use subgraph_type"
            )
        if neighbor_sampler is None:
            neighbor_sampler = NeighborSampler(
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
            num_neighbors,
            input_nodes=input_nodes,
            neighbor_sampler=neighbor_sampler,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            **options,
        )
