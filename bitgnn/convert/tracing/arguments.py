"""Roles of a traced forward's arguments: features, graph, edge weights, further inputs."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Mapping
from typing import Any

from torch import fx, nn
from torch_geometric.nn import HeteroConv, MessagePassing

from bitgnn.convert.tracing.trace import BATCH, Traced, is_default_check
from bitgnn.convert.tracing.tracer import NotTraced
from bitgnn.inference.own_call import Argument, Role
from bitgnn.inference.steps.calls import EDGE_INDEX, EDGE_WEIGHT

GRAPHS = (EDGE_INDEX, "adj_t")
_GRAPH_ROLES: tuple[Role, Role] = ("edge_index", "edge_weight")
OF_DATA = ("x", *GRAPHS, EDGE_WEIGHT, "edge_attr", BATCH, "pos", "num_nodes", "num_graphs")
"""Attributes that tell a ``Data`` object from a tensor."""
MAPPING = "_dict"
"""Endings of PyG's names of mappings by type of nodes or edges."""
MAY_LACK = {EDGE_WEIGHT, "edge_attr", BATCH, "pos", "y"}
"""Attributes that are None where a ``Data`` object lacks them, as in the trained forward."""


class Part:
    """The graph, its weights, or a further input, as a part of a call."""

    def __init__(self, part: str) -> None:
        self.part = part


class Arguments:
    """The arguments of a traced forward and the attributes it reads of a ``Data`` object.

    Attributes:
        arguments: in order, with their roles.
        features: name of the features.
        parts: what each node of the trace that is an argument stands for: the name of the
            features or of a part of the call.
        read: nodes that stand for a ``Data`` object, which nothing but its attributes is read of.

    Raises:
        NotTraced: there are no features, more than one graph, or arguments without a name.
    """

    def __init__(self, traced: Traced) -> None:
        self._traced = traced
        self.read: set[fx.Node] = set()
        self._names: dict[fx.Node, str] = {}
        self._in_data: set[str] = set()
        for node in traced.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node)
        self.features = self._find_features(roles := self._graph_roles())
        if self.features is not None:
            roles[self.features] = "features"
        used = {name for node, name in self._names.items() if _users(node)}
        self.arguments = [
            Argument(
                name,
                roles.get(name, "input") if name in used or name in roles else "unused",
                "none" if name in self._in_data & MAY_LACK else traced.optional.get(name, "refuse"),
                name in self._in_data,
            )
            for name in dict.fromkeys(self._names.values())
            if name not in traced.fixed
        ]
        self.arguments += [
            Argument(name, "fixed", "none", False, default)
            for name, default in traced.fixed.items()
        ]
        self.arguments = self._in_order()
        self.parts = {
            node: name if name == self.features else _part(name, roles)
            for node, name in self._names.items()
        }

    def _placeholder(self, node: fx.Node) -> None:
        target = str(node.target)
        users = _users(node)
        if target.startswith("*"):
            if users:
                raise NotTraced(f"freeze: the forward takes {target}, arguments without names")
            return
        if target not in inspect.signature(self._traced.root.forward).parameters:
            return  # the place of a default
        attributes = {user: _attribute_of(node, user) for user in users}
        is_data = any(name in OF_DATA for name in attributes.values())
        if self._is_mapping(target, attributes, is_data):
            raise NotTraced(f"freeze: the forward takes {target!r}, or a part of it, by type")
        if not is_data:
            self._names[node] = target
            return
        if None in attributes.values():
            raise NotTraced(f"freeze: the forward hands {target!r}, a Data object, on as a whole")
        self.read.add(node)
        for user, name in attributes.items():
            self._names[user] = str(name)
            self._in_data.add(str(name))

    def _is_mapping(
        self, target: str, attributes: Mapping[fx.Node, str | None], is_data: bool
    ) -> bool:
        """Whether an argument, or an attribute of it, holds tensors by type of nodes or edges."""
        names = (target, *filter(None, attributes.values()))
        if any(name.endswith(MAPPING) for name in names):
            return True
        modules = (str(user.target) for user in attributes if user.op == "call_module")
        if any(isinstance(self._traced.root.get_submodule(m), HeteroConv) for m in modules):
            return True
        keys = (user.target is operator.getitem and name for user, name in attributes.items())
        return not is_data and any(keys)

    def _graph_roles(self) -> dict[str, Role]:
        """Arguments that layers take as edge index or edge weights."""
        found: dict[str, Role] = {}
        for name in self._names.values():
            if name in (*GRAPHS, EDGE_WEIGHT):
                found[name] = "edge_weight" if name == EDGE_WEIGHT else "edge_index"
        for node in self._traced.graph.nodes:
            if node.op != "call_module":
                continue
            module = self._traced.root.get_submodule(str(node.target))
            if not isinstance(module, MessagePassing):
                continue
            arguments = bound(module, node.args, node.kwargs)
            for role in _GRAPH_ROLES:
                given = arguments.get(role)
                if isinstance(given, fx.Node) and given in self._names:
                    found[self._names[given]] = role
        used = {name for node, name in self._names.items() if _users(node)}
        for role, what in zip(_GRAPH_ROLES, ("graph", "set of edge weights"), strict=True):
            names = sorted(name for name in found if found[name] == role and name in used)
            if len(names) > 1:
                raise NotTraced(f"freeze: the forward takes more than one {what}, {names}")
            for name in [n for n in found if found[n] == role and names and n not in names]:
                del found[name]
        return found

    def _find_features(self, roles: dict[str, Role]) -> str | None:
        used = [name for node, name in self._names.items() if _users(node) and name not in roles]
        if "x" in used:
            return "x"
        return next((name for name in dict.fromkeys(used) if name != BATCH), None)

    def _in_order(self) -> list[Argument]:
        """As the forward takes them; attributes of a ``Data`` object with the graph first."""
        places = list(inspect.signature(self._traced.root.forward).parameters)
        first = ("features", EDGE_INDEX, EDGE_WEIGHT)

        def place(argument: Argument) -> tuple[int, int]:
            if argument.in_data:
                role = argument.role
                return -1, first.index(role) if role in first else len(first)
            return 0, places.index(argument.name)

        return sorted(self.arguments, key=place)


def bound(module: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments of a module's forward by name."""
    try:
        return dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)
    except TypeError:
        return {}


def _part(name: str, roles: dict[str, Role]) -> str:
    """What the parts of a call name an argument."""
    role = roles.get(name)
    return role if role in (EDGE_INDEX, EDGE_WEIGHT) else name


def _users(node: fx.Node) -> list[fx.Node]:
    return [user for user in node.users if not is_default_check(user)]


def _attribute_of(node: fx.Node, user: fx.Node) -> str | None:
    """The attribute that a node reads of another one, ``data.x`` or ``data["x"]``."""
    if user.op != "call_function" or user.target not in (getattr, operator.getitem):
        return None
    owner, name = user.args[:2]
    return name if owner is node and isinstance(name, str) else None
