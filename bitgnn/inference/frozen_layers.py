"""Frozen models that run the user's own forward, with packed layers in it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_sparse, to_edge_index

from bitgnn.bits.tensor_version import TensorMemory
from bitgnn.inference.bwta.architecture import build, describe, frozen_layers
from bitgnn.inference.frozen import FreezeReport, OwnForward, under_all_names
from bitgnn.inference.frozen_model import FrozenModel

PAIR = 2


class FrozenLayer(nn.Module):
    """A layer, or a part of a model, in its frozen form and in its place.

    A frozen model has one set of nodes. Of a bipartite graph both sets together are one: rows of
    bits, their sums and means do not depend on the nodes beside them.
    """

    def __init__(self, frozen: FrozenModel, layer: nn.Module) -> None:
        super().__init__()
        self.frozen = frozen
        self._joined = TensorMemory()
        for name in ("in_channels", "out_channels"):
            if hasattr(layer, name):
                setattr(self, name, getattr(layer, name))
        self.takes_pairs = isinstance(layer, MessagePassing) and all(
            spec.kind == "neighbours" and spec.flow == "source_to_target" for spec in frozen.graphs
        )
        self.reads_destinations = bool(getattr(layer, "root_weight", True))

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
        graph = self._joined_graph(edges, sources, destinations)
        if not self.reads_destinations:  # of any width then
            destinations = sources.new_zeros(destinations.size(0), sources.size(1))
        joined = torch.cat([sources, destinations])
        return self.frozen(joined, graph, *args, **kwargs)[len(sources) :]

    def _joined_graph(self, edges: Any, sources: Tensor, destinations: Tensor) -> Any:
        """The graph of both sets, the same tensor for as long as the edges are."""
        sizes = sources.size(0), destinations.size(0)
        return self._joined.get((edges,), sizes, lambda: _joined_graph_of(edges, *sizes))


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


class FrozenBWTA(OwnForward):
    """Inference form of a model with BWTA layers: packed weights, one bit each, floats between.

    Moving it to another type of floats rounds what is in floats alone.

    Args:
        model: with packed layers.
        report: letters of the packed layers; layers left in floats.
    """

    kind = "bwta"

    @property
    def packed_nbytes(self) -> int:
        """Bytes of the packed layers."""
        layers = frozen_layers(self.model).values()
        return sum(t.nbytes for layer in layers for t in layer.state_dict().values())

    def description(self) -> dict[str, Any]:
        """Everything but the tensors, as plain values: what a checkpoint's JSON holds."""
        return {
            **describe(self.model),
            "shared": self.saved_tensors()[1],
            "report": self.report.description(),
        }

    @classmethod
    def from_description(
        cls,
        description: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        model: nn.Module | None = None,
    ) -> FrozenBWTA:
        """The inverse of :meth:`description` and :meth:`saved_tensors`.

        Args:
            description: plain values.
            tensors: by name.
            model: of the same architecture, for one of the user's own.

        Raises:
            ImportError: the model needs ``transformers``, which is not installed.
            KeyError: an entry is missing.
            ValueError: an entry is wrong, a tensor missing or left over, or a model is needed.
        """
        state = under_all_names(tensors, description["shared"])
        report = FreezeReport.from_description(description["report"])
        return cls(build(description, state, model), report)


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
