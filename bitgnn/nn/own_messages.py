"""Message passing of a user's own class whose messages are plain, by aggregate()."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation, MinAggregation, SumAggregation

from bitgnn.nn.binary_layer import MESSAGE_HOOKS
from bitgnn.nn.propagation.reductions import Reduce, aggregate

REDUCTIONS: dict[type[nn.Module], Reduce] = {
    SumAggregation: "sum",
    MeanAggregation: "mean",
    MaxAggregation: "max",
    MinAggregation: "min",
}
_PYG = MessagePassing.__module__.partition(".")[0]
_PLAIN = (MessagePassing.aggregate, MessagePassing.update)
_OF_EDGES = {"index", "ptr", "dim_size", "size", "size_i", "size_j", "adj_t", "edge_index"}
"""Arguments of a message that PyG itself gives."""
PROBED_EDGES, PROBED_COLUMNS = 5, 3


class OwnMessages:
    """Mixin before a class whose messages are ``x_j``, or these times a weight of the edge."""

    own_weight: str | None
    """Name of the edges' weights in the message, if they have some."""
    own_class: type[MessagePassing]

    def propagate(self, edge_index: Any, size: Any = None, **kwargs: Any) -> Tensor:
        """Aggregate by :func:`bitgnn.nn.aggregate`; by PyG what that does not take."""
        layer: Any = self
        x: Any = kwargs.get("x")
        if isinstance(x, tuple | list) and len(x) == 2 and x[0] is x[1]:
            x = x[0]
        weight = None if self.own_weight is None else kwargs.get(self.own_weight)
        if _is_plain(x, edge_index, weight) and size is None:
            if not any(getattr(layer, name) for name in MESSAGE_HOOKS):
                return aggregate(x, edge_index, REDUCTIONS[type(layer.aggr_module)], weight)
        elif any(isinstance(part, fx.Proxy) for part in (x, edge_index, weight)):
            raise ValueError("its messages are between two sets of nodes")
        out: Tensor = super().propagate(edge_index, size=size, **kwargs)  # type: ignore[misc]
        return out

    def __reduce_ex__(self, protocol: Any) -> Any:
        """For copies and pickles, which know the class by its own name."""
        return _empty, (self.own_class,), self.__dict__


def _is_plain(x: Any, edges: Any, weight: Any) -> bool:
    if isinstance(x, fx.Proxy):
        return True
    dense = isinstance(edges, Tensor) and edges.layout == torch.strided
    if not dense or not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
        return False
    return weight is None or (weight.dim() == 1 and weight.dtype == x.dtype)


_classes: dict[tuple[Any, str | None], type[Any]] = {}


def _made(kind: Any, weight: str | None) -> type[Any]:
    found = _classes.get((kind, weight))
    if found is not None:
        return found
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    # PyG writes a propagate() into every class without one.
    own = {"propagate": OwnMessages.propagate, "own_weight": weight, "own_class": kind}
    members = {**names, "__doc__": kind.__doc__, **own}
    made = type(kind.__name__, (OwnMessages, kind), members)
    return _classes.setdefault((kind, weight), made)


def _empty(kind: type[MessagePassing]) -> Any:
    # What the message takes is known from the class; a layer was looked at before.
    (weight,) = _weight_names(kind)
    return object.__new__(_made(kind, weight))


def take_messages(layer: nn.Module) -> bool:
    """Let a layer's sums run by :func:`bitgnn.nn.aggregate`, in place; False where it has others.

    The class is the user's own, without ``aggregate``, ``update`` or ``propagate``; its messages
    are ``x_j``, or ``x_j`` times a weight ``[E]``, as two calls on random numbers show; a
    ``message_and_aggregate`` is, as PyG asks, the same on a sparse matrix.
    """
    kind = type(layer)
    if isinstance(layer, OwnMessages):
        return True
    if not isinstance(layer, MessagePassing) or not _is_own(kind) or not _is_usual(layer):
        return False
    names = _weight_names(kind)
    if len(names) != 1 or not _gives_plain_messages(layer, names[0]):
        return False
    layer.__class__ = _made(kind, names[0])
    return True


def _is_own(kind: type[nn.Module]) -> bool:
    """True for classes between a user's and PyG's base, all of them the user's."""
    kinds = [base for base in kind.__mro__ if base not in MessagePassing.__mro__]
    return bool(kinds) and not any(
        base.__module__.partition(".")[0] in (_PYG, "bitgnn") for base in kinds
    )


def _is_usual(layer: Any) -> bool:
    kind = type(layer)
    makes = getattr(kind.propagate, "__module__", "")
    return (
        type(layer.aggr_module) in REDUCTIONS
        and (kind.aggregate, kind.update) == _PLAIN
        and makes not in [base.__module__ for base in kind.__mro__ if base.__module__ != _base()]
        and layer.node_dim in (-2, 0)
        and layer.flow == "source_to_target"
        and layer.decomposed_layers == 1
    )


def _base() -> str:
    return MessagePassing.__module__


def _weight_names(kind: type[MessagePassing]) -> list[str | None]:
    """The name of the weights in a message, None where it has none; empty for other messages."""
    names = list(inspect.signature(kind.message).parameters)[1:]
    others = [name for name in names if name != "x_j"]
    if len(others) == len(names) or any(name.endswith(("_i", "_j")) for name in others):
        return []
    return [None] if not others else [*others] if len(others) == 1 else []


def _gives_plain_messages(layer: Any, weight: str | None) -> bool:
    if weight in _OF_EDGES:
        return False
    generator, training = torch.Generator().manual_seed(0), layer.training
    like = next((p for p in layer.parameters() if p.is_floating_point()), torch.empty(0))
    x = torch.randn(PROBED_EDGES, PROBED_COLUMNS, generator=generator).to(like)
    w = torch.rand(PROBED_EDGES, generator=generator).to(like)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for mode in (True, False):
                layer.training = mode
                given = {} if weight is None else {weight: w}
                expected = x if weight is None else w.view(-1, 1) * x
                found = layer.message(x_j=x.clone(), **given)
                if found.shape != x.shape or not torch.equal(found, expected):
                    return False
    except Exception:  # the user's own code
        return False
    finally:
        layer.training = training
    return True
