"""The dataflow of a network between tracing and packing: values and their operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from bitgnn.bits.letters import LETTERS
from bitgnn.inference.frozen_hetero import Types
from bitgnn.inference.functions import FUNCTIONS, is_monotone, is_sign_preserving
from bitgnn.inference.graph import GraphSpec
from bitgnn.inference.own_call import PLAIN_CALL, OwnCall
from bitgnn.inference.own_code.calls import FloatCall

IMAGES = 4
DENSE = 3
ROWS = 2
"""Dimensions of a value: ``[N, C, H, W]``, ``[G, N, K]`` or other ones of graphs, ``[N, K]``."""

PRODUCTS = tuple(dict.fromkeys(f"{a.kind}product" for a in LETTERS.values() if a.products))
SUMS = tuple(dict.fromkeys(f"{a.kind}aggregate" for a in LETTERS.values() if a.sums))
"""Kinds of values that are products, or sums of neighbours, by the letters of what they read."""

_KEEP_SIZE = (
    "function", "max_pool", "avg_pool", "adaptive_avg_pool", "mean_pixels", "aggregate", "add",
)  # fmt: skip
"""Kinds of values with as many channels as what they read."""

_KEEP_RANK = ("function", "add", "mul", "maximum", "cat")
"""Kinds of values whose number of dimensions is that of their inputs."""


@dataclass(frozen=True)
class Part:
    """The graph, its weights, or a further input, as a part of a call."""

    name: str


class Unsupported(Exception):
    """A module has no rule here, and only its own code can run it; the message says why."""


@dataclass(eq=False)
class Value:
    """One float matrix ``[N, size]`` of the trained network, images, or the classes ``[N]``.

    The kind is ``"input"``, ``"call"`` (the user's own code), ``"function"`` (the one of that
    ``name``), ``"classes"`` (index of the largest feature) or a kind of step. A ``"product"``
    binarises its first input and adds its second one; the ternary kinds make their input ternary.
    ``"pack_int8"`` makes 8-bit codes of floats, which an ``"int8_product"`` reads.

    Attributes:
        layer: module or node it comes from.
        size: features or channels, None where they are not known.
        scaled: the row scale of a product's input acts.
        takes_sign_of_dot: a sign behind this product looks at the bare dot product.
        rank: :data:`IMAGES` or :data:`ROWS`, None where it is not known.
        pattern: the value whose signs say which entries of this one are above 0, once one is made.
        codes: 8-bit codes of this one, each made with other scales.
    """

    kind: str
    layer: str
    inputs: tuple[Value, ...] = ()
    size: int | None = None
    name: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    scaled: bool = False
    takes_sign_of_dot: bool = False
    spec: GraphSpec | None = None
    call: FloatCall | None = None
    needs_edges: bool = False
    rank: int | None = ROWS
    pattern: Value | None = None
    codes: list[Value] = field(default_factory=list)

    @property
    def binary_weight(self) -> bool:
        """True if a product uses the signs of its weight."""
        return "float_weight" not in self.tensors

    def is_function(self, name: str) -> bool:
        """True if the value is the function of that name."""
        return self.kind == "function" and self.name == name


@dataclass
class Network:
    """All values on which the scores depend, and reports on layers and other parts by name.

    Attributes:
        inputs: the features, of each type of nodes.
        types: those of a heterogeneous graph, else None.
        outputs: what each layer hands on.
        letters: operator letters of each binary layer.
        calls: why parts run as the user's own code.
        inside: names of binary layers that belong to other graph layers, such as a GIN's maps.
        folded: layers whose linear maps were composed with others, and with which.
        orders: what comes first in layers whose float maps may change places.
    """

    of_images: bool = False
    inputs: tuple[Value, ...] = ()
    types: Types | None = None
    scores: Value | None = None
    outputs: dict[str, Value] = field(default_factory=dict)
    letters: dict[str, str] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    inside: set[str] = field(default_factory=set)
    folded: dict[str, str] = field(default_factory=dict)
    orders: dict[str, str] = field(default_factory=dict)
    own_call: OwnCall = PLAIN_CALL

    @property
    def features(self) -> Value | None:
        """The first input."""
        return self.inputs[0] if self.inputs else None


def ordered(scores: Value) -> list[Value]:
    """Every value the scores depend on, inputs first."""
    found: list[Value] = []
    seen: set[int] = set()
    stack = [(scores, False)]
    while stack:
        value, is_done = stack.pop()
        if is_done:
            found.append(value)
        elif id(value) not in seen:
            seen.add(id(value))
            stack.append((value, True))
            stack.extend((parent, False) for parent in reversed(value.inputs))
    return found


def nodes_of(value: Value) -> int:
    """Number of the input whose nodes are a value's rows."""
    while "nodes" not in value.attributes:
        if value.spec is not None:
            return value.spec.destinations
        if not value.inputs:
            return 0
        value = value.inputs[0]
    return int(value.attributes["nodes"])


def readers_of(scores: Value) -> Counter[Value]:
    """Number of readers of each value that the scores depend on."""
    return Counter(source for value in ordered(scores) for source in value.inputs)


def is_unit(value: Value) -> bool:
    """True if every entry is +1 or -1 for any input."""
    if value.kind == "cat":
        return all(map(is_unit, value.inputs))
    if value.is_function("hardtanh"):
        keeps = value.attributes["low"] <= -1 and value.attributes["high"] >= 1
        return keeps and is_unit(value.inputs[0])
    return value.is_function("sign")


def is_matrix(value: Value) -> bool:
    """True if a value is known to be ``[N, size]``; results of the user's own code may be anything.

    Of those the last dimension alone can be named, and vectors have no form.
    """
    stack, seen = [value], set()
    while stack:
        found = stack.pop()
        if found.kind == "call":
            return False
        if found.kind in _KEEP_RANK and found not in seen:
            seen.add(found)
            stack.extend(found.inputs)
    return True


def is_nowhere_negative(value: Value) -> bool:
    """True if no entry is negative, so that every sign would be +1."""
    known = FUNCTIONS.get(value.name) if value.kind == "function" else None
    return known is not None and known.is_nowhere_negative(value.attributes)


def canonical(value: Value) -> Value:
    """The earliest value with the same signs."""
    while value.kind == "function" and is_sign_preserving(value.name, value.attributes):
        (value,) = value.inputs
    return value


def is_pool(value: Value) -> bool:
    """True if a value is a max pooling that bits support."""
    a = value.attributes
    return value.kind == "max_pool" and not a["ceil_mode"] and a["dilation"] == [1, 1]


def collapse(value: Value) -> tuple[Value, list[Value]]:
    """The base a comparison of which is the sign of ``value``, and the functions between them."""
    chain: list[Value] = []
    while (value.kind == "function" and is_monotone(value.name)) or is_pool(value):
        chain.append(value)
        (value,) = value.inputs
    return value, chain[::-1]


def _settle(value: Value, field: str, found: int, kinds: Container[str]) -> None:
    """Set an unknown property of a value and of those from which it inherits it."""
    stack = [value]
    while stack:
        value = stack.pop()
        if getattr(value, field) is None:
            setattr(value, field, found)
            # The user's own code may give one column for all.
            parts = [p for p in value.inputs if value.kind != "add" or p.kind != "call"]
            stack.extend(parts if value.kind in kinds else ())


def with_size(value: Value, size: int, name: str) -> Value:
    """The value with its number of features or channels, if that was unknown."""
    _settle(value, "size", size, _KEEP_SIZE)
    if value.size != size:
        what = "channels" if value.rank == IMAGES else "features"
        raise ValueError(f"freeze: layer {name!r} takes {size} {what}, gets {value.size}")
    return value


def of_rank(value: Any, rank: int) -> Value:
    """The value with its number of dimensions, if that was unknown."""
    if not isinstance(value, Value):
        raise Unsupported("it takes something else than a matrix or images")
    _settle(value, "rank", rank, ("function",))
    if value.rank != rank:
        raise Unsupported(f"it takes {rank} dimensions, gets {value.rank}")
    return value


def named(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Copies of tensors in float32, without those that are None."""
    return {
        name: tensor.detach().float().contiguous().clone()
        for name, tensor in tensors.items()
        if tensor is not None
    }


def function_of(
    layer: str, name: str, value: Value, tensors: Mapping[str, Tensor] | None = None, **options: Any
) -> Value:
    """One of :data:`bitgnn.inference.functions.FUNCTIONS` of a value."""
    size, rank = value.size, value.rank
    return Value("function", layer, (value,), size, name, options, tensors or {}, rank=rank)


def function_on(value: Value, layer: str, name: str, **attributes: Any) -> Value:
    """A function of every entry; behind a flattening it is moved in front."""
    if value.kind == "flatten":
        inner = function_on(value.inputs[0], layer, name, **attributes)
        return Value("flatten", value.layer, (inner,), value.size, rank=ROWS)
    return function_of(layer, name, value, **attributes)


def batch_norm(layer: str, norm: Any, value: Value) -> Value:
    """A batch norm in evaluation."""
    if norm.running_mean is None or norm.running_var is None:
        raise Unsupported("it keeps no running statistics, so it depends on the batch")
    tensors = named(
        mean=norm.running_mean, var=norm.running_var, weight=norm.weight, bias=norm.bias
    )
    value = with_size(value, norm.num_features, layer)
    return function_of(layer, "batch_norm", value, tensors, eps=float(norm.eps))
