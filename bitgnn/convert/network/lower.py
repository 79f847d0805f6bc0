"""Reads a trace into values: the layers, functions and calls that make the scores."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch_geometric.nn
import torch_geometric.utils
from torch import Tensor, fx, nn
from torch_geometric.nn import MessagePassing

import bitgnn.nn
from bitgnn.convert.network import aggregations, functions, images
from bitgnn.convert.network.attention_layers import lower_transformer
from bitgnn.convert.network.functions import Rule
from bitgnn.convert.network.graph_layers import (
    SUPPORTED,
    has_binary_layers,
    lower_graph_layer,
    lower_relations,
    lower_sum,
)
from bitgnn.convert.network.layers import Planned, lower_linear
from bitgnn.convert.network.trace import (
    EDGE_TYPE,
    Arguments,
    Traced,
    bound,
    is_default_check,
    trace_model,
)
from bitgnn.convert.network.tracer import NotTraced
from bitgnn.convert.network.typed import trace_typed
from bitgnn.convert.network.values import (
    DENSE,
    ROWS,
    Network,
    Part,
    Unsupported,
    Value,
    nodes_of,
    with_size,
)
from bitgnn.inference.frozen_hetero import Types
from bitgnn.inference.own_call import OwnCall
from bitgnn.inference.own_code.calls import (
    EDGE_INDEX,
    EDGE_WEIGHT,
    RESULTS,
    FloatCall,
    Input,
    unsaved,
)
from bitgnn.inference.own_code.known import Method, results
from bitgnn.nn import BinaryConv2d, BinaryLinear, LayerPrecision, RGCNConv
from bitgnn.nn.attention.transformer_conv import MAPS, TransformerConv
from bitgnn.nn.sum_linear import SumLinear

_LINEAR = (nn.Linear, torch_geometric.nn.Linear)
_DENSE = {
    torch_geometric.utils.to_dense_batch, torch_geometric.utils.to_dense_adj,
    torch_geometric.nn.dense_mincut_pool, torch_geometric.nn.dense_diff_pool,
}  # fmt: skip
_DENSE_LAYERS = ("torch_geometric.nn.dense.dense_", "torch_geometric.nn.dense.dmon_pool")
"""Functions and layers of PyG whose results have a dimension of graphs in front."""
Pack = Callable[[nn.Module, Planned, str], tuple[nn.Module, dict[str, str], dict[str, str]]]
"""Gives a copy of a module with packed layers, their letters, and why others stay as they were."""


def is_image_network(model: nn.Module) -> bool:
    """True if a model has convolutions, or linear layers of torch's signature.

    Graph layers, and ``bitgnn.nn.Linear`` with its letters, belong to the other one, which also
    takes a ``BinaryLinear`` with a scale between them.
    """
    modules = list(model.modules())
    if any(isinstance(m, (*SUPPORTED, SumLinear, RGCNConv, bitgnn.nn.Linear)) for m in modules):
        return False
    return any(isinstance(m, nn.Conv2d | BinaryConv2d | BinaryLinear) for m in modules)


def lower_model(model: nn.Module, plan: Planned, pack: Pack) -> Network:
    """Values of a forward of any family; raises as :func:`lower_trace`."""
    if is_image_network(model):
        return lower_images(trace_model(model))
    try:
        return lower_trace(trace_model(model), plan, pack)
    except NotTraced as error:
        try:
            return lower_trace(trace_typed(model), plan, pack)
        except NotTraced:
            raise error from None


def lower_images(traced: Traced) -> Network:
    """Values of a traced forward of images or rows; raises as :func:`lower_trace`."""
    return _ImageLowering(traced, {}, None).run()


def lower_trace(traced: Traced, plan: Planned, pack: Pack) -> Network:
    """Values of a traced forward of a graph network.

    ``pack(module, plan, name)`` packs the binary layers inside of modules that keep their own code.

    Raises:
        ValueError: something in it cannot be part of a frozen model; the message names it.
    """
    return _Lowering(traced, plan, pack).run()


class _Lowering:
    """Goes through a trace node by node."""

    of_images = False
    rank: int | None = ROWS
    rules: Mapping[Any, Rule] = {**functions.FUNCTIONS, **aggregations.FUNCTIONS}
    modules = (*functions.MODULES, *images.MODULES)
    linear: tuple[type[nn.Module], ...] = _LINEAR
    """Maps that letters of graph layers may be of."""

    def __init__(self, traced: Traced, plan: Planned, pack: Pack | None) -> None:
        self.traced, self.plan, self.pack = traced, plan, pack
        self.network = Network(self.of_images)
        self.known: dict[fx.Node, Any] = {}

    def run(self) -> Network:
        """The values."""
        network = self.network
        if self.traced.types is not None:
            self._take_types(self.traced.types)
        else:
            self._take_arguments(Arguments(self.traced))
        for node in self.traced.graph.nodes:
            if node in self.known:
                continue
            if node.op == "get_attr":
                parent, _, name = str(node.target).rpartition(".")
                value = getattr(self.traced.root.get_submodule(parent), name)
                self.known[node] = value.detach() if isinstance(value, Tensor) else value
            elif node.op == "output":
                network.scores = self._scores(node.args[0])
            elif node.users or node.op == "call_module":
                self.known[node] = self._operation(node)
        return network

    def _take_arguments(self, given: Arguments) -> None:
        """The arguments of a forward of one type of nodes."""
        if given.features is None:
            raise NotTraced("freeze: the forward takes no features of the nodes")
        self.network.own_call = OwnCall(given.arguments)
        features = Value("input", given.features, rank=self.rank)
        self.network.inputs = (features,)
        for node in self.traced.graph.nodes:
            if node in given.parts:
                part = given.parts[node]
                self.known[node] = features if part == given.features else Part(part)
            elif node in given.read or node.op == "placeholder":
                self.known[node] = None  # a Data object, or the place of a default

    def _take_types(self, types: Types) -> None:
        """Features and graphs by type."""
        self.network.types = types
        self.network.inputs = tuple(
            Value("input", name, attributes={"nodes": n}, rank=self.rank)
            for n, name in enumerate(types.nodes)
        )
        given = (*self.network.inputs, *(Part(f"edges{n}") for n in range(len(types.edges))))
        places = self.traced.graph.find_nodes(op="placeholder")
        self.known.update(zip(places, given, strict=True))

    def _scores(self, result: Any) -> Value:
        given = _mapped(self._values_of(result), lambda leaf: leaf)
        inputs: list[Value] = []
        _mapped(given, lambda leaf: inputs.append(leaf) if isinstance(leaf, Value) else None)
        if not inputs:
            raise NotTraced(
                "freeze: the forward must return a tensor that depends on the features, or "
                f"several, got {result}"
            )
        if isinstance(given, Value):
            return given
        scores: Value = self._call(RESULTS, results, (given,), {}, "")
        del self.network.calls[RESULTS]
        return scores

    def _values_of(self, arguments: Any) -> Any:
        return fx.node.map_arg(arguments, lambda node: self.known[node])

    def _operation(self, node: fx.Node) -> Any:
        if is_default_check(node):
            return None
        args, kwargs = self._values_of(node.args), self._values_of(node.kwargs)
        if node.op == "call_module":
            return self._module(str(node.target), args, kwargs)
        target = node.target
        try:
            rule = self.rules.get(target)
            if rule is None:
                raise Unsupported(functions.UNKNOWN)
            try:
                name = self._place(node) if target in aggregations.FUNCTIONS else node.name
                given = inspect.signature(rule).bind(name, *args, **kwargs)
            except TypeError as error:
                raise Unsupported(str(error)) from error
            return rule(*given.args, **given.kwargs)
        except Unsupported as reason:
            function = target if callable(target) else Method(target)
            return self._call(node.name, function, args, kwargs, str(reason))

    def _place(self, node: fx.Node) -> str:
        """Name of a node in the layer whose forward it is part of."""
        stack = list(node.meta.get("nn_module_stack", {}).values())
        name = self.traced.name_of(stack[-1][0]) if stack else ""
        return f"{name}.{node.name}" if name else node.name

    def _module(self, target: str, args: Any, kwargs: Any) -> Any:
        name, module = self.traced.name_of(target), self.traced.root.get_submodule(target)
        if target in self.traced.obstacles and self.pack is not None:
            return self._own_module(name, module, args, kwargs, self.traced.obstacles[target])
        try:
            value = self._known_module(name, module, args, kwargs)
        except Unsupported as reason:
            # As GINConv may, a graph layer without a binary form can have binary layers in it.
            kept = (*SUPPORTED, RGCNConv)
            is_own = isinstance(module, MessagePassing) and not isinstance(module, kept)
            maps = any(isinstance(m, bitgnn.nn.Linear) for m in module.modules())
            is_own |= isinstance(module, bitgnn.nn.Linear)  # of features of edges
            if is_own and (maps or has_binary_layers(module, self.plan)):
                return self._own_module(name, module, args, kwargs, str(reason))
            return self._call(name, module, args, kwargs, str(reason))
        letters = self._letters(module, value)
        if letters is not None:
            self.network.letters[name] = letters
        if isinstance(module, (MessagePassing, nn.Conv2d, *_LINEAR)):
            self.network.outputs[name] = value
        return value

    def _letters(self, module: nn.Module, value: Value) -> str | None:
        """The letters of a binary layer; None for other modules."""
        letters = self.plan.get(id(module), getattr(module, "letters", None))
        if not isinstance(letters, LayerPrecision) or letters.is_float:
            return None
        is_graph = isinstance(module, MessagePassing)
        return f"{letters.bmm}+{letters.bspmm}" if is_graph else letters.bmm

    def _own_module(self, name: str, module: nn.Module, args: Any, kwargs: Any, reason: str) -> Any:
        """A module that is not traced: its own code, with the binary layers in it packed."""
        if self.pack is None:
            return self._call(name, module, args, kwargs, reason)
        copied, letters, floats = self.pack(module, self.plan, name)
        if isinstance(module, MessagePassing):
            self.network.inside.update(letters)
        self.network.letters.update(letters)
        value = self._call(name, copied, args, kwargs, reason)
        self.network.calls.update(floats)
        return value

    def _known_module(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> Value:
        if isinstance(module, (*SUPPORTED, SumLinear, RGCNConv)):
            arguments = bound(module, args, kwargs)
            if not isinstance(arguments.get("x"), Value | tuple | list):
                raise Unsupported("it takes something else than the features")
            weight = arguments.get(EDGE_TYPE if isinstance(module, RGCNConv) else EDGE_WEIGHT)
            if not isinstance(arguments.get(EDGE_INDEX), Part):
                raise NotTraced(
                    f"freeze: layer {name!r} is given a graph that the forward computes; "
                    "a frozen model takes it ready"
                )
            if weight is not None and not isinstance(weight, Part):
                raise NotTraced(
                    f"freeze: layer {name!r} is given edge weights that the forward computes; "
                    "a frozen model takes them ready"
                )
            if isinstance(module, RGCNConv):
                if self.traced.types is not None:
                    raise Unsupported("its graph has types of nodes beside those of edges")
                return lower_relations(name, module, arguments)
            edge_type = None
            if self.traced.types is not None:
                edge_type = int(arguments[EDGE_INDEX].name.removeprefix("edges"))
            if isinstance(module, SumLinear):
                if isinstance(arguments.get("size"), Part):  # a layer alone, whose x tells it
                    arguments = {**arguments, "size": None}
                return lower_sum(name, module, arguments, self.plan, edge_type)
            is_weighted = weight is not None
            return lower_graph_layer(name, module, arguments, is_weighted, self.plan, edge_type)
        if isinstance(module, TransformerConv) and module.precision != "fp32":
            return self._transformer(name, module, bound(module, args, kwargs))
        if len(args) != 1 or kwargs:
            raise Unsupported("it takes more than one matrix")
        (value,) = args
        is_joined = isinstance(module, torch_geometric.nn.JumpingKnowledge)
        if not isinstance(value, Value) and not is_joined:
            raise Unsupported("it takes something else than a matrix")
        if isinstance(value, Value) and value.rank == DENSE:
            raise Unsupported("its input may have a dimension of graphs")
        if isinstance(module, self.linear):
            return lower_linear(name, module, value, self.plan)
        return functions.lower_module(name, module, value, self.modules)

    def _transformer(self, name: str, module: TransformerConv, arguments: Any) -> Value:
        """A layer of attention with maps inside, whose letters the report names."""
        value, others = arguments.get("x"), {"x", EDGE_INDEX}
        given = [key for key, found in arguments.items() if key not in others and found is not None]
        if given:
            raise Unsupported(f"it is given {given[0]}")
        is_plain = isinstance(value, Value) and isinstance(arguments.get(EDGE_INDEX), Part)
        if not is_plain or self.traced.types is not None:
            raise Unsupported("it takes something else than features and their graph")
        out = lower_transformer(name, module, value, self.plan)
        for part in MAPS:
            letters = self._letters(getattr(module, part), out)
            if letters is not None:
                self.network.letters[f"{name}.{part}"] = letters
        return out

    def _call(
        self, name: str, function: Callable[..., Any], args: Any, kwargs: Any, reason: str
    ) -> Any:
        """A call of the user's own code; computed now if it does not depend on the input."""
        inputs: list[Value] = []
        parts: set[str] = set()

        def place(leaf: Any) -> Any:
            if isinstance(leaf, images.Shape):  # which is known when the code runs
                args = (Input(0),) if leaf.dim is None else (Input(0), leaf.dim)
                layer = leaf.value.layer
                size = FloatCall(layer, Method("size"), args, {}, None)
                leaf = Value("call", layer, (leaf.value,), call=size, rank=None)
            if isinstance(leaf, Value):
                if leaf not in inputs:
                    inputs.append(leaf)
                return Input(inputs.index(leaf))
            if isinstance(leaf, Part):
                parts.add(leaf.name)
                return Input(leaf.name)
            return leaf

        placed_args, placed_kwargs = _mapped(args, place), _mapped(kwargs, place)
        if not inputs and not parts:
            return function(*args, **kwargs)
        width = getattr(function, "in_channels", None)
        if (
            isinstance(function, nn.Module)
            and bound(function, args, kwargs).get("attn") is not None
        ):
            width = None  # of a pool's scores, which are those of another matrix
        if isinstance(width, int) and isinstance(args[0] if args else None, Value):
            with_size(args[0], width, name)
        call = FloatCall(name, function, placed_args, placed_kwargs, None)
        self.network.calls[name] = f"it runs as its own code ({reason}){unsaved(call)}"
        is_dense = function in _DENSE or type(function).__module__.startswith(_DENSE_LAYERS)
        is_dense |= any(value.rank == DENSE for value in inputs)
        rank = DENSE if is_dense and not self.of_images else self.rank
        found = Value("call", name, tuple(inputs), call=call, needs_edges=bool(parts), rank=rank)
        pair = args[0] if args else None
        if isinstance(pair, tuple) and pair and isinstance(pair[-1], Value):
            found.attributes = {"nodes": nodes_of(pair[-1])}  # a layer's destinations
        return found


class _ImageLowering(_Lowering):
    """The same for networks of images, whose linear layers are torch's."""

    of_images = True
    rank = None
    rules: Mapping[Any, Rule] = {**functions.FUNCTIONS, **images.FUNCTIONS}
    modules = (images.LINEAR, *_Lowering.modules)
    linear = (torch_geometric.nn.Linear,)

    def _letters(self, module: nn.Module, value: Value) -> str | None:
        is_fixed = value.attributes.get("input_step") is not None
        return None if value.kind != "product" else f"{'F' if is_fixed else 'B'}BF"


def _mapped(arguments: Any, place: Callable[[Any], Any]) -> Any:
    """Replace each leaf in the arguments of a call."""
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
