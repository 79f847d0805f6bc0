"""Traces a model's forward with torch.fx, and tells features, graph and other arguments apart."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch_geometric.nn
from torch import fx, nn
from torch_geometric.nn import HeteroConv, MessagePassing

from bitgnn.convert.network.tracer import NotTraced, obstacle, stays_whole, traced_graph
from bitgnn.inference.frozen_hetero import Types
from bitgnn.inference.own_call import Argument, Missing, Role
from bitgnn.inference.own_code.calls import EDGE_INDEX, EDGE_WEIGHT
from bitgnn.nn import RGCNConv
from bitgnn.nn.gine_conv import sums_beside_edges
from bitgnn.nn.propagation.reductions import aggregate, propagation_graph

# What a forward may call its graph; other optional arguments keep their defaults.
FORWARD_ARGUMENTS = ("x", EDGE_INDEX, EDGE_WEIGHT)
EDGE_TYPE = "edge_type"
BATCH = "batch"
WRAPPED = "model"
MOST_INPUTS = 4
_TENSORS = (BATCH, "edge_attr")
"""Optional arguments that are tensors wherever PyG has them."""
_GRAPHS = (EDGE_INDEX, "adj_t")
_GRAPH_ROLES: tuple[Role, Role] = ("edge_index", "edge_weight")
_OF_DATA = ("x", *_GRAPHS, EDGE_WEIGHT, "edge_attr", BATCH, "pos", "num_nodes", "num_graphs")
"""Attributes that tell a ``Data`` object from a tensor."""
_OVER_GRAPHS = {
    inspect.unwrap(aggregate): "graph",
    inspect.unwrap(propagation_graph): EDGE_INDEX,
    inspect.unwrap(sums_beside_edges): EDGE_INDEX,
}
"""Functions of this package, and what their graph is called."""
_MAY_LACK = {EDGE_WEIGHT, "edge_attr", BATCH, "pos", "y"}
"""Attributes that are None where a ``Data`` object lacks them, as in the trained forward."""


@dataclass
class Traced:
    """A traced forward.

    Attributes:
        root: module whose submodules the graph names.
        prefix: what to leave out of those names.
        optional: what a call without an argument means, for those with a default in the graph.
        fixed: arguments that kept their defaults, and how those are written.
        obstacles: modules that run as their own code, and where and why no trace goes into them.
        types: of nodes and edges, each of them an argument of the graph; None without types.
    """

    graph: fx.Graph
    root: nn.Module
    prefix: str
    optional: dict[str, Missing]
    fixed: dict[str, str]
    obstacles: dict[str, str]
    types: Types | None = None

    def name_of(self, target: str) -> str:
        """The name of a submodule in the user's model."""
        if self.prefix and f"{target}." == self.prefix:
            return type(self.root.get_submodule(target)).__name__
        return target.removeprefix(self.prefix)


def trace_model(model: nn.Module) -> Traced:
    """Trace a model in evaluation; its mode is left as it was.

    Optional arguments stay arguments where that makes no difference to the trace but their place
    in it, ``edge_weight`` and ``batch`` wherever they can; others keep their defaults.

    Raises:
        NotTraced: the forward cannot be traced; the message says what stands in the way.
    """
    if not has_forward(model):
        reason = f"{type(model).__name__} has no forward"
        raise NotTraced(f"freeze: {reason} that could be traced", reason)
    root, prefix = _spelled_out(model)
    parameters = inspect.signature(root.forward).parameters.values()
    optional = {p.name: p.default for p in parameters if p.default is not p.empty}
    with evaluating(model):
        fixed = {name: value for name, value in optional.items() if name not in FORWARD_ARGUMENTS}
        try:
            graph, obstacles = traced_graph(root, fixed)
        except Exception as first:
            fixed = optional  # a forward that decides by the presence of edge weights
            try:
                graph, obstacles = traced_graph(root, fixed)
            except Exception:
                kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
                unnamed = [str(p).split(":")[0] for p in parameters if p.kind in kinds]
                reason = f"it takes {' and '.join(unnamed)}" if unnamed else obstacle(first)
                raise NotTraced(
                    f"freeze: the forward of {type(model).__name__} cannot be traced by "
                    f"torch.fx, {reason}",
                    reason,
                ) from first
        missing: dict[str, Missing] = {name: "none" for name in optional if name not in fixed}
        if EDGE_WEIGHT in missing and not _same_layers(root, fixed, graph):
            missing[EDGE_WEIGHT] = "decided"
        for name in [name for name, value in fixed.items() if value is None]:
            rest = {other: value for other, value in fixed.items() if other != name}
            try:
                tried, its_obstacles = traced_graph(root, rest)
            except Exception:
                continue
            is_same = _form(tried, name) == _form(graph, name)
            is_read = any(n.target == name and n.users for n in tried.find_nodes(op="placeholder"))
            if is_same and name not in _TENSORS and not is_read:
                continue  # it may be asked for its type alone, which no trace shows
            if is_same or name == BATCH:
                graph, obstacles, fixed = tried, its_obstacles, rest
                missing[name] = "none" if is_same else "zeros"
    written = {name: repr(value) for name, value in fixed.items()}
    return Traced(graph, root, prefix, missing, written, obstacles)


def _form(graph: fx.Graph, argument: str) -> list[str]:
    """Trace as if one argument were None."""
    names: dict[fx.Node, str | None] = {}
    found: list[str] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            names[node] = None if node.target == argument else f"%{node.target}"
        elif not is_default_check(node):
            names[node] = f"%{len(found)}"
            arguments = fx.node.map_arg((node.args, node.kwargs), names.get)
            found.append(f"{node.op} {node.target} {arguments}")
    return found


def _same_layers(root: nn.Module, fixed: Mapping[str, Any], graph: fx.Graph) -> bool:
    """True if a forward runs the same layers without edge weights."""
    try:
        without = traced_graph(root, {**fixed, EDGE_WEIGHT: None})[0]
    except Exception:
        return True  # it has one form alone
    used = [[node.target for node in g.nodes if node.op == "call_module"] for g in (graph, without)]
    return used[0] == used[1]


def has_forward(model: nn.Module) -> bool:
    """True if a model's class, or a patch of the instance, defines its forward."""
    unset = nn.Module.forward
    return getattr(type(model), "forward", unset) is not unset or "forward" in vars(model)


def is_default_check(node: fx.Node) -> bool:
    """True if fx only checks here that an optional argument keeps its default."""
    checks = ("_assert_is_none", "_assert")
    return node.op == "call_function" and getattr(node.target, "__name__", "") in checks


def _spelled_out(model: nn.Module) -> tuple[nn.Module, str]:
    """The model, or a wrapper that names the arguments of its forward."""
    names: Sequence[str] = FORWARD_ARGUMENTS
    if isinstance(model, torch_geometric.nn.Sequential):
        names = list(model.signature.param_dict)
        count = len(names)
    elif stays_whole(model):
        parameters = inspect.signature(model.forward).parameters
        if EDGE_TYPE in parameters:
            names = (*FORWARD_ARGUMENTS[:2], EDGE_TYPE)
        count = sum(name in names for name in parameters) or 1
    else:
        return model, ""
    if not 1 <= count <= MOST_INPUTS:
        raise NotTraced(
            f"freeze: {type(model).__name__} takes {count} inputs, of which a trace can name "
            f"{MOST_INPUTS} at most"
        )
    given = ", ".join(names[:count])
    default = "=None" if given == ", ".join(FORWARD_ARGUMENTS) else ""
    scope: dict[str, Any] = {}
    exec(f"def forward(self, {given}{default}): return self.{WRAPPED}({given})", scope)
    wrapper = type("_Wrapper", (nn.Module,), {"forward": scope["forward"]})()
    wrapper.add_module(WRAPPED, model)
    return wrapper, f"{WRAPPED}."


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put every module into evaluation, and back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


class Arguments:
    """The arguments of a traced forward and the attributes it reads of a ``Data`` object.

    Attributes:
        arguments: in order, with their roles.
        features: name of the features.
        parts: by node, the name of the features or of a part of the call.
        read: nodes that stand for a ``Data`` object, which nothing but its attributes is read of.
    """

    def __init__(self, traced: Traced) -> None:
        self._traced = traced
        self.read: set[fx.Node] = set()
        self._names: dict[fx.Node, str] = {}
        in_data: set[str] = set()
        for node in traced.graph.find_nodes(op="placeholder"):
            in_data |= self._placeholder(node)
        used = dict.fromkeys(name for node, name in self._names.items() if _users(node))
        roles = self._graph_roles(used)
        free = [name for name in used if name not in roles]
        others = (name for name in free if name != BATCH)
        self.features = "x" if "x" in free else next(others, None)
        if self.features is not None:
            roles[self.features] = "features"
        arguments = [
            Argument(
                name,
                roles.get(name, "input" if name in used else "unused"),
                "none" if name in in_data & _MAY_LACK else traced.optional.get(name, "refuse"),
                name in in_data,
            )
            for name in dict.fromkeys(self._names.values())
            if name not in traced.fixed
        ]
        arguments += [
            Argument(name, "fixed", "none", False, default)
            for name, default in traced.fixed.items()
        ]
        places = list(inspect.signature(traced.root.forward).parameters)
        first = ("features", *_GRAPH_ROLES)

        def place(argument: Argument) -> tuple[int, int]:
            """Sort key: order of the forward; attributes of a ``Data`` object, graph first."""
            role = argument.role
            if argument.in_data:
                return -1, first.index(role) if role in first else len(first)
            return 0, places.index(argument.name)

        self.arguments = sorted(arguments, key=place)
        self.parts = {
            node: roles[name] if roles.get(name) in _GRAPH_ROLES else name
            for node, name in self._names.items()
        }

    def _placeholder(self, node: fx.Node) -> set[str]:
        """Record an argument; return the attributes read of it if it is a ``Data`` object."""
        target, users = str(node.target), _users(node)
        if target.startswith("*"):
            if users:
                raise NotTraced(f"freeze: the forward takes {target}, arguments without names")
            return set()
        if target not in inspect.signature(self._traced.root.forward).parameters:
            return set()  # the place of a default
        attributes = {user: _attribute_of(node, user) for user in users}
        is_data = any(name in _OF_DATA for name in attributes.values())
        if self._is_mapping(node, attributes, is_data):
            raise NotTraced(f"freeze: the forward takes {target!r}, or a part of it, by type")
        if not is_data:
            self._names[node] = target
            return set()
        if None in attributes.values():
            raise NotTraced(f"freeze: the forward hands {target!r}, a Data object, on as a whole")
        self.read.add(node)
        names = {user: str(name) for user, name in attributes.items()}
        self._names.update(names)
        return set(names.values())

    def _is_mapping(
        self, node: fx.Node, attributes: Mapping[fx.Node, str | None], is_data: bool
    ) -> bool:
        """True if an argument, or an attribute of it, holds tensors by node or edge type."""
        # PyG's names of such mappings end so.
        if any(
            name.endswith("_dict")
            for name in (str(node.target), *filter(None, attributes.values()))
        ):
            return True
        for user in attributes:
            if user.op == "call_module":
                module = self._traced.root.get_submodule(str(user.target))
                given = bound(module, user.args, user.kwargs)
                names = [name for name, value in given.items() if value is node]
                if isinstance(module, HeteroConv) or any(n.endswith("_dict") for n in names):
                    return True
        keys = (user.target is operator.getitem and name for user, name in attributes.items())
        return not is_data and any(keys)

    def _graph_roles(self, used: Mapping[str, None]) -> dict[str, Role]:
        """Arguments that layers and functions take as edge index or edge weights."""
        found: dict[str, Role] = {}
        for name in self._names.values():
            if name in (*_GRAPHS, EDGE_WEIGHT):
                found[name] = "edge_weight" if name == EDGE_WEIGHT else "edge_index"
        for node in self._traced.graph.find_nodes(op="call_module"):
            module = self._traced.root.get_submodule(str(node.target))
            if isinstance(module, MessagePassing):
                arguments = bound(module, node.args, node.kwargs)
                for role in _GRAPH_ROLES:
                    given = arguments.get(role)
                    if isinstance(module, RGCNConv) and role == EDGE_WEIGHT:
                        given = arguments.get(EDGE_TYPE)  # numbers beside the edges, too
                    if isinstance(given, fx.Node) and given in self._names:
                        found[self._names[given]] = role
        for node in self._traced.graph.nodes:
            if node.op != "call_function":
                continue
            for role, given in zip(_GRAPH_ROLES, _graph_of(node), strict=True):
                if isinstance(given, fx.Node) and given in self._names:
                    found[self._names[given]] = role
        for role, what in zip(_GRAPH_ROLES, ("graph", "set of edge weights"), strict=True):
            names = sorted(name for name in found if found[name] == role and name in used)
            if len(names) > 1:
                raise NotTraced(f"freeze: the forward takes more than one {what}, {names}")
            for name in [n for n in found if found[n] == role and names and n not in names]:
                del found[name]
        return found


def bound(module: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments of a module's forward by name."""
    try:
        return dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)
    except TypeError:
        return {}


def _graph_of(node: fx.Node) -> tuple[Any, Any]:
    """The edge index and the edge weights that a function of this package takes."""
    function: Any = node.target
    name = _OVER_GRAPHS.get(function)
    if name is None:
        return None, None
    try:
        given = inspect.signature(function).bind(*node.args, **node.kwargs).arguments
    except TypeError:
        return None, None
    return given.get(name), given.get(EDGE_WEIGHT)


def _users(node: fx.Node) -> list[fx.Node]:
    return [user for user in node.users if not is_default_check(user)]


def _attribute_of(node: fx.Node, user: fx.Node) -> str | None:
    """The attribute that a node reads of another one, ``data.x`` or ``data["x"]``."""
    if user.op != "call_function" or user.target not in (getattr, operator.getitem):
        return None
    owner, name = user.args[:2]
    return name if owner is node and isinstance(name, str) else None
