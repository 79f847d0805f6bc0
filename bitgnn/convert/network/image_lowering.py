"""Reads the trace of a convolutional or fully connected network into values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

import bitgnn.nn
from bitgnn.convert.network.graph_layers import SUPPORTED
from bitgnn.convert.network.image_functions import Length, Shape, rule_of
from bitgnn.convert.network.image_layers import BINARY, lower_image_module
from bitgnn.convert.network.lower import Lowering, Network, lower_trace, mapped
from bitgnn.convert.network.values import Unsupported, Value
from bitgnn.convert.tracing.trace import Traced
from bitgnn.inference.steps.calls import FloatCall, Input

__all__ = ["is_image_network", "lower_images", "lower_model"]


def is_image_network(model: nn.Module) -> bool:
    """Whether a model belongs to this family: convolutions, or linear layers of torch's signature.

    Graph layers, and ``bitgnn.nn.Linear`` with its letters, belong to the other one, which also
    takes a ``BinaryLinear`` with a scale between them.
    """
    modules = list(model.modules())
    if any(isinstance(m, (*SUPPORTED, bitgnn.nn.Linear)) for m in modules):
        return False
    return any(isinstance(m, (nn.Conv2d, *BINARY)) for m in modules)


def lower_images(traced: Traced) -> Network:
    """Values of a traced forward.

    Raises:
        ValueError: something in it cannot be part of a frozen model; the message names it.
    """
    return _ImageLowering(traced, {}).run()


def lower_model(model: nn.Module, traced: Traced) -> Network:
    """Values of a traced forward of either family, with the precisions that its layers have."""
    return lower_images(traced) if is_image_network(model) else lower_trace(traced, {})


class _ImageLowering(Lowering):
    of_images = True

    def _features(self, name: str) -> Value:
        value = super()._features(name)
        value.rank = None
        return value

    def _rule(self, target: Any) -> Any:
        return rule_of(target)

    def _module(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        target = str(node.target)
        name, module = self.traced.name_of(target), self.traced.root.get_submodule(target)
        try:
            if len(args) != 1 or kwargs or not isinstance(args[0], Value):
                raise Unsupported("it takes something else than one value")
            value = lower_image_module(name, module, args[0])
        except Unsupported as reason:
            return self._call(name, module, args, kwargs, str(reason))
        if value.kind == "product":
            letter = "B" if value.attributes["input_step"] is None else "F"
            self.network.letters[name] = f"{letter}BF"
        if isinstance(module, nn.Conv2d | nn.Linear):
            self.network.outputs[name] = value
        return value

    def _call(self, name: str, function: Any, args: Any, kwargs: Any, reason: str) -> Any:
        args, kwargs = (mapped(part, _measured) for part in (args, kwargs))
        value = super()._call(name, function, args, kwargs, reason)
        if isinstance(value, Value):
            value.rank = None
        return value


def _measured(leaf: Any) -> Any:
    """Shapes that the user's own code reads, as calls: they are known when it runs."""
    if not isinstance(leaf, Shape | Length):
        return leaf
    dim = leaf.dim if isinstance(leaf, Length) else None
    args = (Input(0),) if dim is None else (Input(0), dim)
    call = FloatCall(leaf.value.layer, _shape_of, args, {}, None)
    return Value("call", leaf.value.layer, (leaf.value,), call=call, rank=None)


def _shape_of(x: Tensor, dim: int | None = None) -> Any:
    return torch.Size(x.shape) if dim is None else x.size(dim)
