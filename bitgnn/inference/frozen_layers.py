"""Frozen models that run the user's own forward, with packed layers in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_sparse, to_edge_index

from bitgnn.bits.tensor_version import TensorMemory
from bitgnn.inference.bwta.architecture import build, describe, frozen_layers
from bitgnn.inference.frozen import FreezeReport, Frozen, each_once, float_bytes_of, under_all_names
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.steps.structure import FORMS, Form, inside, parts_of, with_parts

if TYPE_CHECKING:
    from typing_extensions import Self

PAIR = 2
FORWARD = "source_to_target"


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
        """What the trained layer returns; ``x`` may be a pair of sources and destinations."""
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
    parts = {name: part.description() for name, part in found if isinstance(part, FrozenModel)}
    return {**parts, **plain}


def _read(description: Any, state: Mapping[str, Tensor]) -> FrozenLayer:
    parts = {
        name: FrozenModel.from_description(description[name], inside(state, f"{name}."))
        for name in ("frozen", "sources_alone")
        if name in description
    }
    made = FrozenLayer(parts["frozen"], nn.Identity(), parts.get("sources_alone"))
    for name in _PLAIN:
        if name in description:
            setattr(made, name, description[name])
    return made


def _completed(entry: Any, layer: nn.Module) -> dict[str, Any]:
    """The plain values of a packed layer from those of its frozen model alone."""
    follows = all(g["kind"] == "neighbours" and g["flow"] == FORWARD for g in entry["graphs"])
    found = {"takes_pairs": isinstance(layer, MessagePassing) and follows}
    found["reads_destinations"] = bool(getattr(layer, "root_weight", True))
    widths = {n: getattr(layer, n) for n in ("in_channels", "out_channels") if hasattr(layer, n)}
    return {"packed": {"frozen": entry, **found, **widths}}


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


class OwnForward(Frozen):
    """Base of frozen models that run the user's own forward with packed layers in it.

    Further methods (such as ``generate``) and attributes of ``model`` are those of the frozen one
    as well, the methods without gradients.
    """

    def __init__(self, model: nn.Module, report: FreezeReport) -> None:
        super().__init__()
        self.model = model
        self.report = report
        self.requires_grad_(False)
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns, without gradients."""
        if torch.compiler.is_compiling():
            return self.model(*args, **kwargs)
        with torch.no_grad():
            return self.model(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Methods and attributes of the model, the methods without gradients."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or name == "model":
                raise
        found = getattr(self.model, name)
        if not callable(found) or isinstance(found, nn.Module | type):
            return found
        return torch.no_grad()(found)

    def saved_tensors(self) -> dict[str, Tensor]:
        """Tensors by name, each once."""
        return each_once(self.model.state_dict())[0]

    def description(self) -> dict[str, Any]:
        """Everything but the tensors and the user's code: what a checkpoint's JSON holds."""
        shared = each_once(self.model.state_dict())[1]
        return {**self._structure(), "shared": shared, "report": self.report.description()}

    def _structure(self) -> dict[str, Any]:
        """What models of this type have beside tensors and report."""
        raise NotImplementedError

    @classmethod
    def from_description(
        cls,
        description: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        model: nn.Module | None = None,
    ) -> Self:
        """The inverse of :meth:`description` and :meth:`saved_tensors`.

        A forward of the user's own needs a model of the same architecture, trained or not; it stays
        as it is. Anything that does not fit raises.
        """
        state = under_all_names(tensors, description["shared"])
        report = FreezeReport.from_description(description["report"])
        return cls(cls._built(description, state, model), report)

    @classmethod
    def _built(
        cls, description: Mapping[str, Any], state: Mapping[str, Tensor], model: Any
    ) -> nn.Module:
        """The model of a description, with its tensors."""
        raise NotImplementedError


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

    def float_bytes(self) -> dict[str, int]:
        """Bytes of what is not packed, by module."""
        found = float_bytes_of(self.model)
        return {name or type(self.model).__name__: size for name, size in found.items()}

    def _structure(self) -> dict[str, Any]:
        return {"layers": parts_of(self.model)}

    @classmethod
    def _built(
        cls, description: Mapping[str, Any], state: Mapping[str, Tensor], model: Any
    ) -> nn.Module:
        # Earlier files have the frozen model alone, and take the rest from the trained layer.
        layers = {
            name: _completed(entry, model.get_submodule(name)) if "program" in entry else entry
            for name, entry in description["layers"].items()
        }
        made = with_parts(model, layers, state)
        try:
            made.load_state_dict(dict(state), assign=False)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        return made


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

    def _structure(self) -> dict[str, Any]:
        return describe(self.model)

    @classmethod
    def _built(
        cls, description: Mapping[str, Any], state: Mapping[str, Tensor], model: Any
    ) -> nn.Module:
        return build(description, state, model)
