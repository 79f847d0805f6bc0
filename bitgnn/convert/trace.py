"""Traces a model's forward with torch.fx, the layers kept whole."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch_geometric.nn
from torch import fx, nn
from torch_geometric.nn import MessagePassing

from bitgnn.nn import ChannelShortcut, NodeStandardize

__all__ = ["FORWARD_ARGUMENTS", "Traced", "evaluating", "trace_model"]

# What a forward may call its graph; other optional arguments keep their defaults.
FORWARD_ARGUMENTS = ("x", "edge_index", "edge_weight")
WRAPPED = "model"
LEAF_PACKAGES = ("torch.nn.", "torch_geometric.nn.norm", "torch_geometric.nn.aggr")


class Traced:
    """A traced forward.

    Attributes:
        graph: the torch.fx graph.
        root: module whose submodules the graph names.
        prefix: what to leave out of those names.
    """

    def __init__(self, graph: fx.Graph, root: nn.Module, prefix: str) -> None:
        self.graph = graph
        self.root = root
        self.prefix = prefix

    def name_of(self, target: str) -> str:
        """The name of a submodule in the user's model."""
        if self.prefix and f"{target}." == self.prefix:
            return type(self.root.get_submodule(target)).__name__
        return target.removeprefix(self.prefix)


class _Tracer(fx.Tracer):
    """Layers, norms and activations stay whole; so do modules whose code cannot be traced."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, nn.Sequential | nn.ModuleList):
            return False
        whole = (
            MessagePassing,
            nn.Linear,
            nn.Conv2d,
            torch_geometric.nn.Linear,
            torch_geometric.nn.JumpingKnowledge,
            NodeStandardize,
            ChannelShortcut,
        )
        return isinstance(m, whole) or type(m).__module__.startswith(LEAF_PACKAGES)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception as error:
            name = self.path_of_module(m)
            if any(isinstance(child, MessagePassing) for child in m.modules()):
                raise ValueError(
                    f"freeze: module {name!r} cannot be traced by torch.fx, {error}"
                ) from error
            return self.create_proxy("call_module", name, args, kwargs)


class _OneArgument(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any) -> Any:
        return self.model(x)


class _TwoArguments(_OneArgument):
    def forward(self, x: Any, edge_index: Any) -> Any:  # type: ignore[override]
        return self.model(x, edge_index)


class _ThreeArguments(_OneArgument):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:  # type: ignore[override]
        return self.model(x, edge_index, edge_weight)


_WRAPPERS = (_OneArgument, _TwoArguments, _ThreeArguments)


def trace_model(model: nn.Module) -> Traced:
    """Trace a model in evaluation; its mode is left as it was.

    Args:
        model: its forward takes features, and as it needs a graph and edge weights.

    Returns:
        The trace.

    Raises:
        ValueError: the forward cannot be traced; the message says what stands in the way.
    """
    root, prefix = _spelled_out(model)
    optional = {
        name: parameter.default
        for name, parameter in inspect.signature(root.forward).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    kept = {name: value for name, value in optional.items() if name not in FORWARD_ARGUMENTS}
    with evaluating(model):
        try:
            graph = _Tracer().trace(root, concrete_args=kept)
        except Exception as first:
            if isinstance(first, ValueError) and str(first).startswith("freeze:"):
                raise
            try:  # a forward that decides by the presence of edge weights
                graph = _Tracer().trace(root, concrete_args=optional)
            except Exception:
                raise ValueError(
                    f"freeze: the forward of {type(model).__name__} cannot be traced by "
                    f"torch.fx, {first}"
                ) from first
    return Traced(graph, root, prefix)


def _spelled_out(model: nn.Module) -> tuple[nn.Module, str]:
    """The model, or a wrapper that gives its forward named arguments or makes it a submodule."""
    if isinstance(model, torch_geometric.nn.Sequential):
        count = len(model.signature.param_dict)
    elif _Tracer().is_leaf_module(model, ""):
        parameters = inspect.signature(model.forward).parameters
        count = sum(name in FORWARD_ARGUMENTS for name in parameters) or 1
    else:
        return model, ""
    if not 1 <= count <= len(_WRAPPERS):
        raise ValueError(
            f"freeze: {type(model).__name__} takes {count} inputs, frozen models take features, "
            "a graph and edge weights"
        )
    return _WRAPPERS[count - 1](model), f"{WRAPPED}."


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
