"""Modules of torch and PyG as plain values: class, attributes and parts, without constructors.

A module of a listed package is told by the name of its class, by those of its attributes that
differ from an empty module's, and by its parts. It is made again from them with the tensors of the
file as parameters. Neither a constructor of the class nor any code of a user runs.
"""

from __future__ import annotations

import contextlib
import copy
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch_geometric.nn import MessagePassing

from bitgnn.inference.bounds import check_arguments

_OF_PYG = (
    "aggr", "attention", "conv", "dense", "encoding", "models", "norm", "pool", "unpool"
)  # fmt: skip
_PACKAGES = (
    "torch.nn.modules.",
    "torch_geometric.nn.module_dict.",
    "torch_geometric.nn.parameter_dict.",
    "bitgnn.nn.transformer_conv.",
    "torch_geometric.utils._trim_to_layer.",
    *(f"torch_geometric.nn.{part}." for part in _OF_PYG),
)
"""Where the classes are that a file may name: tensor arithmetic alone, which loads nothing."""
_MOVED = {"bitgnn.nn.transformer_conv.": "bitgnn.nn.attention.transformer_conv."}
"""Names of modules in files, and where these modules are."""
_ENTRIES = {"class", "attributes", "parameters", "buffers", "parts"}
_DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_KINDS: dict[str, Callable[..., Any]] = {"tuple": tuple, "list": list, "set": set}
_OF_MODULES = frozenset(vars(nn.Module()))
_KEPT_BY_TORCH = ("_flat_weights", "_flat_weight_refs")
"""Lists of the parameters of recurrent modules, which torch makes of them."""


class Untold(ValueError):
    """A module that plain values do not tell; the message says why."""


class Form(NamedTuple):
    """How modules of a class of this package are told.

    Attributes:
        kind: the class, or several.
        describe: plain values of a module.
        read: the inverse; takes them and the module's state.
    """

    kind: type[nn.Module] | tuple[type[nn.Module], ...]
    describe: Callable[[Any], Any]
    read: Callable[[Any, Mapping[str, Tensor]], nn.Module]


FORMS: dict[str, Form] = {}
"""Classes of this package by the entry that stands for them."""


class Names(NamedTuple):
    """Functions that attributes may hold, by name and the other way round."""

    of_functions: Mapping[Any, str]
    functions: Mapping[str, Any]


def describe_structure(module: nn.Module, names: Names) -> dict[str, Any]:
    """Plain values of a module; Untold where it holds something else."""
    for entry, form in FORMS.items():
        if isinstance(module, form.kind):
            return {entry: form.describe(module)}
    kind = type(module)
    name = _name_of(kind)
    if _class_of(name) is not kind:
        raise Untold(f"{kind.__name__} is a class of its own")
    hooks = [
        key for key, held in vars(module).items() if "forward" in key and "hooks" in key and held
    ]
    if hooks:
        raise Untold(f"{kind.__name__} has hooks")
    lost = [key for key in module._non_persistent_buffers_set if module._buffers[key] is not None]
    if lost:
        raise Untold(f"{kind.__name__} keeps {', '.join(lost)} out of its state")
    fresh = vars(_empty(kind))
    attributes = {}
    for key, value in vars(module).items():
        if key in _OF_MODULES or key in _KEPT_BY_TORCH:
            continue
        try:
            told = _told(value, names)
            if key not in fresh or _told(fresh[key], names) != told:
                attributes[key] = told
        except Untold as error:
            if type(fresh.get(key)) is type(value) and _is_of_messages(key):
                continue
            raise Untold(f"{key} of {kind.__name__} is no plain value, {error}") from None
    return {
        "class": name,
        "attributes": attributes,
        "parameters": {key: value is not None for key, value in module._parameters.items()},
        "buffers": {key: value is not None for key, value in module._buffers.items()},
        "parts": {
            key: None if part is None else describe_structure(part, names)
            for key, part in module._modules.items()
        },
    }


def read_structure(
    description: Any, state: Mapping[str, Tensor], names: Names, prefix: str = ""
) -> nn.Module:
    """The inverse of :func:`describe_structure`, in evaluation; ValueError for anything else.

    ``state`` holds the module's tensors by name behind ``prefix``.
    """
    if isinstance(description, Mapping) and len(description) == 1:
        ((entry, held),) = description.items()
        if entry in FORMS:
            return FORMS[entry].read(held, inside(state, prefix))
    if not isinstance(description, Mapping) or description.keys() != _ENTRIES:
        raise ValueError(f"a module must have the entries {sorted(_ENTRIES)}")
    if not all(isinstance(description[entry], Mapping) for entry in _ENTRIES - {"class"}):
        raise ValueError("the entries of a module must be mappings")
    kind = _class_of(description["class"])
    if kind is None:
        raise ValueError(f"module {description['class']!r} is unknown")
    made = _empty(kind)
    check_arguments(description["attributes"])
    for key, value in description["attributes"].items():
        hidden = getattr(kind, str(key), None)
        if not str(key).isidentifier() or key.startswith("__") or key in _OF_MODULES:
            raise ValueError(f"{kind.__name__} has no attribute {key!r}")
        if callable(hidden) or isinstance(hidden, property):
            raise ValueError(f"attribute {key!r} of {kind.__name__} is its own")
        made.__dict__[key] = _untold(value, names)
    for key, is_there in description["parameters"].items():
        tensor = state[f"{prefix}{key}"] if is_there else None
        made.register_parameter(key, None if tensor is None else nn.Parameter(tensor, False))
    for key, is_there in description["buffers"].items():
        made.register_buffer(key, state[f"{prefix}{key}"] if is_there else None)
    for key, part in description["parts"].items():
        child = None if part is None else read_structure(part, state, names, f"{prefix}{key}.")
        made.__dict__.pop(key, None)
        made.add_module(key, child)
    if isinstance(made, nn.RNNBase):
        made._init_flat_weights()
    return made.eval()


def parts_of(module: nn.Module) -> dict[str, Any]:
    """Plain values of the parts that have a form of this package, by name.

    Whatever is around them, and those that plain values do not tell, a model has to give.
    """
    found: dict[str, Any] = {}
    for name, part in module.named_modules():
        for entry, form in FORMS.items():
            is_inside = any(not other or name.startswith(f"{other}.") for other in found)
            if isinstance(part, form.kind) and not is_inside:
                with contextlib.suppress(ValueError):
                    found[name] = {entry: form.describe(part)}
    return found


def with_parts(
    module: nn.Module, parts: Mapping[str, Any], state: Mapping[str, Tensor], prefix: str = ""
) -> nn.Module:
    """A copy of a module with the parts that :func:`parts_of` told in their places."""
    replaced: dict[str, nn.Module] = {}
    for name, description in parts.items():
        ((entry, held),) = description.items()
        replaced[name] = FORMS[entry].read(
            held, inside(state, f"{prefix}{name}." if name else prefix)
        )
    return copy_with(module, replaced)


def copy_with(model: nn.Module, replaced: Mapping[str, nn.Module]) -> nn.Module:
    """A copy of a model with other modules, by name, in the places of some that are not copied."""
    memo: dict[int, Any] = {id(model.get_submodule(name)): new for name, new in replaced.items()}
    # Results that a model keeps of its last training step cannot be copied with their history.
    for module in model.modules():
        held = (v for k, v in vars(module).items() if k not in ("_modules", "_parameters"))
        for part in tree_leaves(list(held)):
            if isinstance(part, Tensor) and part.grad_fn is not None:
                memo[id(part)] = part.detach()
    return copy.deepcopy(model, memo)


def _class_of(name: Any) -> type[nn.Module] | None:
    """A class of the listed packages by its full name, where its module is loaded already."""
    if not isinstance(name, str) or not name.startswith(_PACKAGES):
        return None
    module, _, last = name.rpartition(".")
    place = _MOVED.get(f"{module}.", module).rstrip(".")
    found = getattr(sys.modules.get(place), last, None)
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        return None
    return found if _name_of(found) == name else None


def _name_of(kind: type[nn.Module]) -> str:
    """Full name of a class in files."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    for name_in_files, place in _MOVED.items():
        if name.startswith(place):
            return name_in_files + name.removeprefix(place)
    return name


def _empty(kind: type[nn.Module]) -> nn.Module:
    """A module of a class as its base leaves it, without the class's own constructor."""
    made = kind.__new__(kind)
    if isinstance(made, MessagePassing):
        MessagePassing.__init__(made, aggr=None)
        made._modules.clear()
    else:
        nn.Module.__init__(made)
    return made


def _is_of_messages(key: str) -> bool:
    """True if PyG's base class makes an attribute anew: its inspector, and empty hooks."""
    return key == "inspector" or key.endswith("_hooks")


def inside(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors by name behind a prefix."""
    return {n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)}


def _told(value: Any, names: Names) -> Any:
    """A value of plain parts; Untold for others."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype):
        return {"dtype": str(value)}
    for entry, kind in (*_KINDS.items(), ("tuple", torch.Size)):
        if type(value) is kind:
            parts = sorted(value, key=str) if entry == "set" else value
            return {entry: [_told(part, names) for part in parts]}
    if type(value) is dict:
        return {"dict": [[_told(k, names), _told(v, names)] for k, v in value.items()]}
    try:
        name = names.of_functions.get(value)
    except TypeError:
        name = None
    if name is None:
        raise Untold(f"a {type(value).__name__}")
    return {"function": name}


def _untold(value: Any, names: Names) -> Any:
    """The inverse of :func:`_told`."""
    if not isinstance(value, Mapping):
        if isinstance(value, list):
            raise ValueError("an attribute of a module is wrong")
        return value
    ((entry, held),) = value.items()
    if entry == "dtype" and held in _DTYPES:
        return _DTYPES[held]
    if entry == "float" and held in ("inf", "-inf", "nan"):
        return float(held)
    if entry == "function" and held in names.functions:
        return names.functions[held]
    if entry in _KINDS and isinstance(held, list):
        return _KINDS[entry](_untold(part, names) for part in held)
    if entry == "dict" and isinstance(held, list):
        return {_untold(key, names): _untold(part, names) for key, part in held}
    raise ValueError(f"an attribute of a module is wrong: {value}")
