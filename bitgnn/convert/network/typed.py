"""Traces forwards that take tensors by types of nodes and edges: each type is an input."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn
from torch_geometric.nn import HeteroConv

from bitgnn.convert.network.trace import WRAPPED, Traced, evaluating
from bitgnn.convert.network.tracer import NotTraced, obstacle, traced_graph
from bitgnn.inference.frozen_hetero import EdgeType, Types

MOST_TYPES = 1000
"""Types that a forward may ask for."""


class _NewType(BaseException):
    """The forward asks for a type that no trace has had; no code of the user's handles it."""


class _ByType(dict[Any, Any]):
    """A mapping that a forward is given: it takes note of keys that it lacks."""

    def __init__(self, held: dict[Any, Any], keys: list[Any], kind: type) -> None:
        super().__init__(held)
        self._keys, self._kind = keys, kind

    def __missing__(self, key: Any) -> Any:
        if not isinstance(key, self._kind):
            raise TypeError(f"it asks for {key!r}, which is no type of nodes or edges")
        self._keys.append(key)
        raise _NewType

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, which becomes one of the types."""
        return self[key]


def trace_typed(model: nn.Module) -> Traced:
    """Trace a forward of two mappings, features by node type and graphs by edge type.

    The types are those of the model's ``HeteroConv``, and those that the forward asks for.

    Raises:
        NotTraced: the forward takes something else, or cannot be traced.
    """
    parameters = inspect.signature(model.forward).parameters.values()
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.default is p.empty]
    if len(names) != 2 or any(p.kind not in plain for p in parameters):
        raise NotTraced("freeze: the forward takes something else than features and graphs by type")
    edges: list[EdgeType] = []
    for module in model.modules():
        if isinstance(module, HeteroConv):
            edges += [key for key in module.convs.keys() if key not in edges]  # noqa: SIM118
    nodes = list(dict.fromkeys(end for edge in edges for end in (edge[0], edge[-1])))
    with evaluating(model):
        for _ in range(MOST_TYPES):
            root = _spread(model, nodes, edges, names)
            try:
                graph, obstacles = traced_graph(root, {})
            except _NewType:
                continue
            except Exception as error:
                raise NotTraced(f"freeze: {obstacle(error)}") from error
            if not (nodes and edges):
                break
            types = Types(tuple(nodes), tuple(edges), (names[0], names[1]))
            return Traced(graph, root, f"{WRAPPED}.", {}, {}, obstacles, types)
    raise NotTraced("freeze: the forward asks for no types of nodes and edges")


def _spread(model: nn.Module, nodes: list[Any], edges: list[Any], names: list[str]) -> nn.Module:
    """A wrapper whose forward takes one argument for each type."""
    given = [f"nodes{n}" for n in range(len(nodes))], [f"edges{n}" for n in range(len(edges))]
    scope: dict[str, Any] = {
        "by_node": lambda *held: _ByType(dict(zip(nodes, held, strict=True)), nodes, str),
        "by_edge": lambda *held: _ByType(dict(zip(edges, held, strict=True)), edges, tuple),
    }
    first, second = (", ".join(part) for part in given)
    call = f"self.{WRAPPED}({names[0]}=by_node({first}), {names[1]}=by_edge({second}))"
    arguments = ", ".join(["self", *given[0], *given[1]])
    exec(f"def forward({arguments}): return {call}", scope)
    wrapper = type("_Wrapper", (nn.Module,), {"forward": scope["forward"]})()
    wrapper.add_module(WRAPPED, model)
    return wrapper
