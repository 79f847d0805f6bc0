"""Layers whose sums run as in frozen models: own message passing, and those of floats alone."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn
from torch_geometric.nn import MessagePassing

import bitgnn.nn
from bitgnn.convert.network.tracer import traced_graph
from bitgnn.convert.swap.keeping import why_float
from bitgnn.nn.own_messages import take_messages
from bitgnn.nn.propagation.base import has_maps, kind_of, why_not_binary
from bitgnn.nn.propagation.reductions import aggregate

WHY = "its messages are plain"


def take_float_sums(model: nn.Module, precision: str) -> None:
    """Let layers that sum floats alone, such as APPNP, do so as frozen models do, in place."""
    for module in model.modules():
        kind = kind_of(module)
        if kind is None or has_maps(module) or why_float(module) or why_not_binary(module):
            continue
        module.__class__ = kind
        module.become(precision, 0.0)  # type: ignore[operator]


def take_own_messages(model: nn.Module, signs: bool) -> list[str]:
    """Let layers with plain messages aggregate as frozen models do, in place; their names.

    With ``signs``, linear maps whose results are aggregated at once hand on signs before another
    binary layer.
    """
    found = []
    for name, module in model.named_modules():
        if isinstance(module, MessagePassing) and take_messages(module):
            found.append(name)
            if signs:
                _sum_signs(module)
    return found


def _sum_signs(layer: nn.Module) -> None:
    parameters = inspect.signature(layer.forward).parameters.values()
    fixed = {p.name: p.default for p in parameters if p.default is not p.empty}
    try:
        graph, _ = traced_graph(layer, {k: v for k, v in fixed.items() if k != "edge_weight"})
    except Exception:  # it decides by values, and keeps floats
        return
    for node in graph.find_nodes(op="call_function", target=inspect.unwrap(aggregate)):
        source: Any = node.args[0]
        if source.op != "call_module" or len(source.users) != 1:
            continue
        linear = layer.get_submodule(str(source.target))
        if isinstance(linear, bitgnn.nn.Linear) and linear.has_role:
            linear.hand_on_signs()
