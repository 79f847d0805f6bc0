"""Modules of one value: activations, norms, dropout, pools and convolutions; a row for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn.norm import BatchNorm

from bitgnn.convert.network import images
from bitgnn.convert.network.output import LAST_DIMENSIONS
from bitgnn.convert.network.values import (
    IMAGES,
    ROWS,
    Unsupported,
    Value,
    batch_norm,
    function_of,
    function_on,
    named,
    of_rank,
    with_size,
)
from bitgnn.nn import ChannelShortcut, NodeStandardize


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
        return function_on(x, name, self.name, **attributes)


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


def _layer_norm(name: str, module: nn.LayerNorm, value: Value) -> Value:
    if type(module) is not nn.LayerNorm or len(module.normalized_shape) != 1:
        raise Unsupported("frozen models know no such function")
    if value.rank != ROWS:
        raise Unsupported("frozen models know no such function of images")
    tensors = named(weight=module.weight, bias=module.bias)
    size = with_size(value, module.normalized_shape[0], name).size
    attributes = {"eps": float(module.eps)}
    return Value("function", name, (value,), size, "layer_norm", attributes, tensors)


def _softmax(name: str, module: nn.Softmax | nn.LogSoftmax, value: Value) -> Value:
    if module.dim not in LAST_DIMENSIONS:
        raise Unsupported("frozen models know no such function")
    function = "softmax" if isinstance(module, nn.Softmax) else "log_softmax"
    return function_of(name, function, of_rank(value, ROWS, name))


def _flatten(name: str, module: nn.Flatten, value: Value) -> Value:
    return images.flatten(name, value, module.start_dim, module.end_dim)


_NORMS = {nn.BatchNorm2d: IMAGES, nn.BatchNorm1d: ROWS}
_MODULES: tuple[tuple[Any, Callable[[str, Any, Value], Value]], ...] = (
    (
        (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout),
        lambda name, module, value: value,
    ),
    (BatchNorm, lambda name, module, value: batch_norm(name, module.module, value)),
    (
        (nn.BatchNorm2d, nn.BatchNorm1d),
        lambda name, norm, value: batch_norm(
            name, norm, of_rank(value, _NORMS.get(type(norm), ROWS), name)
        ),
    ),
    (NodeStandardize, lambda name, module, value: function_of(name, "standardize", value)),
    (nn.LayerNorm, _layer_norm),
    ((nn.Softmax, nn.LogSoftmax), _softmax),
    (nn.Conv2d, images.convolution),
    (ChannelShortcut, images.shortcut),
    (nn.Flatten, _flatten),
    (
        nn.MaxPool2d,
        lambda name, m, value: images.max_pool(
            name, value, m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode,
            m.return_indices,
        ),
    ),
    (
        nn.AvgPool2d,
        lambda name, m, value: images.avg_pool(
            name, value, m.kernel_size, m.stride, m.padding, m.ceil_mode, m.count_include_pad,
            m.divisor_override,
        ),
    ),
    (
        nn.AdaptiveAvgPool2d,
        lambda name, m, value: images.adaptive_avg_pool(name, value, m.output_size),
    ),
)  # fmt: skip
"""A new module has a row here. Activations come before: they are of their very class."""


def lower_module(name: str, module: nn.Module, value: Value) -> Value:
    """A module of one value in evaluation.

    Raises:
        Unsupported: there is no such function among those a frozen model knows.
        ValueError: features or channels do not fit.
    """
    for activation in ACTIVATIONS:
        if type(module) is activation.module:
            return activation.of_module(name, module, value)
    for kinds, rule in _MODULES:
        if isinstance(module, kinds):
            return rule(name, module, value)
    raise Unsupported("frozen models know no such function")
