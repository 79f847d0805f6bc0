"""FrozenLayers: the user's own forward with each binary layer packed by itself."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_sparse, to_edge_index

from bitgnn.inference.frozen import FreezeReport, OwnForward, under_all_names
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.graph_memory import GraphMemory

__all__ = ["FrozenLayer", "FrozenLayers", "copy_with", "joined_features", "joined_graph"]

PAIR = 2


class FrozenLayer(nn.Module):
    """A layer, or a part of a model, in its frozen form and in its place.

    A frozen model has one set of nodes. Of a bipartite graph both sets together are one: rows of
    bits, their sums and means do not depend on the nodes beside them.

    Args:
        frozen: what it computes.
        layer: the trained one, whose widths it tells.
    """

    _joined: GraphMemory | None = None

    def __init__(self, frozen: FrozenModel, layer: nn.Module) -> None:
        super().__init__()
        self.frozen = frozen
        for name in ("in_channels", "out_channels"):
            if hasattr(layer, name):
                setattr(self, name, getattr(layer, name))
        self.takes_pairs = isinstance(layer, MessagePassing) and all(
            spec.kind == "neighbours" and spec.flow == "source_to_target" for spec in frozen.graphs
        )
        self.reads_destinations = bool(getattr(layer, "root_weight", True))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_joined"}

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """What the trained layer returns.

        Raises:
            TypeError: ``x`` is a pair, and the graph neither an edge index nor a sparse tensor.
            ValueError: ``x`` is a pair of two sets of nodes, and one of them is missing, or this
                is no layer whose messages follow the edges of a bipartite graph.
        """
        if not isinstance(x, tuple | list):
            return self.frozen(x, *args, **kwargs)
        if len(x) == PAIR and x[0] is x[1]:
            return self.frozen(x[0], *args, **kwargs)
        if len(x) != PAIR or not self.takes_pairs or any(side is None for side in x):
            raise ValueError(
                "FrozenLayer: x must be a tensor, or a pair of those of sources and destinations "
                "for a layer whose messages follow the edges"
            )
        edges, *args = args or (kwargs.pop("edge_index"),)  # type: ignore[assignment]
        sources, destinations = x
        joined = joined_features(sources, destinations, self.reads_destinations)
        graph = self._joined_graph(edges, sources, destinations)
        return self.frozen(joined, graph, *args, **kwargs)[len(sources) :]

    def _joined_graph(self, edges: Any, sources: Tensor, destinations: Tensor) -> Any:
        """The graph of both sets, the same tensor for as long as the edges are."""
        sizes = sources.size(0), destinations.size(0)
        if not GraphMemory.keeps(edges, None):
            return joined_graph(edges, *sizes)
        found = None if self._joined is None else self._joined.graph_of(edges, None, sizes[0])
        if found is None:
            found = joined_graph(edges, *sizes)
            self._joined = GraphMemory(edges, None, sizes[0], found)
        return found


class FrozenLayers(OwnForward):
    """Inference form of a model whose forward no trace can follow.

    The forward is the user's own, on a copy of the model in which each binary layer is a
    :class:`FrozenModel` of its own: weights are packed, activations are floats between layers.

    Args:
        model: with frozen layers.
        report: letters of the packed layers; why the forward runs as it is.
    """

    kind = "layers"

    @property
    def layers(self) -> dict[str, FrozenLayer]:
        """The packed layers by name."""
        found = self.model.named_modules()
        return {name: module for name, module in found if isinstance(module, FrozenLayer)}

    def description(self) -> dict[str, Any]:
        """Everything but the tensors and the user's code: what a checkpoint's JSON holds.

        Raises:
            Unsavable: a packed part runs code of the user's own.
        """
        layers = {name: layer.frozen.description() for name, layer in self.layers.items()}
        report, shared = self.report.description(), self.saved_tensors()[1]
        return {"layers": layers, "shared": shared, "report": report}

    @classmethod
    def from_description(
        cls, description: Mapping[str, Any], tensors: Mapping[str, Tensor], model: nn.Module
    ) -> FrozenLayers:
        """The inverse of :meth:`description` and :meth:`saved_tensors`.

        Args:
            description: plain values.
            tensors: by name.
            model: of the same architecture, trained or not; it stays as it is.

        Raises:
            AttributeError: the model has no layer of a name.
            KeyError: an entry is missing.
            ValueError: an entry is wrong, or a tensor is missing or left over.
        """
        replaced: dict[str, nn.Module] = {}
        tensors = under_all_names(tensors, description["shared"])
        for name, entry in description["layers"].items():
            prefix = f"{name}.frozen."
            own = {
                key.removeprefix(prefix): tensor
                for key, tensor in tensors.items()
                if key.startswith(prefix)
            }
            frozen = FrozenModel.from_description(entry, own)
            replaced[name] = FrozenLayer(frozen, model.get_submodule(name))
        made = copy_with(model, replaced)
        try:
            made.load_state_dict(dict(tensors), assign=False)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        return cls(made, FreezeReport.from_description(description["report"]))


def copy_with(model: nn.Module, replaced: Mapping[str, nn.Module]) -> nn.Module:
    """A copy of a model with other modules in the places of some, which are not copied.

    Args:
        model: unchanged.
        replaced: by name.
    """
    memo: dict[int, Any] = {id(model.get_submodule(name)): new for name, new in replaced.items()}
    # Results that a model keeps of its last training step cannot be copied with their history.
    for module in model.modules():
        for value in vars(module).values():
            for part in value if isinstance(value, tuple | list) else (value,):
                if isinstance(part, Tensor) and part.grad_fn is not None:
                    memo[id(part)] = part.detach()
    return copy.deepcopy(model, memo)


def joined_features(sources: Tensor, destinations: Tensor, reads_destinations: bool) -> Tensor:
    """Features ``[N + M, K]`` of both sets.

    Args:
        sources: ``[N, K]``.
        destinations: ``[M, K]``, of any width where the layer reads none of them.
        reads_destinations: whether it does.
    """
    if not reads_destinations:
        destinations = sources.new_zeros(destinations.size(0), sources.size(1))
    return torch.cat([sources, destinations])


def joined_graph(edges: Any, num_sources: int, num_destinations: int) -> Any:
    """The graph in the same form, with destinations counted from ``num_sources`` on.

    Args:
        edges: ``[2, E]`` edge index, sources first, or sparse adjacency ``[M, N]``, destinations
            first.
        num_sources: N.
        num_destinations: M.

    Raises:
        TypeError: the graph has another form.
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
