"""How a checkpoint names functions, methods and modules of the lists."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.resolver import aggregation_resolver

from bitgnn.inference.bounds import check_arguments, parameters_on_meta
from bitgnn.inference.own_code.listed import (
    ATTRIBUTES,
    FUNCTIONS,
    METHODS,
    MODULES,
    Method,
    results,
)
from bitgnn.inference.own_code.structure import (
    FORMS,
    Form,
    Names,
    describe_structure,
    inside,
    read_structure,
)
from bitgnn.nn import LayerPrecision

__all__ = ["FUNCTIONS", "MODULES", "Method", "results"]


class Unsavable(ValueError):
    """Something that no checkpoint can name; the message says what."""


_FUNCTION_NAMES: dict[Any, str] = {function: name for name, function in reversed(FUNCTIONS.items())}
_NAMES = Names(_FUNCTION_NAMES, FUNCTIONS)
_AGGREGATION = "aggr_module."
"""How the tensors of a layer's aggregation begin in its state."""
_OF_MESSAGES = ("aggr", "flow", "node_dim")
"""Arguments of PyG's base class, beside those that a layer's own constructor lists."""


_BIAS = {"SAGEConv": "lin_l", "GraphConv": "lin_rel"}
"""The map that has a layer's bias, where the layer itself has none."""


def describe_module(module: nn.Module) -> dict[str, Any]:
    """Plain values of a module, from which it is made again; Unsavable where it has none.

    Class and arguments of the constructor, of layers of this package; else class, attributes and
    parts.
    """
    if type(module) in FORMS["layer"].kind:  # type: ignore[operator]
        return _describe_made(module)
    try:
        found = describe_structure(module, _NAMES)
        made = read_structure(found, module.state_dict(), _NAMES)
        is_same = describe_structure(made, _NAMES) == found
    except ValueError as error:
        raise Unsavable(str(error)) from error
    if not is_same:
        raise Unsavable(f"{type(module).__name__} cannot be made again")
    return {"structure": found}


def _describe_made(module: nn.Module) -> dict[str, Any]:
    name = next((name for name, kind in MODULES.items() if kind is type(module)), None)
    if name is None:
        raise Unsavable(f"{type(module).__name__} is a class of its own")
    arguments = {
        parameter.name: _plain(module, parameter.name)
        for parameter in inspect.signature(type(module).__init__).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.name not in ("self", "device", "dtype")
        and not parameter.name.startswith("_")
    }
    if isinstance(module, MessagePassing):
        arguments |= _aggregation(module)
    description = {"module": name, "arguments": arguments}
    made = _made(module, description)
    if isinstance(module, MessagePassing):
        for parameter in sorted(set(_OF_MESSAGES) - arguments.keys()):
            if getattr(made, parameter) != getattr(module, parameter):
                arguments[parameter] = _plain(module, parameter)
        made = _made(module, description)
    _check(module, made)
    return description


def _aggregation(module: MessagePassing) -> dict[str, Any]:
    """The aggregation of a layer as plain values, where its name alone does not make it again."""
    own = module.aggr_module
    if own is None:
        return {}
    try:
        found = describe_structure(own, _NAMES)
    except ValueError as error:
        raise Unsavable(str(error)) from error
    try:
        named = describe_structure(aggregation_resolver(module.aggr), _NAMES)
    except (TypeError, ValueError):  # it takes arguments, or its name shows them
        named = {}
    return {} if named == found else {"aggr": {"structure": found}}


def _made(module: nn.Module, description: Mapping[str, Any]) -> nn.Module:
    state = module.state_dict()
    try:
        return read_module(description, aggregation=inside(state, _AGGREGATION))
    except Exception as error:  # constructors of other packages
        raise Unsavable(f"{type(module).__name__} cannot be made again, {error}") from error


def _plain(module: nn.Module, parameter: str) -> Any:
    if parameter == "precision":
        value = getattr(module, "letters", None)
        if getattr(module, "has_role", False):
            value = module.precision  # its letters follow from its role, which is among its tensors
    else:
        try:
            held = _BIAS.get(type(module).__name__, "") if parameter == "bias" else ""
            value = getattr(module.get_submodule(held), parameter)
        except AttributeError:
            what = f"{type(module).__name__} does not tell its {parameter}"
            raise Unsavable(what) from None
    if parameter == "bias" and (value is None or isinstance(value, Tensor)):
        value = value is not None
    if isinstance(value, LayerPrecision):
        value = {"precision": asdict(value)}
        plain = value["precision"].values()
    else:
        plain = value if isinstance(value, list | tuple) else (value,)
    if not all(part is None or isinstance(part, bool | int | float | str) for part in plain):
        raise Unsavable(f"{parameter} of {type(module).__name__} is no plain value")
    return {"tuple": list(value)} if isinstance(value, tuple) else value


def _check(module: nn.Module, made: nn.Module) -> None:
    """True if what is made again is the same module."""

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


def read_module(
    description: Any,
    tensors: Mapping[str, Tensor] | None = None,
    aggregation: Mapping[str, Tensor] | None = None,
) -> nn.Module:
    """A module of a class that is known, with tensors yet to be loaded; ValueError for others.

    It may not go beyond ``tensors`` of the file; None sets no bounds. ``aggregation`` has those of
    its aggregation.
    """
    if not isinstance(description, Mapping) or description.keys() != {"module", "arguments"}:
        raise ValueError(f"a module must have a class and arguments, got {description}")
    kind = MODULES.get(description["module"])
    arguments = description["arguments"]
    if kind is None or not isinstance(arguments, Mapping):
        raise ValueError(f"module {description['module']!r} is unknown")
    made = dict(arguments)
    for key, value in arguments.items():
        if isinstance(value, Mapping) and "tuple" in value:
            made[key] = tuple(value["tuple"])
    if isinstance(made.get("precision"), Mapping):
        made["precision"] = LayerPrecision(**made["precision"]["precision"])
    # Its weights are drawn and thrown away; what it warns of, the trained one has warned of.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if tensors is not None:
            check_arguments(arguments)
        with contextlib.nullcontext() if tensors is None else parameters_on_meta(tensors):
            if isinstance(made.get("aggr"), Mapping):
                # Copies, since constructors reset their aggregation.
                copies = {key: tensor.clone() for key, tensor in (aggregation or {}).items()}
                made["aggr"] = read_structure(made["aggr"]["structure"], copies, _NAMES)
            return kind(**made).eval()


def _read_whole(description: Any, state: Mapping[str, Tensor]) -> nn.Module:
    """A module of this package inside of another one."""
    module = read_module(description, state, inside(state, _AGGREGATION))
    module.load_state_dict(dict(state), assign=True)
    return module


FORMS["layer"] = Form(
    tuple(kind for kind in MODULES.values() if kind.__module__.startswith("bitgnn.")),
    _describe_made,
    _read_whole,
)


def describe_function(function: Any) -> dict[str, Any]:
    """Name of a function or method, or description of a module; Unsavable where it has none."""
    if isinstance(function, nn.Module):
        return describe_module(function)
    if isinstance(function, Method):
        if function.__name__ not in METHODS:
            raise Unsavable(f"the method {function.__name__!r} has no name in checkpoints")
        return {"method": function.__name__}
    try:
        name = _FUNCTION_NAMES.get(function)
    except TypeError:
        name = None
    if name is None:
        called = getattr(function, "__name__", type(function).__name__)
        raise Unsavable(f"{called!r} is a function of its own")
    return {"function": name}


def read_function(description: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of :func:`describe_function`; a ValueError says what is not known."""
    if not isinstance(description, Mapping):
        raise ValueError(f"a function must be named, got {description}")
    if "module" in description:
        return read_module(description, tensors, inside(tensors, f"function.{_AGGREGATION}"))
    if "structure" in description:
        return read_structure(description["structure"], tensors, _NAMES, "function.")
    ((kind, name),) = description.items()
    if kind == "method" and name in METHODS:
        return Method(name)
    if kind == "function" and name in FUNCTIONS:
        return FUNCTIONS[name]
    raise ValueError(f"function {name!r} is unknown")


def check_attribute(function: Any, name: Any) -> None:
    """``getattr`` reads properties of tensors, nothing else."""
    if function == {"function": "builtins.getattr"} and name not in ATTRIBUTES:
        raise Unsavable(f"the attribute {name!r} has no name in checkpoints")
