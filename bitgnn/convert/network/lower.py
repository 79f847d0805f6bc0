"""Reads a trace into values: which layers, functions and calls make the scores."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch_geometric.nn
from torch import Tensor, fx, nn
from torch_geometric.nn import MessagePassing

import bitgnn.nn
from bitgnn.convert.network import images
from bitgnn.convert.network.functions import FUNCTIONS, jumping_knowledge
from bitgnn.convert.network.graph_layers import SUPPORTED, lower_graph_layer
from bitgnn.convert.network.layers import lower_linear
from bitgnn.convert.network.modules import lower_module
from bitgnn.convert.network.values import ROWS, Network, Unsupported, Value, with_size
from bitgnn.convert.tracing.arguments import Arguments, Part, bound
from bitgnn.convert.tracing.trace import Traced, is_default_check
from bitgnn.convert.tracing.tracer import NotTraced
from bitgnn.inference.own_call import OwnCall
from bitgnn.inference.steps.calls import EDGE_INDEX, EDGE_WEIGHT, RESULTS, FloatCall, Input, unsaved
from bitgnn.inference.steps.known import Method, results
from bitgnn.nn import LayerPrecision


def is_image_network(model: nn.Module) -> bool:
    """Whether a model belongs to this family: convolutions, or linear layers of torch's signature.

    Graph layers, and ``bitgnn.nn.Linear`` with its letters, belong to the other one, which also
    takes a ``BinaryLinear`` with a scale between them.
    """
    modules = list(model.modules())
    if any(isinstance(m, (*SUPPORTED, bitgnn.nn.Linear)) for m in modules):
        return False
    return any(isinstance(m, (nn.Conv2d, *images.BINARY)) for m in modules)


def lower_model(model: nn.Module, traced: Traced) -> Network:
    """Values of a traced forward of either family; raises as :func:`lower_trace`."""
    return lower_images(traced) if is_image_network(model) else lower_trace(traced, {})


def lower_images(traced: Traced) -> Network:
    """Values of a traced forward of images or rows; raises as :func:`lower_trace`."""
    return _Lowering(traced, {}, of_images=True).run()


def lower_trace(traced: Traced, plan: Mapping[int, LayerPrecision]) -> Network:
    """Values of a traced forward.

    Raises:
        ValueError: something in it cannot be part of a frozen model; the message names it.
    """
    return _Lowering(traced, plan, of_images=False).run()


class _Lowering:
    """Goes through a trace node by node."""

    def __init__(self, traced: Traced, plan: Mapping[int, LayerPrecision], of_images: bool) -> None:
        self.traced, self.plan, self.of_images = traced, plan, of_images
        self.network = Network(of_images)
        self.known: dict[fx.Node, Any] = {}

    def run(self) -> Network:
        """The values."""
        given = Arguments(self.traced)
        if given.features is None:
            raise NotTraced("freeze: the forward takes no features of the nodes")
        self.network.own_call = OwnCall(given.arguments)
        features = given.features
        for node in self.traced.graph.nodes:
            if node in given.parts:
                part = given.parts[node]
                self.known[node] = self._features(part) if part == features else Part(part)
            elif node in given.read or node.op == "placeholder":
                self.known[node] = None  # a Data object, or the place of a default
            elif node.op == "get_attr":
                self.known[node] = _attribute(self.traced.root, str(node.target))
            elif node.op == "output":
                self._output(node)
            elif node.users or node.op == "call_module":
                self.known[node] = self._operation(node)
        return self.network

    def _features(self, name: str) -> Value:
        if self.network.features is None:
            self.network.features = Value("input", name, rank=None if self.of_images else ROWS)
        return self.network.features

    def _output(self, node: fx.Node) -> None:
        (result,) = node.args
        given = _mapped(self._values_of(result), lambda leaf: leaf)
        inputs: list[Value] = []
        _mapped(given, lambda leaf: inputs.append(leaf) if isinstance(leaf, Value) else None)
        if not inputs:
            raise NotTraced(
                "freeze: the forward must return a tensor that depends on the features, or "
                f"several, got {result}"
            )
        if not isinstance(given, Value):
            given = self._call(RESULTS, results, (given,), {}, "")
            self.network.calls.pop(RESULTS, None)
        self.network.scores = given

    def _operation(self, node: fx.Node) -> Any:
        if is_default_check(node):
            return None
        args, kwargs = self._values_of(node.args), self._values_of(node.kwargs)
        if node.op == "call_module":
            return self._module(node, args, kwargs)
        name = node.target if isinstance(node.target, str) else node.target.__name__
        try:
            rule = self._rule(node.target if node.op == "call_function" else str(name))
            if rule is None:
                raise Unsupported("frozen models know no such function")
            return _called(rule, node.name, args, kwargs)
        except Unsupported as reason:
            function = node.target if callable(node.target) else Method(str(node.target))
            return self._call(node.name, function, args, kwargs, str(reason))

    def _rule(self, target: Any) -> Callable[..., Any] | None:
        """The rule of a function, or of a method by its name."""
        own = images.FUNCTIONS.get(target) if self.of_images else None
        return FUNCTIONS.get(target) if own is None else own

    def _values_of(self, arguments: Any) -> Any:
        return fx.node.map_arg(arguments, lambda node: self.known[node])

    def _module(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        target = str(node.target)
        name, module = self.traced.name_of(target), self.traced.root.get_submodule(target)
        if target in self.traced.obstacles and not self.of_images:
            return self._own_module(name, module, args, kwargs, self.traced.obstacles[target])
        try:
            value = self._known_module(name, module, args, kwargs)
        except Unsupported as reason:
            if self._holds_binary_layers(module):
                return self._own_module(name, module, args, kwargs, str(reason))
            return self._call(name, module, args, kwargs, str(reason))
        letters = self._letters(module, value)
        if letters is not None:
            self.network.letters[name] = letters
        if isinstance(module, (MessagePassing, nn.Conv2d, nn.Linear, torch_geometric.nn.Linear)):
            self.network.outputs[name] = value
        return value

    def _letters(self, module: nn.Module, value: Value) -> str | None:
        """The letters of a binary layer; None for what is none."""
        if self.of_images:
            is_fixed = value.attributes.get("input_step") is not None
            return None if value.kind != "product" else f"{'F' if is_fixed else 'B'}BF"
        letters = self.plan.get(id(module), getattr(module, "letters", None))
        if not isinstance(letters, LayerPrecision) or letters.is_float:
            return None
        return (
            f"{letters.bmm}+{letters.bspmm}" if isinstance(module, MessagePassing) else letters.bmm
        )

    def _holds_binary_layers(self, module: nn.Module) -> bool:
        """Whether a graph layer without a binary form has binary layers in it, as GINConv may."""
        from bitgnn.convert.layerwise import has_binary_layers

        is_other = isinstance(module, MessagePassing) and not isinstance(module, SUPPORTED)
        return is_other and has_binary_layers(module, self.plan)

    def _own_module(self, name: str, module: nn.Module, args: Any, kwargs: Any, reason: str) -> Any:
        """A module that no trace goes into: its own code, with the binary layers in it packed."""
        # That file freezes every layer through this one.
        from bitgnn.convert.layerwise import packed_copy

        held = packed_copy(module, self.plan, name)
        if isinstance(module, MessagePassing):
            self.network.inside.update(held.letters)
        self.network.letters.update(held.letters)
        value = self._call(name, held.module, args, kwargs, reason)
        self.network.calls.update(held.floats)
        return value

    def _known_module(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> Value:
        if isinstance(module, SUPPORTED):
            arguments = bound(module, args, kwargs)
            graph, weight = arguments.get(EDGE_INDEX), arguments.get(EDGE_WEIGHT)
            if not isinstance(arguments.get("x"), Value | tuple | list):
                raise Unsupported("it takes something else than the features")
            if not isinstance(graph, Part):
                raise NotTraced(
                    f"freeze: layer {name!r} is given a graph that the forward computes; "
                    "a frozen model takes it ready"
                )
            if weight is not None and not isinstance(weight, Part):
                raise NotTraced(
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
        if isinstance(module, nn.Linear) and self.of_images:
            return images.linear(name, module, value)
        if isinstance(module, (nn.Linear, torch_geometric.nn.Linear)):
            return lower_linear(name, module, value, self.plan)
        return lower_module(name, module, value)

    def _call(
        self, name: str, function: Callable[..., Any], args: Any, kwargs: Any, reason: str
    ) -> Any:
        """The user's own code, as it is; computed now where it does not depend on the input."""
        inputs: list[Value] = []
        parts: set[str] = set()
        args, kwargs = (_mapped(part, _measured) for part in (args, kwargs))

        def place(leaf: Any) -> Any:
            if isinstance(leaf, Value):
                if leaf not in inputs:
                    inputs.append(leaf)
                return Input(inputs.index(leaf))
            if isinstance(leaf, Part):
                parts.add(leaf.part)
                return Input(leaf.part)
            return leaf

        placed_args, placed_kwargs = _mapped(args, place), _mapped(kwargs, place)
        if not inputs and not parts:
            return function(*args, **kwargs)
        width = getattr(function, "in_channels", None)
        if isinstance(width, int) and isinstance(args[0] if args else None, Value):
            with_size(args[0], width, name)
        call = FloatCall(name, function, placed_args, placed_kwargs, None)
        self.network.calls[name] = f"it runs as its own code ({reason}){unsaved(call)}"
        rank = None if self.of_images else ROWS
        return Value(
            "call", name, tuple(inputs), None, call=call, needs_edges=bool(parts), rank=rank
        )


def _called(rule: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
    """The result of a rule.

    Raises:
        Unsupported: it has no such arguments, or cannot do what is asked for.
    """
    try:
        given = inspect.signature(rule).bind(name, *args, **kwargs)
    except TypeError as error:
        raise Unsupported(str(error)) from error
    return rule(*given.args, **given.kwargs)


def _mapped(arguments: Any, place: Callable[[Any], Any]) -> Any:
    """Arguments of a call with something else in the place of each leaf."""
    if isinstance(arguments, tuple) and hasattr(arguments, "_fields"):
        return type(arguments)(*(_mapped(item, place) for item in arguments))
    if isinstance(arguments, tuple | list):  # those of torch.fx become plain ones
        kind = list if isinstance(arguments, list) else tuple
        return kind(_mapped(item, place) for item in arguments)
    if isinstance(arguments, dict):
        return {key: _mapped(item, place) for key, item in arguments.items()}
    if isinstance(arguments, slice):
        parts = (arguments.start, arguments.stop, arguments.step)
        return slice(*(_mapped(part, place) for part in parts))
    return place(arguments)


def _attribute(root: nn.Module, path: str) -> Any:
    parent, _, name = path.rpartition(".")
    value = getattr(root.get_submodule(parent), name)
    return value.detach() if isinstance(value, Tensor) else value


def _measured(leaf: Any) -> Any:
    """Shapes that the user's own code reads, as calls: they are known when it runs."""
    if not isinstance(leaf, images.Shape | images.Length):
        return leaf
    args = (Input(0), leaf.dim) if isinstance(leaf, images.Length) else (Input(0),)
    call = FloatCall(leaf.value.layer, Method("size"), args, {}, None)
    return Value("call", leaf.value.layer, (leaf.value,), call=call, rank=None)
