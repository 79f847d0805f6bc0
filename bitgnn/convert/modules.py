"""Modules of one matrix as values: activations, norms, dropout in evaluation."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch_geometric.nn.norm import BatchNorm

from bitgnn.convert.heads import LAST_DIMENSIONS
from bitgnn.convert.layers import Unsupported, batch_norm, function_of, named, with_size
from bitgnn.convert.values import Value
from bitgnn.nn import NodeStandardize

__all__ = ["lower_module"]


def lower_module(name: str, module: nn.Module, value: Value) -> Value:
    """A module of one matrix: activation, norm or dropout in evaluation.

    Raises:
        Unsupported: there is no such function among those a frozen model knows.
    """
    if isinstance(module, nn.Dropout | nn.Identity | nn.AlphaDropout | nn.Dropout1d):
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
        return function_of(name, _NORMALISATIONS[type(module)], value)
    known = _ACTIVATIONS.get(type(module))
    if known is None:
        raise Unsupported("frozen models know no such function")
    function, attributes = known(module)
    return function_of(name, function, value, **attributes)


_NORMALISATIONS: dict[type, str] = {nn.Softmax: "softmax", nn.LogSoftmax: "log_softmax"}

_ACTIVATIONS: dict[type, Any] = {
    nn.ReLU: lambda m: ("relu", {}),
    nn.ReLU6: lambda m: ("hardtanh", {"low": 0.0, "high": 6.0}),
    nn.Hardtanh: lambda m: ("hardtanh", {"low": float(m.min_val), "high": float(m.max_val)}),
    nn.Tanh: lambda m: ("tanh", {}),
    nn.Sigmoid: lambda m: ("sigmoid", {}),
    nn.ELU: lambda m: ("elu", {"alpha": float(m.alpha)}),
    nn.LeakyReLU: lambda m: ("leaky_relu", {"slope": float(m.negative_slope)}),
    nn.GELU: lambda m: ("gelu", {"approximate": m.approximate}),
    nn.SiLU: lambda m: ("silu", {}),
}
