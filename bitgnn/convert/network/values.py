"""The dataflow of a network between tracing and packing: values and what computes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from bitgnn.inference.graph import GraphSpec
from bitgnn.inference.own_call import PLAIN_CALL, OwnCall
from bitgnn.inference.steps.calls import FloatCall
from bitgnn.inference.steps.floats import FUNCTIONS, is_monotone, is_sign_preserving

IMAGES = 4
ROWS = 2
"""Dimensions of a value: ``[N, C, H, W]``, or ``[N, K]``."""

_PASSED_ON = ("function", "max_pool", "avg_pool", "adaptive_avg_pool", "mean_pixels")
"""Kinds of values with as many channels as what they read."""


Kind = Literal[
    "input", "function", "linear", "product", "aggregate", "add", "mul", "maximum", "cat", "call",
    "classes", "ternary_product", "ternary_aggregate", "conv", "max_pool", "avg_pool",
    "adaptive_avg_pool", "shortcut", "flatten", "mean_pixels", "grey", "local_binary_patterns",
]  # fmt: skip


class Unsupported(Exception):
    """This module computes something that only its own code can; the message says what."""


@dataclass(eq=False)
class Value:
    """One float matrix ``[N, size]`` of the trained network, or the classes ``[N]`` of its end.

    In networks of images also images ``[N, size, height, width]`` of any height and width.

    Attributes:
        kind: what computes it. ``"product"`` binarises its first input (and adds its second one);
            ``"aggregate"`` sums neighbours; ``"function"`` is one of
            :data:`bitgnn.inference.steps.floats.FUNCTIONS`; ``"call"`` is the user's own code;
            ``"ternary_product"`` and ``"ternary_aggregate"`` make their input ternary first;
            ``"classes"`` is the index of the largest feature; the last row of them belongs to
            images.
        layer: module or node it comes from.
        inputs: what it reads.
        size: features, or None where they are not known.
        name: of a function.
        attributes: of a function.
        tensors: parameters by name.
        scaled: the row scale of a product's input acts.
        takes_sign_of_dot: a sign behind this product looks at the bare dot product.
        spec: adjacency of an aggregation.
        call: the user's code.
        rank: dimensions, 2 or 4; None where they are not known.
        pattern: the value whose signs say which entries of this one are above 0, once one is made.
    """

    kind: Kind
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

    @property
    def binary_weight(self) -> bool:
        """Whether a product's weight is used by its signs."""
        return "float_weight" not in self.tensors


@dataclass
class Network:
    """Everything the scores depend on.

    Attributes:
        features: the input.
        scores: the result.
        outputs: what each layer hands on, by module name.
        letters: operator letters of each binary layer, by module name.
        calls: why parts run as the user's own code, by name.
        inside: names of binary layers that belong to other graph layers, such as a GIN's maps.
        folded: layers whose linear maps were composed with others, and with which.
        orders: what comes first in layers whose float maps may change places.
        own_call: how the trained forward is called.
        of_images: whether it takes images or rows alone.
    """

    of_images: bool = False
    features: Value | None = None
    scores: Value | None = None
    outputs: dict[str, Value] = field(default_factory=dict)
    letters: dict[str, str] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    inside: set[str] = field(default_factory=set)
    folded: dict[str, str] = field(default_factory=dict)
    orders: dict[str, str] = field(default_factory=dict)
    own_call: OwnCall = PLAIN_CALL


def is_unit(value: Value) -> bool:
    """Whether every entry is +1 or -1, whatever the input."""
    if value.kind == "cat":
        return all(is_unit(part) for part in value.inputs)
    if value.kind != "function":
        return False
    if value.name == "hardtanh":
        keeps = value.attributes["low"] <= -1 and value.attributes["high"] >= 1
        return keeps and is_unit(value.inputs[0])
    return value.name == "sign"


def is_nowhere_negative(value: Value) -> bool:
    """Whether no entry is below 0, so that a sign would make every one of them +1."""
    known = FUNCTIONS.get(value.name) if value.kind == "function" else None
    return known is not None and known.is_nowhere_negative(value.attributes)


def canonical(value: Value) -> Value:
    """The earliest value with the same signs."""
    while value.kind == "function" and is_sign_preserving(value.name, value.attributes):
        (value,) = value.inputs
    return value


def is_pool(value: Value) -> bool:
    """Whether a value is a max pooling that bits can do."""
    a = value.attributes
    return value.kind == "max_pool" and not a["ceil_mode"] and a["dilation"] == [1, 1]


def collapse(value: Value) -> tuple[Value, list[Value]]:
    """The value whose comparison with a threshold is the sign of ``value``, and the way there.

    Returns:
        The base and the monotone functions and max pools between it and ``value``, first one first.
    """
    chain: list[Value] = []
    while (value.kind == "function" and is_monotone(value.name)) or is_pool(value):
        chain.append(value)
        (value,) = value.inputs
    return value, chain[::-1]


def with_size(value: Value, size: int, name: str) -> Value:
    """Settle the features or channels of a value where they are not known.

    Raises:
        ValueError: they are known and others.
    """
    known = value
    while known.size is None:
        known.size = size
        if known.kind not in _PASSED_ON:
            break
        known = known.inputs[0]
    if value.size != size:
        what = "channels" if value.rank == IMAGES else "features"
        raise ValueError(f"freeze: layer {name!r} takes {size} {what}, gets {value.size}")
    return value


def named(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Copies of tensors in float32, without those that are None."""
    return {
        name: tensor.detach().float().contiguous().clone()
        for name, tensor in tensors.items()
        if tensor is not None
    }


def function_of(layer: str, name: str, value: Value, **attributes: Any) -> Value:
    """One of :data:`bitgnn.inference.steps.floats.FUNCTIONS` of a value."""
    return Value("function", layer, (value,), value.size, name, attributes, rank=value.rank)


def of_rank(value: Any, rank: int, name: str) -> Value:
    """Settle the number of dimensions of a value where it is not known.

    Raises:
        Unsupported: ``value`` is none, or has another number of dimensions.
    """
    if not isinstance(value, Value):
        raise Unsupported("it takes something else than a matrix or images")
    known = value
    while known.rank is None:
        known.rank = rank
        if known.kind != "function":
            break
        known = known.inputs[0]
    if value.rank != rank:
        raise Unsupported(f"it takes {rank} dimensions, gets {value.rank}")
    return value


def function_on(value: Value, layer: str, name: str, **attributes: Any) -> Value:
    """A function of every entry; behind a flattening it is moved in front."""
    if value.kind == "flatten":
        inner = function_on(value.inputs[0], layer, name, **attributes)
        return Value("flatten", value.layer, (inner,), value.size, rank=ROWS)
    return function_of(layer, name, value, **attributes)


def batch_norm(layer: str, norm: Any, value: Value) -> Value:
    """A batch norm in evaluation.

    Raises:
        Unsupported: it keeps no running statistics.
    """
    if norm.running_mean is None or norm.running_var is None:
        raise Unsupported("it keeps no running statistics, so it depends on the batch")
    tensors = named(
        mean=norm.running_mean, var=norm.running_var, weight=norm.weight, bias=norm.bias
    )
    found = function_of(
        layer, "batch_norm", with_size(value, norm.num_features, layer), eps=float(norm.eps)
    )
    found.tensors = tensors
    return found


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
