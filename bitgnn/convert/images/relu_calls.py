"""Takes ReLU calls out of the forward of a module, without touching its class or names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from bitgnn.convert.trace import Traced, evaluating

__all__ = ["ReluCalls", "relu_calls", "without_relu_calls"]

ReluCalls = dict[str, list[int]]
"""By name of a module: which of the ReLU calls of its own forward, counted in order."""

_FUNCTIONS = (torch.relu, torch.relu_, functional.relu, functional.relu_, functional.relu6)
_METHODS = ("relu", "relu_")


class _OwnForward(fx.Tracer):
    """Follows one module's own forward; what it calls stays whole."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def _is_relu_call(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in _METHODS
    return node.op == "call_function" and node.target in _FUNCTIONS


def relu_calls(traced: Traced, names: Collection[str]) -> ReluCalls:
    """Where in the model's own code calls of ReLU stand.

    Args:
        traced: the model in evaluation.
        names: the calls, as the trace names them.

    Returns:
        The calls by module; without those of a module whose own forward cannot be followed.
    """
    if traced.prefix:  # a layer of torch or PyG, whose code is not the user's
        return {}
    found: dict[str, list[bool]] = {}
    for node in traced.graph.nodes:
        if _is_relu_call(node):
            stack = list(node.meta.get("nn_module_stack", {}).values())
            owner = str(stack[-1][0]) if stack else ""
            found.setdefault(owner, []).append(node.name in names)
    calls: ReluCalls = {}
    for owner, feeds in found.items():
        own = _own_calls(traced.root.get_submodule(owner)) if any(feeds) else 0
        # A module that is called several times shows its calls as often.
        if own and len(feeds) % own == 0:
            calls[owner] = sorted({place % own for place, feed in enumerate(feeds) if feed})
    return calls


def _own_calls(module: nn.Module) -> int:
    """How many ReLU calls the module's own forward has; 0 where that cannot be told."""
    try:
        counts = {_count(module, training) for training in (True, False)}
        return counts.pop() if len(counts) == 1 else 0
    except Exception:  # whatever the user's code raises when a trace runs it
        return 0


def without_relu_calls(module: nn.Module, places: Collection[int], clip: bool) -> None:
    """Take ReLU calls out of a module's own forward.

    The module gets a subclass of its class, of the same name, whose forward is the traced one, once
    for training and once for evaluation: what its code reads of the object, such as a rate of
    dropout, is settled now. Names, state dict, copying and pickling stay as they are.

    Args:
        module: changed in place.
        places: which of the calls, counted in order.
        clip: put hardtanh in their place.

    Raises:
        Exception: what the module's code raises in a trace.
    """
    forwards = _forwards(module, places, clip)
    kind = _subclass(type(module), tuple(places), clip)
    kind._forwards = forwards
    module.__class__ = kind


def _forwards(
    module: nn.Module, places: Collection[int], clip: bool
) -> dict[bool, Callable[..., Any]]:
    """The changed forward by mode."""
    return {training: _changed(module, training, places, clip) for training in (True, False)}


def _count(module: nn.Module, training: bool) -> int:
    return sum(map(_is_relu_call, _own_graph(module, training).nodes))


def _own_graph(module: nn.Module, training: bool) -> fx.Graph:
    """The module's own forward in a mode; its mode is left as it was."""
    with evaluating(module):
        return _OwnForward().trace(module.train(training))


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
        without_relu_calls(self, places, clip)

    names = {name: getattr(base, name) for name in ("__module__", "__qualname__", "__doc__")}
    methods = {"forward": forward, "__reduce_ex__": reduced, "__setstate__": set_state}
    return type(base.__name__, (base,), {**names, **methods})


def _unfinished(base: type[nn.Module], places: tuple[int, ...], clip: bool) -> Any:
    """What copying and unpickling start from; the state that follows completes it."""
    kind = _subclass(base, places, clip)
    return kind.__new__(kind)
