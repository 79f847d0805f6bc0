"""The call of a frozen model, which is that of the trained one: its arguments and its result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch_geometric.data.data import BaseData
from torch_geometric.typing import SparseTensor

from bitgnn.bits import BitAdjacency, BitTensor, Int8Tensor

Role = Literal["features", "edge_index", "edge_weight", "input", "fixed", "unused"]
Missing = Literal["refuse", "none", "zeros", "decided"]

GRAPH = "adjacency"
"""What :meth:`FrozenModel.forward` calls its graph, whatever the trained model calls it."""
_ATTRIBUTES = {
    "features": ("x",),
    "edge_index": ("edge_index", "adj_t"),
    "edge_weight": ("edge_weight",),
}
"""Where a ``Data`` object has what an argument of another name asks for."""


@dataclass(frozen=True)
class Argument:
    """One argument of the trained forward, or one attribute of the ``Data`` it takes.

    Attributes:
        name: its name there.
        role: ``"features"``, ``"edge_index"`` and ``"edge_weight"`` are what layers read;
            ``"input"`` is given to float parts as it is; ``"unused"`` is read by nothing;
            ``"fixed"`` kept its default while freezing.
        missing: what a call without it means: an error, None, zeros (one int64 for each node), or
            an error for None too, since the forward runs other layers without it.
        in_data: whether the forward reads it from a ``Data`` object.
        default: how a fixed argument's value is written.
    """

    name: str
    role: Role
    missing: Missing = "refuse"
    in_data: bool = False
    default: str = "None"


class OtherForm(ValueError):
    """A call for which the trained forward runs other steps than those that were frozen."""


class Call(NamedTuple):
    """One call of a frozen model, sorted by what its steps read."""

    x: Any
    graph: Any
    weight: Any
    inputs: dict[str, Any]


class OwnCall:
    """Sorts the arguments of a call as the trained forward names them.

    ``arguments`` are the forward's, in its order; those of a ``Data`` object in the place of it.
    """

    def __init__(self, arguments: Sequence[Argument]) -> None:
        self.arguments = tuple(arguments)
        self.inputs = tuple(a for a in self.arguments if a.role == "input")
        self.reads_data = any(a.in_data for a in self.arguments)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnCall) and other.arguments == self.arguments

    def __hash__(self) -> int:
        return hash(self.arguments)

    def sort_call(
        self, x: Any, adjacency: Any, args: Sequence[Any], kwargs: Mapping[str, Any], is_ready: bool
    ) -> Call:
        """Sort the arguments of a call of :meth:`FrozenModel.forward` by role.

        ``is_ready`` says that ``adjacency`` is a prepared graph, which goes behind the features
        whatever the forward's order is. A TypeError names an argument that is unknown, left over
        or given twice, a ValueError one that has another value than while freezing.
        """
        named = dict(kwargs)
        aliases: tuple[tuple[Role, str], ...] = (("features", "x"), ("edge_index", GRAPH))
        for role, name in aliases:
            # Every frozen model knows these two, whatever the forward calls them.
            own = self._name_of(role, name)
            if name in named and own != name and not any(a.name == name for a in self.arguments):
                named[own] = named.pop(name)
        if not is_ready:
            given = [x, adjacency, *args]
            while given and given[-1] is None and not args:  # those two may be left out
                given.pop()
            return self._sort(given, named)
        named[self._name_of("edge_index", GRAPH)] = adjacency
        if isinstance(x, BaseData):
            args = [x, *args]
        elif x is not None:
            named[self._name_of("features", "x")] = x
        else:
            args = []
        return self._sort(list(args), named, set(named) - set(kwargs))

    def of_data(self, data: Any) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of the trained forward itself, in order and by name, from a ``Data`` object.

        An AttributeError whose text is a name tells what the object lacks.
        """
        args: list[Any] = [data] if self.reads_data else []
        named: dict[str, Any] = {}
        in_order = True
        for argument in self.arguments:
            if argument.in_data:
                continue
            value = None if argument.role == "fixed" else _attribute(data, argument)
            if value is None and argument.missing != "refuse":
                in_order = False  # its default
                continue
            if value is None and argument.role != "unused":
                raise AttributeError(argument.name)
            if in_order:
                args.append(value)
            else:
                named[argument.name] = value
        return args, named

    def _name_of(self, role: Role, name: str) -> str:
        return next((a.name for a in self.arguments if a.role == role), name)

    def _sort(self, args: list[Any], named: dict[str, Any], taken: Collection[str] = ()) -> Call:
        data = named.pop("data", None) if self.reads_data else None
        if data is None and args and isinstance(args[0], BaseData):
            data = args.pop(0)
        places = [
            a
            for a in self.arguments
            if a.name not in taken and (data is None or (self.reads_data and not a.in_data))
        ]
        if len(args) > len(places):
            raise TypeError(
                f"FrozenModel: the call takes {self._names()}, got {len(args) - len(places)} "
                "arguments more"
            )
        given = {a.name: value for a, value in zip(places, args, strict=False)}
        known = {a.name for a in self.arguments}
        for name, value in named.items():
            if name not in known or name in given:
                what = "twice" if name in given else "which it does not take"
                raise TypeError(f"FrozenModel: the call takes {self._names()}, got {name!r} {what}")
            given[name] = value
        if data is not None:
            for argument in self.arguments:
                if argument.name not in given and argument.role not in ("fixed", "unused"):
                    value = _attribute(data, argument)
                    if value is not None:
                        given[argument.name] = value
        self._check(given, is_ready=self._name_of("edge_index", GRAPH) in taken)
        held = {a.role: given.get(a.name) for a in self.arguments}
        inputs = {a.name: given[a.name] for a in self.inputs if a.name in given}
        return Call(held.get("features"), held.get("edge_index"), held.get("edge_weight"), inputs)

    def filled(
        self, inputs: Mapping[str, Any], num_nodes: int, device: torch.device
    ) -> dict[str, Any]:
        """The further inputs, what the call leaves out filled in; TypeError if it is needed."""
        found: dict[str, Any] = {}
        for argument in self.inputs:
            name, value = argument.name, inputs.get(argument.name)
            if value is None and argument.missing == "zeros":
                value = torch.zeros(num_nodes, dtype=torch.int64, device=device)
            if name not in inputs and argument.missing == "refuse":
                raise TypeError(f"FrozenModel: {name} must be given, the forward needs it")
            found[name] = value
        return found

    def _names(self) -> str:
        return ", ".join(a.name for a in self.arguments if a.role != "fixed") or "no arguments"

    def _check(self, given: Mapping[str, Any], is_ready: bool) -> None:
        """Fixed arguments keep their values, and what decided the forward's way is there.

        Edge weights may be part of a prepared graph.
        """
        for argument in self.arguments:
            name, value = argument.name, given.get(argument.name)
            if argument.role == "fixed" and name in given:
                if isinstance(value, Tensor) or repr(value) != argument.default:
                    got = "a tensor" if isinstance(value, Tensor) else repr(value)
                    raise OtherForm(
                        f"FrozenModel: {name} must be {argument.default}, which the forward "
                        f"was frozen with, got {got}"
                    )
            elif argument.missing == "decided" and value is None and not is_ready:
                raise OtherForm(
                    f"FrozenModel: {name} must be given, since the forward was frozen "
                    "with it and runs other layers without it"
                )

    def description(self) -> list[dict[str, Any]]:
        """Plain values that :meth:`from_description` reads."""
        return [asdict(argument) for argument in self.arguments]

    @classmethod
    def from_description(cls, description: Any) -> OwnCall:
        """Read what :meth:`description` gave; a ValueError says what is wrong with it."""
        names = {field.name for field in fields(Argument)}
        if not isinstance(description, list):
            raise ValueError("the arguments of the call must be a list")
        for entry in description:
            if (
                not isinstance(entry, dict)
                or entry.keys() != names
                or entry["role"] not in get_args(Role)
                or entry["missing"] not in get_args(Missing)
                or not all(isinstance(entry[name], str) for name in ("name", "default"))
                or type(entry["in_data"]) is not bool
            ):
                raise ValueError(f"an argument of the call is wrong: {entry}")
        return cls([Argument(**entry) for entry in description])


PLAIN_CALL = OwnCall(
    [
        Argument("x", "features"),
        Argument("edge_index", "edge_index"),
        Argument("edge_weight", "edge_weight", "none"),
    ]
)
"""What layers alone are called with."""


def _attribute(data: Any, argument: Argument) -> Any:
    names = (argument.name, *_ATTRIBUTES.get(argument.role, ()))
    found = (getattr(data, name, None) for name in names)
    return next((value for value in found if value is not None), None)


_PACKED = (BitTensor, BitAdjacency, Int8Tensor)
_OTHER_FLOATS = (torch.float64, torch.float16, torch.bfloat16)


def as_tensor(value: Any) -> Any:
    """A numpy array as a tensor that shares its memory; anything else as it is."""
    return torch.as_tensor(value) if isinstance(value, np.ndarray) else value


def as_features(x: Any, size: int, ready: Sequence[torch.dtype]) -> Any:
    """Features ``[*, N, size]`` as dense floats, from arrays, tensors or packed bits.

    Numbers of the types in ``ready`` stay; with a ``size`` of 0, which is no matrix of features,
    so does everything.
    """
    if not isinstance(x, _PACKED):
        x = as_tensor(x)
        if isinstance(x, SparseTensor):
            x = x.to_dense()
        if not isinstance(x, Tensor) or x.is_complex():
            got = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(
                "FrozenModel: x must be a tensor of numbers or the result of pack_features, "
                f"got {got}"
            )
    if not size:
        return x
    dims = len(x.shape)
    if dims < 2 or (isinstance(x, _PACKED) and dims > 2):
        raise ValueError(f"FrozenModel: x must be [N, {size}], got {list(x.shape)}")
    if isinstance(x, _PACKED):
        return x
    if x.layout != torch.strided:
        x = x.to_dense()
    return x if x.dtype in ready else x.float()


def as_given(x: Any, found: Any) -> Any:
    """Float32 results in the type of the features, which a trained layer keeps."""
    dtype = x.dtype if isinstance(x, Tensor) else None
    if dtype not in _OTHER_FLOATS:
        return found

    def converted(part: Any) -> Any:
        is_float = isinstance(part, Tensor) and part.dtype == torch.float32
        return part.to(dtype) if is_float else part

    return tree_map(converted, found)


def hand_out(who: str, result: Any, out: Tensor) -> Tensor:
    """``out`` with the values of ``result``, which needs its shape, dtype and device.

    ``out`` may be memory that the features lie in: it is written last. ``who`` stands in messages.
    """
    if not isinstance(out, Tensor) or not isinstance(result, Tensor):
        given = "the result" if isinstance(out, Tensor) else "out"
        found = result if isinstance(out, Tensor) else out
        raise TypeError(f"{who}: {given} must be a tensor to use out, got {type(found).__name__}")
    if out.dtype != result.dtype:
        raise TypeError(f"{who}: out must be {result.dtype}, got {out.dtype}")
    if out.shape != result.shape or out.device != result.device:
        raise ValueError(
            f"{who}: out must have shape {list(result.shape)} on {result.device}, got "
            f"{list(out.shape)} on {out.device}"
        )
    if not out.requires_grad:
        return out.copy_(result)
    with torch.no_grad():
        return out.copy_(result)
