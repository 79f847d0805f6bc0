"""The tracer of freeze(): modules that stay whole, and obstacles to a trace."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import linecache
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch_geometric.nn
import torch_geometric.utils
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves
from torch_geometric.data.data import BaseData
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import Aggregation
from torch_geometric.nn.conv import hetero_conv
from torch_geometric.nn.models.rev_gnn import InvertibleModule

from bitgnn.nn import ChannelShortcut, GINConv, NodeStandardize, gine_conv
from bitgnn.nn.own_messages import OwnMessages
from bitgnn.nn.propagation.base import Propagation
from bitgnn.nn.sum_linear import SumLinear

_LIBRARIES = tuple(
    str(Path(str(importlib.import_module(name).__file__)).parent)
    for name in ("torch", "torch_geometric", "bitgnn.convert", "bitgnn.nn")
)
_CONSTANT = "_tensor_constant"
"""Names that begin so are torch.fx's own, for tensors that a forward makes of plain numbers."""
_NUMBERS = ("int() argument", "__index__", "cannot be interpreted as an integer",
            "float() argument", "__float__", "__int__")  # fmt: skip
_PLAIN = {
    "iterated": "it goes through a tensor part by part",
    "control flow": "it decides by values that are known in a call alone",
    "'len' is not supported": "it asks for the len() of a tensor",
    "__bool__": "it decides by values that are known in a call alone",
    **dict.fromkeys(_NUMBERS, "it needs a plain number from a tensor"),
    "keys()": "it unpacks a mapping of tensors",
}
"""Words of torch.fx or Python, and what they mean."""
_WHOLE_PACKAGES = ("torch.nn.", "torch_geometric.nn.norm", "torch_geometric.nn.aggr")
_WHOLE_CLASSES = (
    MessagePassing, nn.Linear, nn.Conv2d, torch_geometric.nn.Linear,
    torch_geometric.nn.JumpingKnowledge, NodeStandardize, ChannelShortcut,
)  # fmt: skip
_FUNCTION_MODULES = (
    torch_geometric.nn, torch_geometric.nn.pool, torch_geometric.utils, hetero_conv,
)  # fmt: skip
_WHOLE_FUNCTIONS = frozenset(
    value
    for module in _FUNCTION_MODULES
    for name, value in vars(module).items()
    if not name.startswith(("_", "is_", "has_", "contains_", "check_"))
    and inspect.isfunction(value)
)
"""Plain functions of PyG, which stay whole: what they ask tensors no trace can answer.

Those that answer a question themselves are followed: they look at types.
"""


class NotTraced(ValueError):
    """A forward, or a part of it, has no trace that can be frozen as a whole.

    ``reason`` is the part of the message that says where and why.
    """

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = message.removeprefix("freeze: ") if reason is None else reason


def obstacle(error: BaseException) -> str:
    """Describe a failed trace: the deepest line of the user's own code, and the cause."""
    text = str(error).strip()
    why = text.splitlines()[0] if text else "no reason given"
    if not isinstance(error, ValueError):
        why = f"{type(error).__name__}, {why}"
    why = next((meaning for words, meaning in _PLAIN.items() if words in text), why)
    place = None
    found = error.__traceback__
    while found is not None:
        file = found.tb_frame.f_code.co_filename
        if not file.startswith((*_LIBRARIES, "<")):
            place = file, found.tb_lineno
        found = found.tb_next
    if place is None:
        return why
    code = linecache.getline(*place).strip()
    text = f"{place[0]}, line {place[1]}"
    return f"{text}, `{code}`: {why}" if code else f"{text}: {why}"


def stays_whole(module: nn.Module) -> bool:
    """True if a trace keeps a module whole: layers, norms, activations."""
    if isinstance(module, nn.Sequential | nn.ModuleList):
        return False
    if isinstance(module, GINConv) and module.first is not None:
        return False
    if isinstance(module, OwnMessages) or (isinstance(module, Propagation) and module.is_binary):
        return False
    return isinstance(module, _WHOLE_CLASSES) or type(module).__module__.startswith(_WHOLE_PACKAGES)


class _Tracer(fx.Tracer):
    """Layers, norms and activations stay whole; so do modules whose code cannot be traced."""

    def __init__(self) -> None:
        super().__init__(autowrap_functions=tuple(_WHOLE_FUNCTIONS))
        self._autowrap_search.extend(_FUNCTION_MODULES)
        self.obstacles: dict[str, str] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return stays_whole(m) and not gine_conv.is_plain(m)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(m, SumLinear):  # to which the layer around lends the graph
            args = m.given(args)
        self.create_arg((args, kwargs))  # attributes of proxies get their nodes here, not inside
        if isinstance(m, InvertibleModule):  # whose function of its own a trace would run through
            self.obstacles[self.path_of_module(m)] = "it frees its input and computes it anew"
            return self.create_proxy("call_module", self.path_of_module(m), args, kwargs)
        if gine_conv.is_plain(m):  # whose MLP is traced, and messages are not
            forward = functools.partial(gine_conv.traced_forward, m)
        before = set(self.graph.nodes)
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception as error:
            for node in reversed(list(self.graph.nodes)):
                if node not in before:
                    self.graph.erase_node(node)
            name = self.path_of_module(m)
            self.obstacles[name] = obstacle(error)
            return self.create_proxy("call_module", name, args, kwargs)


def traced_graph(root: nn.Module, fixed: Mapping[str, Any]) -> tuple[fx.Graph, dict[str, str]]:
    """Trace a forward with some arguments fixed by name.

    The result holds by name where and why no trace goes into modules that stay whole.
    """
    try:
        told = _trace(root, fixed, _types_told(root))
    except Exception:
        return _trace(root, fixed, nullcontext())
    if told[1]:  # what stands in the way may be checks behind a question for a type
        untold = _trace(root, fixed, nullcontext())
        if len(untold[1]) < len(told[1]):
            return untold
    return told


def _trace(
    root: nn.Module, fixed: Mapping[str, Any], types: AbstractContextManager[None]
) -> tuple[fx.Graph, dict[str, str]]:
    tracer = _Tracer()
    with attributes_kept(root), _functions_whole(root), types:
        return tracer.trace(root, concrete_args=dict(fixed)), tracer.obstacles


@contextmanager
def attributes_kept(root: nn.Module) -> Iterator[None]:
    """Undo changes that the code inside makes to attributes of the modules of ``root``.

    A trace runs the user's forward on stand-ins for tensors, and a forward may keep what it sees.
    """
    held: list[tuple[Any, Any]] = []
    for module in root.modules():
        # With parameters, buffers and children, which are dictionaries among them.
        containers = [value for value in vars(module).values() if type(value) in (dict, list, set)]
        held.extend((one, copy.copy(one)) for one in (vars(module), *containers))
    try:
        yield
    finally:
        for container, before in held:
            if isinstance(container, list):
                container[:] = before
            elif isinstance(container, set):
                container.clear()
                container.update(before)
            else:
                for key in container.keys() - before.keys():
                    if not str(key).startswith(_CONSTANT):
                        del container[key]
                for key, value in before.items():
                    if key not in container or container[key] is not value:
                        container[key] = value


@contextmanager
def _functions_whole(root: nn.Module) -> Iterator[None]:
    """Keep PyG's aggregations, and its functions that modules hold as attributes, whole.

    Those check their arguments in front of what torch.fx takes for the call of a module.
    """
    held = [
        (module, name, value)
        for module in root.modules()
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value in _WHOLE_FUNCTIONS
    ]
    check = Aggregation.__call__

    def call(self: Aggregation, *args: Any, **kwargs: Any) -> Any:
        found = _proxies(args, kwargs)
        if not found:
            return check(self, *args, **kwargs)
        tracer: Any = found[0].tracer
        return tracer.call_module(self, self.forward, args, kwargs)

    try:
        for module, name, value in held:
            setattr(module, name, _whole(value))
        Aggregation.__call__ = call
        yield
    finally:
        Aggregation.__call__ = check
        for module, name, value in held:
            setattr(module, name, value)


def _whole(function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = _proxies(args, kwargs)
        if not found:
            return function(*args, **kwargs)
        return found[0].tracer.create_proxy("call_function", function, args, kwargs)

    return call


def _proxies(*arguments: Any) -> list[fx.Proxy]:
    return [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, fx.Proxy)]


@contextmanager
def _types_told(root: nn.Module) -> Iterator[None]:
    """Let ``isinstance`` in a forward see proxies as tensors."""
    scopes = {
        id(scope): scope
        for module in root.modules()
        if not stays_whole(module) and inspect.isfunction(type(module).forward)
        for scope in (type(module).forward.__globals__,)
        if scope["__name__"] != __name__ and "isinstance" not in scope
    }
    is_tensor = torch.is_tensor
    try:
        for scope in scopes.values():
            scope["isinstance"] = _is_instance
        torch.is_tensor = lambda obj: isinstance(obj, fx.Proxy) or is_tensor(obj)  # type: ignore
        yield
    finally:
        torch.is_tensor = is_tensor
        for scope in scopes.values():
            del scope["isinstance"]


def _is_instance(value: Any, kinds: Any) -> bool:
    if not isinstance(value, fx.Proxy):
        return isinstance(value, kinds)
    found = tree_leaves(kinds) if isinstance(kinds, tuple) else [kinds]
    if any(isinstance(kind, type) and issubclass(kind, BaseData) for kind in found):
        raise ValueError("it asks whether an argument is a Data object")
    return Tensor in found or fx.Proxy in found
