"""FrozenLayer: a packed layer in its place, in a model that runs the user's own forward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_sparse, to_edge_index

from bitgnn.bits.tensor_version import TensorMemory
from bitgnn.inference.descriptions import FORWARD, describe, read
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.own_code.structure import FORMS, Form, inside

PAIR = 2


class FrozenLayer(nn.Module):
    """A layer, or a part of a model, in its frozen form and in its place.

    A frozen model has one set of nodes. Of a bipartite graph both sets together are one: rows of
    bits, their sums and means do not depend on the nodes beside them. ``sources_alone`` is the
    layer without its map of the destinations, for pairs that lack their features.
    """

    frozen: FrozenModel
    sources_alone: FrozenModel | None

    def __init__(
        self, frozen: FrozenModel, layer: nn.Module, sources_alone: FrozenModel | None = None
    ) -> None:
        super().__init__()
        self.frozen = frozen
        self.sources_alone = sources_alone
        if sources_alone is not None:
            _share(frozen, sources_alone)
        self._joined = TensorMemory()
        for name in ("in_channels", "out_channels"):
            if hasattr(layer, name):
                setattr(self, name, getattr(layer, name))
        self.takes_pairs = isinstance(layer, MessagePassing) and all(
            spec.kind == "neighbours" and spec.flow == FORWARD for spec in frozen.graphs
        )
        self.reads_destinations = bool(getattr(layer, "root_weight", True))

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the trained layer's result; ``x`` may be a pair of sources and destinations."""
        if not isinstance(x, tuple | list):
            return self.frozen(x, *args, **kwargs)
        if len(x) == PAIR and x[0] is x[1]:
            return self.frozen(x[0], *args, **kwargs)
        if len(x) == PAIR and x[0] is not None and x[1] is None:
            return self._of_sources(x[0], *args, **kwargs)
        if len(x) != PAIR or not self.takes_pairs or any(side is None for side in x):
            raise ValueError(
                "FrozenLayer: x must be a tensor, or a pair of those of sources and destinations "
                "for a layer whose messages follow the edges"
            )
        edges, *args = args or (kwargs.pop("edge_index"),)  # type: ignore[assignment]
        sources, destinations = x
        sizes = sources.size(0), destinations.size(0)
        # The same tensor for as long as the edges are.
        graph = self._joined.get((edges,), sizes, lambda: _joined_graph_of(edges, *sizes))
        if not self.reads_destinations:  # of any width then
            destinations = sources.new_zeros(destinations.size(0), sources.size(1))
        joined = torch.cat([sources, destinations])
        return self.frozen(joined, graph, *args, **kwargs)[len(sources) :]

    def _of_sources(self, sources: Tensor, *args: Any, size: Any = None, **kwargs: Any) -> Any:
        """The layer on a pair of sources and None: as many destinations as PyG takes it to have."""
        alone = self.sources_alone
        frozen = self.frozen if alone is None or not self.reads_destinations else alone
        count = sources.size(0) if size is None or size[1] is None else int(size[1])
        missing = max(0, count - sources.size(0))
        padded = functional.pad(sources, (0, 0, 0, missing)) if missing else sources
        return frozen(padded, *args, **kwargs)[:count]


def _share(frozen: FrozenModel, other: FrozenModel) -> None:
    """Let a model have the tensors that are the same in another one."""
    held = list(frozen.named_buffers())
    for name, tensor in list(other.named_buffers()):
        same = (t for _, t in held if t.dtype == tensor.dtype and t.equal(tensor))
        owner, _, last = name.rpartition(".")
        setattr(other.get_submodule(owner), last, next(same, tensor))


def _describe(layer: FrozenLayer) -> dict[str, Any]:
    plain = {name: getattr(layer, name) for name in _PLAIN if hasattr(layer, name)}
    found = layer.named_children()
    parts = {name: describe(part) for name, part in found if isinstance(part, FrozenModel)}
    return {**parts, **plain}


def _read(description: Any, state: Mapping[str, Tensor]) -> FrozenLayer:
    parts = {
        name: read(description[name], inside(state, f"{name}."))
        for name in ("frozen", "sources_alone")
        if name in description
    }
    made = FrozenLayer(parts["frozen"], nn.Identity(), parts.get("sources_alone"))
    for name in _PLAIN:
        if name in description:
            setattr(made, name, description[name])
    return made


_PLAIN = ("in_channels", "out_channels", "takes_pairs", "reads_destinations")
FORMS["packed"] = Form(FrozenLayer, _describe, _read)


def _joined_graph_of(edges: Any, num_sources: int, num_destinations: int) -> Any:
    """The graph in the same form, with destinations counted from ``num_sources`` on.

    Edge indices have the sources first, sparse adjacencies ``[M, N]`` the destinations.
    """
    size = num_sources + num_destinations
    if isinstance(edges, SparseTensor):
        row, col, value = edges.coo()
        return SparseTensor(
            row=row + num_sources, col=col, value=value, sparse_sizes=(size, size), is_sorted=True
        )
    if not isinstance(edges, Tensor):
        raise TypeError(
            "FrozenLayer: edge_index must be an edge index or a sparse tensor where x is a pair, "
            f"got {type(edges).__name__}"
        )
    if is_sparse(edges):
        (row, col), value = to_edge_index(edges)
        order = row.argsort(stable=True)
        indices = torch.stack([row + num_sources, col])[:, order]
        # Edges that occur twice count twice, so that nothing may coalesce them.
        return torch.sparse_coo_tensor(indices, value[order], (size, size), is_coalesced=True)
    plain = edges.as_subclass(Tensor)
    return torch.stack([plain[0], plain[1] + num_sources])
