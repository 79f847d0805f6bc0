"""Modules that a checkpoint may name: class, constructor arguments as plain values, and tensors."""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing, aggr, norm

import bitgnn.nn
from bitgnn.inference.bounds import check_arguments, parameters_on_meta
from bitgnn.nn import LayerPrecision


class Unsavable(ValueError):
    """Something that no checkpoint can name; the message says what."""


_TORCH = (
    "Identity", "Dropout", "Dropout1d", "AlphaDropout", "FeatureAlphaDropout", "Flatten", "Linear",
    "Bilinear", "Embedding", "BatchNorm1d", "LayerNorm", "GroupNorm", "InstanceNorm1d", "RMSNorm",
    "ReLU", "ReLU6", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Sigmoid", "LogSigmoid", "Tanh",
    "Softplus", "Softsign", "Softshrink", "Hardshrink", "Tanhshrink", "Hardtanh", "Hardsigmoid",
    "Hardswish", "LeakyReLU", "PReLU", "RReLU", "Threshold", "GLU", "Softmax", "LogSoftmax",
    "Softmin", "CosineSimilarity", "PairwiseDistance",
)  # fmt: skip
_NORMS = (
    "BatchNorm", "InstanceNorm", "LayerNorm", "GraphNorm", "GraphSizeNorm", "PairNorm",
    "MeanSubtractionNorm", "MessageNorm", "DiffGroupNorm",
)  # fmt: skip
_AGGREGATIONS = (
    "SumAggregation", "MeanAggregation", "MaxAggregation", "MinAggregation", "MulAggregation",
    "VarAggregation", "StdAggregation", "MedianAggregation", "SortAggregation",
    "VariancePreservingAggregation",
)  # fmt: skip
_PYG = (
    "Linear", "JumpingKnowledge", "GCNConv", "SAGEConv", "GraphConv", "GATConv", "GATv2Conv",
    "ChebConv", "TAGConv", "LEConv", "SGConv", "APPNP", "InnerProductDecoder",
)  # fmt: skip
_OWN = ("GCNConv", "SAGEConv", "GraphConv", "Linear", "BinaryLinear", "NodeStandardize")


def _named(package: str, owner: Any, names: tuple[str, ...]) -> dict[str, type[nn.Module]]:
    return {f"{package}.{name}": getattr(owner, name) for name in names if hasattr(owner, name)}


MODULES: dict[str, type[nn.Module]] = {
    **_named("torch.nn", nn, _TORCH),
    **_named("torch_geometric.nn.norm", norm, _NORMS),
    **_named("torch_geometric.nn.aggr", aggr, _AGGREGATIONS),
    **_named("torch_geometric.nn", torch_geometric.nn, _PYG),
    **_named("bitgnn.nn", bitgnn.nn, _OWN),
}
"""All that a checkpoint can name; nothing else is ever looked up."""

_NAMES = {kind: name for name, kind in MODULES.items()}
_PLACES = ("device", "dtype")
_OF_MESSAGES = ("aggr", "flow", "node_dim")
"""Arguments of PyG's base class, beside those that a layer's own constructor lists."""


def _inside(path: str) -> Callable[[Any], Any]:
    """What reads an attribute of a part of a module."""
    return operator.attrgetter(path)


def _has(path: str) -> Callable[[Any], Any]:
    """What tells whether a part of a module is there."""
    return lambda module: operator.attrgetter(path)(module) is not None


_STATISTICS = ("eps", "momentum", "affine", "track_running_stats")
_ELSEWHERE: dict[tuple[str, str], Callable[[Any], Any]] = {
    **{("torch_geometric.nn.norm.BatchNorm", n): _inside(f"module.{n}") for n in _STATISTICS},
    **{("torch_geometric.nn.norm.DiffGroupNorm", n): _inside(f"norm.{n}") for n in _STATISTICS},
    ("torch_geometric.nn.norm.BatchNorm", "in_channels"): _inside("module.num_features"),
    ("torch_geometric.nn.norm.InstanceNorm", "in_channels"): _inside("num_features"),
    ("torch_geometric.nn.norm.MessageNorm", "learn_scale"): _inside("scale.requires_grad"),
    ("torch.nn.PReLU", "init"): lambda m: 0.25,
    **{
        (f"{package}.{kind}", "bias"): _has(f"{lin}.bias")
        for package in ("torch_geometric.nn", "bitgnn.nn")
        for kind, lin in (("SAGEConv", "lin_l"), ("GraphConv", "lin_rel"))
    },
    ("torch.nn.PairwiseDistance", "p"): _inside("norm"),
    ("torch_geometric.nn.aggr.StdAggregation", "semi_grad"): _inside("var_aggr.semi_grad"),
    ("torch_geometric.nn.SGConv", "bias"): _has("lin.bias"),
    ("torch_geometric.nn.LEConv", "bias"): _has("lin1.bias"),
    ("torch_geometric.nn.ChebConv", "K"): lambda m: len(m.lins),
}
"""Constructor arguments that a module holds under another name."""


def describe_module(module: nn.Module) -> dict[str, Any]:
    """Class and constructor arguments of a module, as plain values.

    Raises:
        Unsavable: its class is not of those known, or an argument cannot be told from it.
    """
    name = _NAMES.get(type(module))
    if name is None:
        raise Unsavable(f"{type(module).__name__} is a class of its own")
    arguments: dict[str, Any] = {}
    signature = inspect.signature(type(module).__init__).parameters
    wanted = [
        parameter.name
        for parameter in signature.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.name not in ("self", *_PLACES)
        and not parameter.name.startswith("_")
    ]
    for parameter in wanted:
        arguments[parameter] = _plain(name, module, parameter)
    description = {"module": name, "arguments": arguments}
    made = _made(module, description)
    if isinstance(module, MessagePassing):
        for parameter in _OF_MESSAGES:
            if parameter not in wanted and getattr(made, parameter) != getattr(module, parameter):
                arguments[parameter] = _plain(name, module, parameter)
        made = _made(module, description)
    _check(module, made)
    return description


def _made(module: nn.Module, description: Mapping[str, Any]) -> nn.Module:
    try:
        return read_module(description)
    except Exception as error:  # constructors of other packages
        raise Unsavable(f"{type(module).__name__} cannot be made again, {error}") from error


def _plain(name: str, module: nn.Module, parameter: str) -> Any:
    elsewhere = _ELSEWHERE.get((name, parameter))
    if elsewhere is not None:
        value = elsewhere(module)
    elif parameter == "precision":
        value = getattr(module, "letters", None)
        if getattr(module, "has_role", False):
            value = module.precision  # its letters follow from its role, which is among its tensors
    else:
        try:
            value = getattr(module, parameter)
        except AttributeError:
            what = f"{type(module).__name__} does not tell its {parameter}"
            raise Unsavable(what) from None
    if parameter == "bias" and (value is None or isinstance(value, Tensor)):
        value = value is not None
    if isinstance(value, LayerPrecision) and is_dataclass(value):
        value = {"precision": asdict(value)}
        plain = value["precision"].values()
    else:
        plain = value if isinstance(value, list | tuple) else (value,)
    if not all(part is None or isinstance(part, bool | int | float | str) for part in plain):
        raise Unsavable(f"{parameter} of {type(module).__name__} is no plain value")
    return list(value) if isinstance(value, tuple) else value


def _check(module: nn.Module, made: nn.Module) -> None:
    """Whether what is made again is the same module."""

    def form(of: nn.Module) -> Any:
        messages = isinstance(of, MessagePassing)
        options = [getattr(of, name) for name in _OF_MESSAGES] if messages else []
        return repr(of), options, {name: tuple(t.shape) for name, t in of.state_dict().items()}

    try:
        if getattr(module, "input_bits", None) is not None:  # its weights are as wide as its bits
            made.load_state_dict(module.state_dict())
        is_same = form(made) == form(module)
    except (RuntimeError, AttributeError, ValueError) as error:  # a layer without weights yet
        raise Unsavable(f"{type(module).__name__} has no weights yet") from error
    if not is_same:
        raise Unsavable(f"{type(module).__name__} was changed after it was made")


def read_module(description: Any, tensors: Mapping[str, Tensor] | None = None) -> nn.Module:
    """A module of a class that is known, with tensors yet to be loaded.

    Args:
        description: of :func:`describe_module`.
        tensors: of the file, beyond which the module may not go; None for any module.

    Raises:
        ValueError: the class is not known, its arguments are no plain values, or it is too large.
    """
    if not isinstance(description, Mapping) or description.keys() != {"module", "arguments"}:
        raise ValueError(f"a module must have a class and arguments, got {description}")
    kind = MODULES.get(description["module"])
    arguments = description["arguments"]
    if kind is None or not isinstance(arguments, Mapping):
        raise ValueError(f"module {description['module']!r} is unknown")
    made: dict[str, Any] = {}
    for name, value in arguments.items():
        if name == "precision" and isinstance(value, Mapping):
            value = LayerPrecision(**value["precision"])
        made[name] = value
    # Its weights are drawn and thrown away; what it warns of, the trained one has warned of.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if tensors is None:
            return kind(**made).eval()
        check_arguments(arguments)
        with parameters_on_meta(tensors):
            return kind(**made).eval()
