"""Steps that call a module or function as the user's own forward does, and how files hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bitgnn.inference.own_code.known import (
    Unsavable,
    check_attribute,
    describe_function,
    read_function,
)
from bitgnn.inference.own_code.structure import parts_of, with_parts

EDGE_INDEX = "edge_index"
EDGE_WEIGHT = "edge_weight"
NODES = "number of nodes"
"""A part of every graph, with a name that no argument has."""
RESULTS = "results"
"""Name of the step that joins what a forward returns where that is more than one tensor."""
CALLS = "calls."
"""How the tensors of calls begin in the state of a model."""
_DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


class Input:
    """Place of a value among a call's arguments: number of an input, or a part of the graph."""

    def __init__(self, place: int | str) -> None:
        self.place = place


class FloatCall(nn.Module):
    """A module or function with its arguments, :class:`Input` in place of values.

    Its buffers and parameters move with the frozen model. ``name`` stands in messages; ``size`` is
    the width of the result, or None where it is not known.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        size: int | None,
    ) -> None:
        super().__init__()
        self.name = name
        self.function = function
        self.leaves, self.structure = pytree.tree_flatten((args, dict(kwargs)))
        for number, leaf in enumerate(self.leaves):
            if isinstance(leaf, Tensor):  # a constant of the user's forward
                self.register_buffer(f"constant_{number}", leaf.detach())
                self.leaves[number] = None
        self.size = size

    @property
    def parts(self) -> set[str]:
        """Names of what it reads besides values: parts of the graph and further inputs."""
        places = (part.place for leaf in self.leaves for part in _parts_of(leaf))
        return {place for place in places if isinstance(place, str)}

    def forward(self, values: Sequence[Any], graph: Any) -> Any:
        """Call with the given values of the inputs."""

        def filled(leaf: Any) -> Any:
            if isinstance(leaf, Input):
                place = leaf.place
                return values[place] if isinstance(place, int) else graph.part(place)
            if isinstance(leaf, slice):
                return slice(filled(leaf.start), filled(leaf.stop), filled(leaf.step))
            return leaf

        leaves = [
            self._buffers.get(f"constant_{number}") if leaf is None else filled(leaf)
            for number, leaf in enumerate(self.leaves)
        ]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return self.function(*args, **kwargs)


def _parts_of(leaf: Any) -> list[Input]:
    if isinstance(leaf, slice):
        return [p for p in (leaf.start, leaf.stop, leaf.step) if isinstance(p, Input)]
    return [leaf] if isinstance(leaf, Input) else []


def unsaved(call: FloatCall) -> str:
    """Addition to a report on a call that no checkpoint can hold, or not without the model."""
    try:
        described = describe_call(call)
    except Unsavable as reason:
        return f"; save() cannot hold it, {reason}"
    why = described["function"].get("why")
    return f"; load() takes it from the model, {why}" if why else ""


def is_unsaved(calls: Iterable[nn.Module] | None) -> bool:
    """True if a checkpoint cannot hold one of these calls, or not without the model."""
    return any(isinstance(call, FloatCall) and unsaved(call) for call in calls or ())


def describe_call(call: FloatCall) -> dict[str, Any]:
    """A call without its tensors, as plain values; Unsavable where something has no name.

    A module of the user's is told by its name in the model, and by the packed layers in it.
    """
    leaves = [
        _Constant(number) if f"constant_{number}" in call._buffers else leaf
        for number, leaf in enumerate(call.leaves)
    ]
    args, kwargs = pytree.tree_unflatten(leaves, call.structure)
    try:
        function = describe_function(call.function)
    except Unsavable as reason:
        if not isinstance(call.function, nn.Module):
            raise
        parts = parts_of(call.function)
        function = {"own": call.name, "parts": parts, "why": str(reason)}
    check_attribute(function, args[1] if len(args) > 1 else None)
    return {
        "name": call.name,
        "function": function,
        "args": _described(args),
        "kwargs": _described(kwargs),
        "size": call.size,
    }


def needs_model(descriptions: Any) -> bool:
    """True if calls run modules of the user's, which no file holds."""
    calls = descriptions if isinstance(descriptions, list) else []
    functions = (call.get("function") for call in calls if isinstance(call, dict))
    return any(isinstance(function, dict) and "own" in function for function in functions)


def _own_function(
    description: Mapping[str, Any], tensors: Mapping[str, Tensor], model: nn.Module | None
) -> nn.Module:
    """A copy of a module of the user's, with packed layers in their places."""
    name = str(description["own"])
    if model is None:
        raise ValueError(f"the model must be given for its {name!r}")
    module = model if name == type(model).__name__ else model.get_submodule(name)
    made = with_parts(module, description["parts"], tensors, "function.").requires_grad_(False)
    made.eval()
    return made


def read_call(
    description: Any, tensors: Mapping[str, Tensor], model: nn.Module | None = None
) -> FloatCall:
    """The inverse of :func:`describe_call`; a ValueError says what is wrong or not known.

    ``model`` is the one that has the user's modules among the calls.
    """
    names = {"name", "function", "args", "kwargs", "size"}
    if not isinstance(description, Mapping) or description.keys() != names:
        raise ValueError(f"a call must have the entries {sorted(names)}, got {description}")
    told = description["function"]
    if isinstance(told, Mapping) and "own" in told:
        function = _own_function(told, tensors, model)
    else:
        function = read_function(told, tensors)
    args = _read(description["args"], tensors)
    kwargs = _read(description["kwargs"], tensors)
    if not isinstance(args, tuple) or not isinstance(kwargs, dict):
        raise ValueError("the arguments of a call are wrong")
    check_attribute(description["function"], args[1] if len(args) > 1 else None)
    call = FloatCall(str(description["name"]), function, args, kwargs, description["size"])
    call.load_state_dict(dict(tensors), assign=True)
    return call.requires_grad_(False)


def read_calls(
    descriptions: list[Any], tensors: Mapping[str, Tensor], model: nn.Module | None = None
) -> list[FloatCall]:
    """The calls of a model from their descriptions and its state, which must fit them."""
    found = []
    for number, description in enumerate(descriptions):
        prefix = f"{CALLS}{number}."
        held = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        try:
            found.append(read_call(description, held, model))
        except RuntimeError as error:  # a tensor that does not fit
            raise ValueError(str(error)) from error
    return found


@dataclass(frozen=True)
class _Constant:
    """A tensor of the user's forward, by its number among the leaves."""

    number: int


def _described(value: Any) -> Any:
    if isinstance(value, _Constant):
        return {"constant": value.number}
    if isinstance(value, Input):
        return {"input": value.place}
    if isinstance(value, slice):
        return {"slice": [_described(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value)}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [_described(v) for v in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _described(item) for key, item in value.items()}}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise Unsavable(f"a {type(value).__name__} is no plain value")


def _read(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, Mapping):
        if isinstance(value, list):
            raise ValueError("an argument of a call is wrong")
        return value
    ((kind, held),) = value.items()
    if kind == "tuple":
        return tuple(_read(item, tensors) for item in held)
    if kind == "list":
        return [_read(item, tensors) for item in held]
    if kind == "dict":
        return {key: _read(item, tensors) for key, item in held.items()}
    if kind == "slice":
        return slice(*(_read(part, tensors) for part in held))
    if kind == "constant":
        return tensors[f"constant_{held}"]
    if kind == "input" and isinstance(held, int | str):
        return Input(held)
    if kind == "dtype" and held in _DTYPES:
        return _DTYPES[held]
    if kind == "ellipsis":
        return Ellipsis
    raise ValueError(f"an argument of a call is wrong: {value}")
