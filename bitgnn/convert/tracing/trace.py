"""Traces a model's forward with torch.fx, the layers kept whole."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch_geometric.nn
from torch import fx, nn

from bitgnn.convert.tracing.tracer import NotTraced, obstacle, stays_whole, traced_graph
from bitgnn.inference.own_call import Missing

# What a forward may call its graph; other optional arguments keep their defaults.
FORWARD_ARGUMENTS = ("x", "edge_index", "edge_weight")
BATCH, EDGE_WEIGHT = "batch", "edge_weight"
TENSORS = (BATCH, "edge_attr")
"""Optional arguments that are tensors wherever PyG has them."""
WRAPPED = "model"
MOST_INPUTS = 4


class Traced:
    """A traced forward.

    Attributes:
        graph: the torch.fx graph.
        root: module whose submodules the graph names.
        prefix: what to leave out of those names.
        optional: what a call without an argument means, for those with a default in the graph.
        fixed: arguments that kept their defaults, and how those are written.
        obstacles: modules that run as their own code, and where and why no trace goes into them.
    """

    def __init__(self, graph: fx.Graph, root: nn.Module, prefix: str) -> None:
        self.graph = graph
        self.root = root
        self.prefix = prefix
        self.optional: dict[str, Missing] = {}
        self.fixed: dict[str, str] = {}
        self.obstacles: dict[str, str] = {}

    def name_of(self, target: str) -> str:
        """The name of a submodule in the user's model."""
        if self.prefix and f"{target}." == self.prefix:
            return type(self.root.get_submodule(target)).__name__
        return target.removeprefix(self.prefix)


def trace_model(model: nn.Module) -> Traced:
    """Trace a model in evaluation; its mode is left as it was.

    Optional arguments stay arguments where that makes no difference to the trace but their place
    in it, ``edge_weight`` and ``batch`` wherever they can; others keep their defaults.

    Args:
        model: its forward takes features, or a ``Data`` object, and as it needs a graph, edge
            weights and further tensors.

    Returns:
        The trace.

    Raises:
        NotTraced: the forward cannot be traced; the message says what stands in the way.
    """
    if not has_forward(model):
        reason = f"{type(model).__name__} has no forward"
        raise NotTraced(f"freeze: {reason} that could be traced", reason)
    root, prefix = _spelled_out(model)
    optional = {
        name: parameter.default
        for name, parameter in inspect.signature(root.forward).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    with evaluating(model):
        fixed = {name: value for name, value in optional.items() if name not in FORWARD_ARGUMENTS}
        try:
            found = traced_graph(root, fixed)
        except Exception as first:
            fixed = optional  # a forward that decides by the presence of edge weights
            try:
                found = traced_graph(root, fixed)
            except Exception:
                unnamed = _unnamed(root)
                reason = f"it takes {unnamed}" if unnamed else obstacle(first)
                raise NotTraced(
                    f"freeze: the forward of {type(model).__name__} cannot be traced by "
                    f"torch.fx, {reason}",
                    reason,
                ) from first
        missing: dict[str, Missing] = {name: "none" for name in optional if name not in fixed}
        for name in missing:
            if name == EDGE_WEIGHT and not _same_layers(root, fixed, found[0], name):
                missing[name] = "decided"
        for name in [name for name, value in fixed.items() if value is None]:
            rest = {other: value for other, value in fixed.items() if other != name}
            try:
                tried = traced_graph(root, rest)
            except Exception:
                continue
            is_same = _form(tried[0], name) == _form(found[0], name)
            if is_same and name not in TENSORS and not _is_read(tried[0], name):
                continue  # it may be asked for its type alone, which no trace shows
            if is_same or name == BATCH:
                found, fixed = tried, rest
                missing[name] = "none" if is_same else "zeros"
    traced = Traced(found[0], root, prefix)
    traced.optional = missing
    traced.fixed = {name: repr(value) for name, value in fixed.items()}
    traced.obstacles = found[1]
    return traced


def _form(graph: fx.Graph, argument: str) -> list[str]:
    """Everything a trace does, as if one argument were None."""
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


def _same_layers(root: nn.Module, fixed: dict[str, Any], graph: fx.Graph, argument: str) -> bool:
    """Whether a forward runs the same layers without an argument."""
    try:
        without = traced_graph(root, {**fixed, argument: None})[0]
    except Exception:
        return True  # it has one form alone
    used = [[node.target for node in g.nodes if node.op == "call_module"] for g in (graph, without)]
    return used[0] == used[1]


def _is_read(graph: fx.Graph, argument: str) -> bool:
    return any(
        node.op == "placeholder" and node.target == argument and node.users for node in graph.nodes
    )


def _unnamed(root: nn.Module) -> str:
    """The arguments of a forward that have no names of their own."""
    parameters = inspect.signature(root.forward).parameters.values()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return " and ".join(str(p).split(":")[0] for p in parameters if p.kind in kinds)


def has_forward(model: nn.Module) -> bool:
    """Whether a model's class, or somebody on it, defines what a call does."""
    unset = nn.Module.forward
    return getattr(type(model), "forward", unset) is not unset or "forward" in vars(model)


def is_default_check(node: fx.Node) -> bool:
    """Whether fx only checks here that an optional argument keeps its default."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") in (
        "_assert_is_none",
        "_assert",
    )


def _spelled_out(model: nn.Module) -> tuple[nn.Module, str]:
    """The model, or a wrapper that gives its forward named arguments or makes it a submodule."""
    names: Sequence[str] = FORWARD_ARGUMENTS
    if isinstance(model, torch_geometric.nn.Sequential):
        names = list(model.signature.param_dict)
        count = len(names)
    elif stays_whole(model):
        parameters = inspect.signature(model.forward).parameters
        count = sum(name in FORWARD_ARGUMENTS for name in parameters) or 1
    else:
        return model, ""
    if not 1 <= count <= MOST_INPUTS:
        raise NotTraced(
            f"freeze: {type(model).__name__} takes {count} inputs, of which a trace can name "
            f"{MOST_INPUTS} at most"
        )
    return _wrapped(model, names[:count]), f"{WRAPPED}."


def _wrapped(model: nn.Module, names: Sequence[str]) -> nn.Module:
    """A module whose forward takes arguments of these names and hands them to the model."""
    default = "=None" if tuple(names) == FORWARD_ARGUMENTS else ""
    call = f"return self.{WRAPPED}({', '.join(names)})"
    scope: dict[str, Any] = {}
    exec(f"def forward(self, {', '.join(names)}{default}): {call}", scope)
    wrapper = type("_Wrapper", (nn.Module,), {"forward": scope["forward"]})()
    wrapper.add_module(WRAPPED, model)
    return wrapper


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Every module in evaluation, then as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
