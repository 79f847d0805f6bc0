"""Reads a trace into values: which layers, functions and calls make the scores."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch_geometric.nn
from torch import Tensor, fx, nn
from torch_geometric.nn import MessagePassing

from bitgnn.convert.functions import FUNCTIONS, jumping_knowledge
from bitgnn.convert.layers import (
    SUPPORTED,
    Unsupported,
    lower_graph_layer,
    lower_linear,
    with_size,
)
from bitgnn.convert.modules import lower_module
from bitgnn.convert.trace import Traced
from bitgnn.convert.values import Value
from bitgnn.inference.steps.calls import EDGE_INDEX, EDGE_WEIGHT, FloatCall, Input
from bitgnn.nn import LayerPrecision

__all__ = ["Lowering", "Network", "lower_trace", "mapped"]


class _GraphInput:
    """The edge index or the edge weights of the graph."""

    def __init__(self, part: str) -> None:
        self.part = part


class Network:
    """Everything the scores depend on.

    Attributes:
        features: the input.
        scores: the result.
        outputs: what each layer hands on, by module name.
        letters: operator letters of each binary layer, by module name.
        calls: why parts run as the user's own code, by name.
        folded: layers whose linear maps were composed with others, and with which.
        orders: what comes first in layers whose float maps may change places.
    """

    def __init__(self) -> None:
        self.features: Value | None = None
        self.scores: Value | None = None
        self.outputs: dict[str, Value] = {}
        self.letters: dict[str, str] = {}
        self.calls: dict[str, str] = {}
        self.folded: dict[str, str] = {}
        self.orders: dict[str, str] = {}


def lower_trace(traced: Traced, plan: Mapping[int, LayerPrecision]) -> Network:
    """Values of a traced forward.

    Args:
        traced: the trace.
        plan: precisions in place of the layers' own, by ``id`` of the layer.

    Raises:
        ValueError: something in it cannot be part of a frozen model; the message names it.
    """
    return Lowering(traced, plan).run()


class Lowering:
    """Goes through a trace node by node."""

    def __init__(self, traced: Traced, plan: Mapping[int, LayerPrecision]) -> None:
        self.traced = traced
        self.plan = plan
        self.network = Network()
        self.known: dict[fx.Node, Any] = {}

    def run(self) -> Network:
        """The values."""
        graph_nodes = self._graph_arguments()
        for node in self.traced.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, graph_nodes)
            elif node.op == "get_attr":
                self.known[node] = _attribute(self.traced.root, str(node.target))
            elif node.op == "output":
                self._output(node)
            elif node.users or node.op == "call_module":
                self.known[node] = self._operation(node)
        return self.network

    def _graph_arguments(self) -> dict[fx.Node, str]:
        """Placeholders that layers take as edge index or edge weights."""
        found: dict[fx.Node, str] = {}
        for node in self.traced.graph.nodes:
            if node.op == "placeholder" and node.target in (EDGE_INDEX, EDGE_WEIGHT, "adj_t"):
                found[node] = EDGE_WEIGHT if node.target == EDGE_WEIGHT else EDGE_INDEX
            if node.op != "call_module":
                continue
            module = self.traced.root.get_submodule(str(node.target))
            if isinstance(module, MessagePassing):
                arguments = _bound(module, node.args, node.kwargs)
                for part in (EDGE_INDEX, EDGE_WEIGHT):
                    given = arguments.get(part)
                    if isinstance(given, fx.Node) and given.op == "placeholder":
                        found[given] = part
        return found

    def _placeholder(self, node: fx.Node, graph_nodes: Mapping[fx.Node, str]) -> None:
        users = [user for user in node.users if not _is_default_check(user)]
        if node in graph_nodes:
            self.known[node] = _GraphInput(graph_nodes[node])
        elif users and self.network.features is None:
            self.network.features = Value("input", str(node.target))
            self.known[node] = self.network.features
        elif users:
            raise ValueError(
                f"freeze: the forward uses {node.target!r} beside the features "
                f"{self.network.features.layer!r}; "  # type: ignore[union-attr]
                "a frozen model takes features, a graph and edge weights"
            )

    def _output(self, node: fx.Node) -> None:
        (result,) = node.args
        scores = self.known.get(result) if isinstance(result, fx.Node) else None
        if not isinstance(scores, Value):
            raise ValueError(
                "freeze: the forward must return one tensor that depends on the features, "
                f"got {result}"
            )
        if self.network.features is None:
            raise ValueError("freeze: the forward uses no features")
        self.network.scores = scores

    def _operation(self, node: fx.Node) -> Any:
        if _is_default_check(node):
            return None
        args, kwargs = self._values_of(node.args), self._values_of(node.kwargs)
        if node.op == "call_module":
            return self._module(node, args, kwargs)
        name = node.target if isinstance(node.target, str) else node.target.__name__
        try:
            rule = self._rule(node.target if node.op == "call_function" else str(name))
            if rule is None:
                raise Unsupported("frozen models know no such function")
            return rule(node.name, *args, **kwargs)
        except (Unsupported, TypeError) as reason:
            function = node.target if callable(node.target) else _method(str(node.target))
            return self._call(node.name, function, args, kwargs, str(reason))

    def _rule(self, target: Any) -> Callable[..., Any] | None:
        """The rule of a function, or of a method by its name."""
        return FUNCTIONS.get(target)

    def _values_of(self, arguments: Any) -> Any:
        return fx.node.map_arg(arguments, lambda node: self.known[node])

    def _module(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        target = str(node.target)
        name, module = self.traced.name_of(target), self.traced.root.get_submodule(target)
        try:
            value = self._known_module(name, module, args, kwargs)
        except Unsupported as reason:
            return self._call(name, module, args, kwargs, str(reason))
        letters = self.plan.get(id(module), getattr(module, "letters", None))
        if isinstance(letters, LayerPrecision) and not letters.is_float:
            is_graph = isinstance(module, MessagePassing)
            self.network.letters[name] = (
                f"{letters.bmm}+{letters.bspmm}" if is_graph else letters.bmm
            )
        if isinstance(module, (MessagePassing, nn.Linear, torch_geometric.nn.Linear)):
            self.network.outputs[name] = value
        return value

    def _known_module(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> Value:
        if isinstance(module, SUPPORTED):
            arguments = _bound(module, args, kwargs)
            graph, weight = arguments.get(EDGE_INDEX), arguments.get(EDGE_WEIGHT)
            if not isinstance(graph, _GraphInput):
                raise ValueError(
                    f"freeze: layer {name!r} is given a graph that the forward computes; "
                    "a frozen model takes it ready"
                )
            if weight is not None and not isinstance(weight, _GraphInput):
                raise ValueError(
                    f"freeze: layer {name!r} is given edge weights that the forward computes; "
                    "a frozen model takes them ready"
                )
            return lower_graph_layer(name, module, arguments, weight is not None, self.plan)
        if len(args) != 1 or kwargs:
            raise Unsupported("it takes more than one matrix")
        (value,) = args
        if isinstance(module, torch_geometric.nn.JumpingKnowledge):
            return jumping_knowledge(name, module, value)
        if not isinstance(value, Value):
            raise Unsupported("it takes something else than a matrix")
        if isinstance(module, (nn.Linear, torch_geometric.nn.Linear)):
            return lower_linear(name, module, value, self.plan)
        return lower_module(name, module, value)

    def _call(
        self, name: str, function: Callable[..., Any], args: Any, kwargs: Any, reason: str
    ) -> Any:
        """The user's own code, as it is; computed now where it does not depend on the input."""
        inputs: list[Value] = []
        parts: set[str] = set()

        def place(leaf: Any) -> Any:
            if isinstance(leaf, Value):
                if leaf not in inputs:
                    inputs.append(leaf)
                return Input(inputs.index(leaf))
            if isinstance(leaf, _GraphInput):
                parts.add(leaf.part)
                return Input(leaf.part)
            return leaf

        placed_args, placed_kwargs = mapped(args, place), mapped(kwargs, place)
        if not inputs and not parts:
            return function(*args, **kwargs)
        width = getattr(function, "in_channels", None)
        if isinstance(width, int) and isinstance(args[0] if args else None, Value):
            with_size(args[0], width, name)
        call = FloatCall(name, function, placed_args, placed_kwargs, None)
        self.network.calls[name] = f"it runs as its own code ({reason}); save() cannot hold it"
        return Value("call", name, tuple(inputs), None, call=call, needs_edges=bool(parts))


def mapped(arguments: Any, place: Callable[[Any], Any]) -> Any:
    """Arguments of a call with something else in the place of each leaf."""
    if isinstance(arguments, tuple | list):
        return type(arguments)(mapped(item, place) for item in arguments)
    if isinstance(arguments, dict):
        return {key: mapped(item, place) for key, item in arguments.items()}
    if isinstance(arguments, slice):
        parts = (arguments.start, arguments.stop, arguments.step)
        return slice(*(mapped(part, place) for part in parts))
    return place(arguments)


def _bound(module: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments of a module's forward by name."""
    try:
        return dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)
    except TypeError:
        return {}


def _is_default_check(node: fx.Node) -> bool:
    """Whether fx only checks here that an optional argument keeps its default."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") in (
        "_assert_is_none",
        "_assert",
    )


def _attribute(root: nn.Module, path: str) -> Any:
    parent, _, name = path.rpartition(".")
    value = getattr(root.get_submodule(parent), name)
    return value.detach() if isinstance(value, Tensor) else value


def _method(name: str) -> Callable[..., Any]:
    def call(value: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(value, name)(*args, **kwargs)

    call.__name__ = name
    return call
