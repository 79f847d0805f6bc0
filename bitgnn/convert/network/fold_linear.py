"""Composes linear maps that follow each other in floats, so that aggregations carry fewer columns.

A float linear map behind sums, joins, aggregations and products is linear in what these read: it
moves in front of them, where it meets the weights there. ``W [h1 || h2] + b`` with
``h2 = A(h1 R) + h1 S`` becomes ``A(h1 R W2) + h1 (S W2 + W1) + b``: as many columns as there are
classes where there were hidden units, no join, and one product for all that reads the same bits.
Aggregations commute with the map, whatever their factors; constants stay behind them. The result is
the same but for the rounding of floats, so nothing in front of a sign is touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from bitgnn.convert.network.values import Network, Value, canonical, is_unit, ordered

MEAN_DEGREE = 8
"""Neighbours of a node where costs are weighed: a low guess, so that aggregations count little."""
FLOAT_BYTES = 4
BITS_OF_BYTE = 8
OPERATIONS_OF_BYTE = 14
"""Float products and sums that take as long as moving a byte, on current GPUs."""


def fold_linear_maps(network: Network, fixed: Collection[str] = ()) -> dict[str, str]:
    """Compose linear maps in a network where that saves work.

    Args:
        network: as lowered; its values change in place.
        fixed: layers whose maps stay where they are.

    Returns:
        For each layer whose map moved, what it was composed with.
    """
    scores = network.scores
    assert scores is not None
    folded: dict[str, str] = {}
    for value in reversed(ordered(scores)):
        if value in binarised(scores) or value.layer in fixed:
            continue
        if value.kind == "linear":
            met = _fold(scores, value)
            if met is not None:
                names = ", ".join(dict.fromkeys(met))
                folded[value.layer] = f"composed with {names}" if names else "multiplies signs"
        elif value.kind == "aggregate" and _aggregate_first(scores, value):
            folded[value.layer] = "aggregates in front of its map"
    return folded


def binarised(scores: Value) -> set[Value]:
    """Values that a sign behind them depends on, or that the user's own code reads."""
    found: set[Value] = set()
    for value in reversed(ordered(scores)):
        if value in found or value.kind == "call" or value.name == "sign":
            found.update(value.inputs)
        elif value.kind in ("product", "ternary_product", "ternary_aggregate"):
            found.add(value.inputs[0])
    return found


def readers_of(scores: Value) -> Counter[Value]:
    """Number of readers of each value that the scores depend on."""
    return Counter(source for value in ordered(scores) for source in value.inputs)


def _fold(scores: Value, linear: Value) -> list[str] | None:
    """Move one linear map forwards; the layers it met, or None where that would save nothing."""
    readers = readers_of(scores)
    (source,) = linear.inputs
    if source.size is None or not _is_finite(linear):
        return None
    terms = _Terms(linear.layer, linear.tensors["weight"].size(0), readers)
    terms.add_constant(linear.tensors.get("bias"))
    terms.push(source, linear.tensors["weight"].double(), is_only=readers[source] == 1)
    if not terms.met and not terms.products:
        return None
    return terms.met if _replace(scores, linear, terms.value()) else None


def _aggregate_first(scores: Value, aggregate: Value) -> bool:
    """Aggregate what a linear map reads, where that has fewer columns than its results."""
    (linear,) = aggregate.inputs
    if linear.kind != "linear" or "bias" in linear.tensors or readers_of(scores)[linear] > 1:
        return False
    (source,) = linear.inputs
    if source.size is None or is_unit(source):
        return False
    sums = Value("aggregate", aggregate.layer, (source,), source.size, spec=aggregate.spec)
    tensors = {**linear.tensors, **aggregate.tensors}
    mapped = Value("linear", aggregate.layer, (sums,), aggregate.size, tensors=tensors)
    return _replace(scores, aggregate, mapped)


def _replace(scores: Value, target: Value, value: Value) -> bool:
    """Let ``target``, which others read, compute what ``value`` does, if that is less work."""
    before = _total_bytes(scores)
    kept = replace(target)
    replace_with(target, value)
    if _total_bytes(scores) < before:
        return True
    replace_with(target, kept)
    return False


def replace_with(target: Value, value: Value) -> None:
    """Let a value that others read be computed as another one."""
    for entry in fields(Value):
        if entry.name != "layer":
            setattr(target, entry.name, getattr(value, entry.name))


def _is_finite(linear: Value) -> bool:
    return bool(torch.isfinite(linear.tensors["weight"]).all())


@dataclass
class _Terms:
    """The summands that a linear map falls apart into.

    Attributes:
        layer: whose map it is.
        size: its outputs.
        readers: how often each value is read.
        constant: what is added, float64 ``[size]``.
        products: by what they read the signs of and whether with its row scale, the weights.
        linears: by the floats they read, the weights.
        others: finished summands.
        met: layers whose maps were composed with it.
    """

    layer: str
    size: int
    readers: Counter[Value]
    constant: Tensor | None = None
    products: dict[tuple[Value, bool], tuple[Value, Tensor]] = field(default_factory=dict)
    linears: dict[Value, Tensor] = field(default_factory=dict)
    others: list[Value] = field(default_factory=list)
    met: list[str] = field(default_factory=list)

    def add_constant(self, vector: Tensor | None, weight: Tensor | None = None) -> None:
        """Add ``weight @ vector``."""
        if vector is None:
            return
        vector = vector.double()
        vector = vector if weight is None else weight @ vector
        self.constant = vector if self.constant is None else self.constant + vector

    def push(self, value: Value, weight: Tensor, is_only: bool) -> None:
        """Add ``value @ weight.T``; ``is_only`` says that nobody else reads the value."""
        if is_unit(value):
            self._add_product(value, False, weight)
        elif not is_only or not self._push_inside(value, weight):
            known = self.linears.get(value)
            self.linears[value] = weight if known is None else known + weight

    def _push_inside(self, value: Value, weight: Tensor) -> bool:
        """Move the map in front of what computes the value; False where it is not linear."""
        kind, tensors = value.kind, value.tensors
        if kind == "cat" and all(part.size is not None for part in value.inputs):
            sizes = [part.size for part in value.inputs if part.size is not None]
            for part, columns in zip(value.inputs, weight.split(sizes, dim=1), strict=True):
                self._push_input(part, columns)
        elif kind == "add" and not all(map(is_unit, value.inputs)):
            for part in value.inputs:
                self._push_input(part, weight)
        elif kind == "linear" and _is_finite(value):
            self.met.append(value.layer)
            self.add_constant(tensors.get("bias"), weight)
            self._push_input(value.inputs[0], weight @ tensors["weight"].double())
        elif kind == "product":
            source, *addend = value.inputs
            self.met.append(value.layer)
            self.add_constant(tensors.get("bias"), weight)
            self._add_product(source, value.scaled, weight @ _product_weight(value))
            for part in addend:
                self._push_input(part, weight)
        elif kind == "aggregate" and not is_unit(value.inputs[0]):
            self._push_aggregate(value, weight)
        else:
            affine = _affine(value)
            if affine is None:
                return False
            gain, shift = affine
            self.add_constant(shift.expand(weight.size(1)), weight)
            self._push_input(value.inputs[0], weight * gain)
        return True

    def _push_input(self, value: Value, weight: Tensor) -> None:
        self.push(value, weight, is_only=self.readers[value] == 1)

    def _push_aggregate(self, value: Value, weight: Tensor) -> None:
        """Aggregate the mapped values; what is constant inside is aggregated too."""
        inner = _Terms(self.layer, self.size, self.readers)
        inner._push_input(value.inputs[0], weight)
        self.met += [value.layer, *inner.met]
        self.add_constant(value.tensors.get("bias"), weight)
        self.others.append(
            Value("aggregate", value.layer, (inner.value(),), self.size, spec=value.spec)
        )

    def _add_product(self, source: Value, scaled: bool, weight: Tensor) -> None:
        scaled = scaled and not is_unit(source)
        key = (source if scaled else canonical(source), scaled)
        known = self.products.get(key)
        self.products[key] = (source, weight if known is None else known[1] + weight)

    def value(self) -> Value:
        """The sum of all summands, the constant with the last of them that can take it."""
        total: Value | None = None
        for other in self.others:
            total = self._sum(total, other)
        pending = [*self.linears.items()]
        for place, (source, weight) in enumerate(pending):
            is_last = place == len(pending) - 1 and not self.products
            tensors = {"weight": weight.float(), **self._bias(is_last)}
            total = self._sum(
                total, Value("linear", self.layer, (source,), self.size, tensors=tensors)
            )
        products = [*self.products.items()]
        for place, ((_, scaled), (source, weight)) in enumerate(products):
            tensors = {"float_weight": weight.float(), **self._bias(place == len(products) - 1)}
            inputs = (source,) if total is None else (source, total)
            total = Value("product", self.layer, inputs, self.size, tensors=tensors, scaled=scaled)
        assert total is not None, "a linear map reads something"
        if self.constant is None or self.linears or self.products:
            return total
        if total.kind == "aggregate" and not total.tensors:
            total.tensors = self._bias(True)
            return total
        return Value("function", self.layer, (total,), self.size, "bias", {}, self._bias(True))

    def _bias(self, is_last: bool) -> dict[str, Tensor]:
        return {"bias": self.constant.float()} if is_last and self.constant is not None else {}

    def _sum(self, total: Value | None, value: Value) -> Value:
        return value if total is None else Value("add", self.layer, (total, value), self.size)


def _product_weight(product: Value) -> Tensor:
    """The weight that a product multiplies the signs with."""
    if not product.binary_weight:
        return product.tensors["float_weight"].double()
    weight = product.tensors["weight"]
    scale = product.tensors.get("weight_scale")
    scale = torch.ops.bitgnn.pack_scaled(weight)[1] if scale is None else scale
    return torch.where(weight >= 0, 1.0, -1.0).double() * scale.double().unsqueeze(1)


def _affine(value: Value) -> tuple[Tensor, Tensor] | None:
    """Gain and shift of a function that is affine in each channel, in float64."""
    tensors, attributes = value.tensors, value.attributes
    one, zero = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    if value.name == "batch_norm":
        gain = torch.rsqrt(tensors["var"].double() + attributes["eps"])
        if "weight" in tensors:
            gain = gain * tensors["weight"].double()
        shift = -tensors["mean"].double() * gain
        return gain, shift + tensors["bias"].double() if "bias" in tensors else shift
    if value.name == "bias":
        bias = tensors["bias"].double()
        return one.to(bias.device), bias
    if value.name == "gain":
        gain = tensors["gain"].double()
        return gain, zero.to(gain.device)
    if value.name == "scale":
        return one * attributes["factor"], zero
    if value.name == "shift":
        return one, one * attributes["term"]
    return None


def _row_bytes(value: Value) -> float:
    size = value.size or 0
    return size / BITS_OF_BYTE if is_unit(value) else FLOAT_BYTES * size


def _bytes(value: Value) -> float:
    """Bytes of memory traffic that a node's share of a value takes, operations included."""
    out = FLOAT_BYTES * (value.size or 0)
    reads = sum(map(_row_bytes, value.inputs))
    if value.kind == "aggregate":
        return MEAN_DEGREE * reads + out
    if value.kind == "linear":
        inputs = value.inputs[0].size or 0
        return reads + out + 2 * inputs * (value.size or 0) / OPERATIONS_OF_BYTE
    if value.kind == "product":
        source, *addend = value.inputs
        return (source.size or 0) / BITS_OF_BYTE + sum(map(_row_bytes, addend)) + out
    if value.kind in ("input", "call", "classes") or value.name == "sign":
        return 0.0
    return reads + out


def _total_bytes(scores: Value) -> float:
    return sum(map(_bytes, ordered(scores)))
