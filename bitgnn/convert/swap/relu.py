"""Finds and removes ReLUs before binary layers, which make every sign +1."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from bitgnn.convert.configs import Activation
from bitgnn.convert.network.graph_layers import SUPPORTED
from bitgnn.convert.network.lower import is_image_network, lower_images, lower_model
from bitgnn.convert.network.trace import Traced, evaluating, trace_model
from bitgnn.convert.network.tracer import attributes_kept
from bitgnn.convert.network.values import canonical, is_nowhere_negative, ordered
from bitgnn.convert.walker import put_everywhere

RELU_MODULES = (nn.ReLU, nn.ReLU6)
_FUNCTIONS = (torch.relu, torch.relu_, functional.relu, functional.relu_, functional.relu6)
_METHODS = ("relu", "relu_")
POOLED = ("max_pool", "avg_pool", "adaptive_avg_pool", "mean_pixels", "flatten")
"""Kinds of values of images that are nowhere negative where what they read is not."""
BEHIND = "put a batch norm behind it"
CURE = f"remove it, set activation='drop' in the configuration, or {BEHIND}"
CALL_CURE = f"remove the call, make it an nn.ReLU, which activation='drop' takes out, or {BEHIND}"


def relu_warnings(model: nn.Module) -> tuple[str, ...]:
    """Warnings about binary layers whose input is never negative, one for each ReLU.

    A network of images that cannot be traced has one that says so.
    """
    of_images = is_image_network(model)
    if of_images:
        try:
            lower_images(trace_model(model))
        except ValueError as error:
            reason = str(error).removeprefix("freeze: ")
            return (f"a ReLU in front of a sign would stay and make every bit +1; {reason}",)
    fed: dict[str, dict[str, None]] = {}
    for relu, layer in _feeders(model):
        fed.setdefault(relu, {})[layer] = None
    modules = dict(model.named_modules())
    return tuple(
        f"ReLU ({relu}) feeds the sign of {', '.join(layers)}: no value is negative there, so "
        f"every bit would be +1; {CURE if of_images or relu in modules else CALL_CURE}"
        for relu, layers in fed.items()
    )


def replace_activations(
    model: nn.Module, activation: Activation, calls: bool = False
) -> dict[str, str]:
    """Replace activations of PyG's models and ReLU modules that feed a sign, in place.

    With ``calls`` also calls of ReLU in the code of the model. Returns what stands in place of
    each, by name.
    """
    if activation == "keep":
        return {}
    clip = activation == "hardtanh"
    names = [
        f"{name}.act" if name else "act"
        for name, module in model.named_modules()
        if isinstance(module, BasicGNN) and module.act is not None
    ]
    modules = dict(model.named_modules())
    feeding = dict.fromkeys(relu for relu, _ in _feeders(model))
    names += [n for n in feeding if isinstance(modules.get(n), RELU_MODULES) and n not in names]
    for name in names:
        put_everywhere(model, model.get_submodule(name), nn.Hardtanh() if clip else nn.Identity())
    replaced = dict.fromkeys(names, "Hardtanh" if clip else "Identity")
    for name, places in _feeding_calls(model).items() if calls else ():
        module = model.get_submodule(name)
        _without_relu_calls(module, places, clip)
        where = name or type(module).__name__
        for place in places:
            replaced[f"ReLU call {place + 1} of {where}"] = "hardtanh" if clip else "dropped"
    return replaced


def _feeders(model: nn.Module) -> list[tuple[str, str]]:
    """Pairs of a non-negative function and the layer whose sign reads it; none without a trace."""
    parts = {"": model}
    # Modules inside of graph layers that a trace keeps whole, such as MLPs.
    for name, layer in model.named_modules():
        if isinstance(layer, MessagePassing) and not isinstance(layer, SUPPORTED):
            prefix = f"{name}." if name else ""
            parts |= {f"{prefix}{child}.": module for child, module in layer.named_children()}
    found = []
    for prefix, part in parts.items():
        try:
            pairs = _feeders_of(part, trace_model(part))
        except ValueError:
            continue
        found += [(f"{prefix}{relu}", f"{prefix}{layer}") for relu, layer in pairs]
    return found


def _feeders_of(model: nn.Module, traced: Traced) -> list[tuple[str, str]]:
    network = lower_model(model, traced)
    assert network.scores is not None
    found = []
    for value in ordered(network.scores):
        if value.kind == "product" and value.attributes.get("input_step") is None:
            source = canonical(value.inputs[0])
            while source.kind in POOLED:
                source = canonical(source.inputs[0])
            if is_nowhere_negative(source):
                found.append((source.layer, value.layer))
    return found


def _feeding_calls(model: nn.Module) -> dict[str, list[int]]:
    """Numbers of the ReLU calls directly before a sign, by the module whose code has them.

    Those of a module whose own forward cannot be followed are left out.
    """
    try:
        traced = trace_model(model)
        names = {relu for relu, _ in _feeders_of(model, traced)}
    except ValueError:
        return {}
    if traced.prefix:  # a layer of torch or PyG, whose code is not the user's
        return {}
    found: dict[str, list[bool]] = {}
    for node in filter(_is_relu_call, traced.graph.nodes):
        stack = list(node.meta.get("nn_module_stack", {}).values())
        owner = str(stack[-1][0]) if stack else ""
        found.setdefault(owner, []).append(node.name in names)
    calls: dict[str, list[int]] = {}
    for owner, feeds in found.items():
        own = _own_calls(traced.root.get_submodule(owner)) if any(feeds) else 0
        # A module that is called several times shows its calls as often.
        if own and len(feeds) % own == 0:
            calls[owner] = sorted({place % own for place, feed in enumerate(feeds) if feed})
    return calls


def _is_relu_call(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in _METHODS
    return node.op == "call_function" and node.target in _FUNCTIONS


class _OwnForward(fx.Tracer):
    """Follows one module's own forward; what it calls stays whole."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def _own_graph(module: nn.Module, training: bool) -> fx.Graph:
    """Trace the module's own forward in a mode; the module's mode is restored."""
    with attributes_kept(module), evaluating(module):
        return _OwnForward().trace(module.train(training))


def _own_calls(module: nn.Module) -> int:
    """Number of ReLU calls in the module's own forward; 0 if that is unknown."""
    try:
        counts = {sum(map(_is_relu_call, _own_graph(module, m).nodes)) for m in (True, False)}
        return counts.pop() if len(counts) == 1 else 0
    except Exception:  # whatever the user's code raises when a trace runs it
        return 0


def _without_relu_calls(module: nn.Module, places: Collection[int], clip: bool) -> None:
    """Remove ReLU calls, counted in order, from a module's own forward, or clip instead.

    The module gets a subclass of its class, of the same name, whose forward is the traced one, once
    for training and once for evaluation: what its code reads of the object, such as a rate of
    dropout, is settled now. Names, state dict, copying and pickling stay as they are.
    """
    forwards = {mode: _changed(module, mode, places, clip) for mode in (True, False)}
    kind = _subclass(type(module), tuple(places), clip)
    kind._forwards = forwards
    module.__class__ = kind


def _changed(
    module: nn.Module, training: bool, places: Collection[int], clip: bool
) -> Callable[..., Any]:
    graph = _own_graph(module, training)
    for node in [n for i, n in enumerate(filter(_is_relu_call, graph.nodes)) if i in places]:
        source = node.args[0] if node.args else node.kwargs["input"]
        if clip:
            with graph.inserting_before(node):
                source = graph.call_function(functional.hardtanh, (source,))
        node.replace_all_uses_with(source)
        graph.erase_node(node)
    code = graph.python_code("self")
    scope: dict[str, Any] = dict(code.globals)
    exec(code.src, scope)
    forward: Callable[..., Any] = scope["forward"]
    return forward


def _subclass(base: type[nn.Module], places: tuple[int, ...], clip: bool) -> Any:
    """A class for one module, without its forwards yet."""

    @functools.wraps(base.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return type(self)._forwards[self.training](self, *args, **kwargs)

    def reduced(self: Any, protocol: Any) -> Any:
        return _unfinished, (base, places, clip), self.__getstate__()

    def set_state(self: Any, state: Any) -> None:
        base.__setstate__(self, state)
        # The class is there only now to be traced: its forward is that of its base.
        self.__class__ = base
        _without_relu_calls(self, places, clip)

    names = {name: getattr(base, name) for name in ("__module__", "__qualname__", "__doc__")}
    methods = {"forward": forward, "__reduce_ex__": reduced, "__setstate__": set_state}
    return type(base.__name__, (base,), {**names, **methods})


def _unfinished(base: type[nn.Module], places: tuple[int, ...], clip: bool) -> Any:
    """Start of copying and unpickling; the state that follows completes it."""
    kind = _subclass(base, places, clip)
    return kind.__new__(kind)
