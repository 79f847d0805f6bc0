"""Activations, norms and dropout of one matrix: a row each, for modules, functions and methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn.norm import BatchNorm

from bitgnn.convert.network.output import LAST_DIMENSIONS
from bitgnn.convert.network.values import (
    Unsupported,
    Value,
    batch_norm,
    function_of,
    named,
    with_size,
)
from bitgnn.nn import NodeStandardize

__all__ = ["ACTIVATIONS", "DROPOUTS", "lower_module"]

DROPOUTS = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.AlphaDropout)
NORMALISATIONS: dict[type, str] = {nn.Softmax: "softmax", nn.LogSoftmax: "log_softmax"}


@dataclass(frozen=True)
class Activation:
    """A function of every entry, called with a name and its arguments as a rule of a trace.

    Attributes:
        name: in :data:`bitgnn.inference.steps.floats.FUNCTIONS`, which computes it.
        module: torch's class.
        targets: torch's functions, and methods by name.
        options: by attribute of the step, the argument of function and module, and its default.
        fixed: further attributes of the step.
    """

    name: str
    module: type[nn.Module]
    targets: tuple[Any, ...]
    options: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, name: str, x: Any, *rest: Any, **given: Any) -> Value:
        """The value of a call of the function or method.

        Raises:
            Unsupported: it is called with something else than a matrix and plain options.
        """
        if not isinstance(x, Value):
            raise Unsupported("it takes something else than a matrix")
        arguments = [argument for argument, _ in self.options.values()]
        places = [*arguments, "inplace"]
        given = {**dict(zip(places, rest, strict=False)), **given}
        if len(rest) > len(places) or given.keys() - set(places):
            raise Unsupported("its options have no form in frozen models")
        return self._of(name, x, given)

    def of_module(self, name: str, module: Any, x: Value) -> Value:
        """The value of a module."""
        return self._of(name, x, {a: getattr(module, a) for a, _ in self.options.values()})

    def _of(self, name: str, x: Value, given: Mapping[str, Any]) -> Value:
        attributes = dict(self.fixed)
        for attribute, (argument, default) in self.options.items():
            value = given.get(argument, default)
            if not isinstance(value, str if isinstance(default, str) else int | float):
                raise Unsupported("its options have no form in frozen models")
            attributes[attribute] = type(default)(value)
        return function_of(name, self.name, x, **attributes)


ACTIVATIONS = (
    Activation("relu", nn.ReLU, (torch.relu, torch.relu_, functional.relu, "relu", "relu_")),
    Activation("hardtanh", nn.ReLU6, (functional.relu6,), fixed={"low": 0.0, "high": 6.0}),
    Activation(
        "hardtanh",
        nn.Hardtanh,
        (functional.hardtanh,),
        {"low": ("min_val", -1.0), "high": ("max_val", 1.0)},
    ),
    Activation("tanh", nn.Tanh, (torch.tanh, functional.tanh, "tanh")),
    Activation("sigmoid", nn.Sigmoid, (torch.sigmoid, functional.sigmoid, "sigmoid")),
    Activation("elu", nn.ELU, (functional.elu,), {"alpha": ("alpha", 1.0)}),
    Activation(
        "leaky_relu", nn.LeakyReLU, (functional.leaky_relu,), {"slope": ("negative_slope", 0.01)}
    ),
    Activation("gelu", nn.GELU, (functional.gelu,), {"approximate": ("approximate", "none")}),
    Activation("silu", nn.SiLU, (functional.silu,)),
)
"""A new activation has a row here, and its arithmetic among the functions of frozen models."""

_OF_MODULES: dict[type[nn.Module], Callable[..., Value]] = {
    row.module: row.of_module for row in ACTIVATIONS
}


def lower_module(name: str, module: nn.Module, value: Value) -> Value:
    """A module of one matrix: activation, norm or dropout in evaluation.

    Raises:
        Unsupported: there is no such function among those a frozen model knows.
    """
    if isinstance(module, DROPOUTS):
        return value
    if isinstance(module, BatchNorm):
        module = module.module
    if isinstance(module, nn.BatchNorm1d):
        return batch_norm(name, module, value)
    if isinstance(module, NodeStandardize):
        return function_of(name, "standardize", value)
    if type(module) is nn.LayerNorm and len(module.normalized_shape) == 1:
        tensors = named(weight=module.weight, bias=module.bias)
        size = with_size(value, module.normalized_shape[0], name).size
        attributes = {"eps": float(module.eps)}
        return Value("function", name, (value,), size, "layer_norm", attributes, tensors)
    if isinstance(module, nn.Softmax | nn.LogSoftmax) and module.dim in LAST_DIMENSIONS:
        return function_of(name, NORMALISATIONS[type(module)], value)
    known = _OF_MODULES.get(type(module))
    if known is None:
        raise Unsupported("frozen models know no such function")
    return known(name, module, value)
