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

from bitgnn.convert.network.values import (
    PRODUCTS,
    SUMS,
    Network,
    Value,
    canonical,
    is_unit,
    ordered,
    readers_of,
)

IN_FRONT = "aggregates in front of its map"
MEAN_DEGREE = 8
"""Neighbours of a node where costs are weighed: a low guess, so that aggregations count little."""
FLOAT_BYTES = 4
BITS_OF_BYTE = 8
BINARY_KINDS = (*PRODUCTS, *(kind for kind in SUMS if kind != "aggregate"), "pack_int8")
"""Kinds of values that read signs, ternary values or codes of their first input."""
OPERATIONS_OF_BYTE = 14
"""Float products and sums that take as long as moving a byte, on current GPUs."""


def fold_linear_maps(network: Network, fixed: Collection[str] = ()) -> dict[str, str]:
    """Compose linear maps of a network, in place, if that saves work.

    Maps of the layers in ``fixed`` stay where they are. The result says for each layer whose map
    moved what it was composed with.
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
            folded[value.layer] = IN_FRONT
    return folded


def binarised(scores: Value) -> set[Value]:
    """Values on which later signs or codes depend, or that the user's own code reads."""
    found: set[Value] = set()
    for value in reversed(ordered(scores)):
        if value in found or value.kind == "call" or value.name == "sign":
            found.update(value.inputs)
        elif value.kind in BINARY_KINDS:
            found.add(value.inputs[0])
    return found


def _fold(scores: Value, linear: Value) -> list[str] | None:
    """Move one linear map forwards; return the layers it met, or None if that saves nothing."""
    readers = readers_of(scores)
    (source,) = linear.inputs
    if source.size is None or not _is_finite(linear):
        return None
    terms = _Terms(linear.layer, linear.tensors["weight"].size(0), readers)
    terms.add_constant(linear.tensors.get("bias"))
    terms.push(source, linear.tensors["weight"].double())
    if not terms.met and not terms.products:
        return None
    return terms.met if _replace(scores, linear, terms.value()) else None


def _aggregate_first(scores: Value, aggregate: Value) -> bool:
    """Aggregate before a linear map if its input has fewer columns than its output."""
    (linear,) = aggregate.inputs
    if linear.kind != "linear" or "bias" in linear.tensors or readers_of(scores)[linear] > 1:
        return False
    (source,) = linear.inputs
    if source.size is None or is_unit(source):
        return False
    return _replace(scores, aggregate, exchanged(aggregate))


def exchanged(value: Value) -> Value:
    """Swap an aggregation and a linear map."""
    (inner,) = value.inputs
    tensors, layer = {**inner.tensors, **value.tensors}, value.layer
    if inner.kind == "linear":
        size = inner.inputs[0].size
        sums = Value("aggregate", layer, inner.inputs, size, spec=value.spec)
        return Value("linear", layer, (sums,), value.size, tensors=tensors)
    weight = {"weight": tensors.pop("weight")}
    maps = Value("linear", layer, inner.inputs, value.size, tensors=weight)
    return Value("aggregate", layer, (maps,), value.size, tensors=tensors, spec=inner.spec)


def _replace(scores: Value, target: Value, value: Value) -> bool:
    """Let ``target`` compute ``value`` if that is less work; its readers stay."""
    before, kept = sum(map(_bytes, ordered(scores))), replace(target)
    replace_with(target, value)
    if sum(map(_bytes, ordered(scores))) < before:
        return True
    replace_with(target, kept)
    return False


def replace_with(target: Value, value: Value) -> None:
    """Compute a value as another one; its readers stay."""
    for entry in fields(Value):
        if entry.name != "layer":
            setattr(target, entry.name, getattr(value, entry.name))


def _is_finite(linear: Value) -> bool:
    return bool(torch.isfinite(linear.tensors["weight"]).all())


@dataclass
class _Terms:
    """Summands of the linear map of ``layer``, with ``size`` outputs.

    Attributes:
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

    def push(self, value: Value, weight: Tensor) -> None:
        """Add ``value @ weight.T``."""
        if is_unit(value):
            self._add_product(value, False, weight)
        elif self.readers[value] > 1 or not self._push_inside(value, weight):
            known = self.linears.get(value)
            self.linears[value] = weight if known is None else known + weight

    def _push_inside(self, value: Value, weight: Tensor) -> bool:
        """Move the map before the operation of a value; False if that is not linear."""
        kind, tensors = value.kind, value.tensors
        if kind == "cat" and all(part.size is not None for part in value.inputs):
            sizes = [part.size for part in value.inputs if part.size is not None]
            for part, columns in zip(value.inputs, weight.split(sizes, dim=1), strict=True):
                self.push(part, columns)
        elif kind == "add" and not all(map(is_unit, value.inputs)):
            if any(part.size != weight.size(1) for part in value.inputs):
                return False  # the user's own code may give one column for all
            for part in value.inputs:
                self.push(part, weight)
        elif kind == "linear" and _is_finite(value):
            self.met.append(value.layer)
            self.add_constant(tensors.get("bias"), weight)
            self.push(value.inputs[0], weight @ tensors["weight"].double())
        elif kind == "product":
            source, *addend = value.inputs
            self.met.append(value.layer)
            self.add_constant(tensors.get("bias"), weight)
            self._add_product(source, value.scaled, weight @ _product_weight(value))
            for part in addend:
                self.push(part, weight)
        elif kind == "aggregate" and not is_unit(value.inputs[0]):
            # What is constant inside is aggregated too.
            inner = _Terms(self.layer, self.size, self.readers)
            inner.push(value.inputs[0], weight)
            self.met += [value.layer, *inner.met]
            self.add_constant(tensors.get("bias"), weight)
            mapped = (inner.value(),)
            sums = Value("aggregate", value.layer, mapped, self.size, spec=value.spec)
            self.others.append(sums)
        elif (affine := _affine(value)) is not None:
            gain, shift = affine
            self.add_constant(shift.expand(weight.size(1)), weight)
            self.push(value.inputs[0], weight * gain)
        else:
            return False
        return True

    def _add_product(self, source: Value, scaled: bool, weight: Tensor) -> None:
        scaled = scaled and not is_unit(source)
        key = (source if scaled else canonical(source), scaled)
        known = self.products.get(key)
        self.products[key] = (source, weight if known is None else known[1] + weight)

    def value(self) -> Value:
        """The sum of all summands, the constant with the last of them that can take it."""
        bias = {} if self.constant is None else {"bias": self.constant.float()}
        layer, size, left = self.layer, self.size, len(self.linears) + len(self.products)
        total: Value | None = None

        def add(summand: Value) -> Value:
            return summand if total is None else Value("add", layer, (total, summand), size)

        for other in self.others:
            total = add(other)
        for source, weight in self.linears.items():
            left -= 1
            tensors = {"weight": weight.float(), **({} if left else bias)}
            total = add(Value("linear", layer, (source,), size, tensors=tensors))
        for (_, scaled), (source, weight) in self.products.items():
            left -= 1
            tensors = {"float_weight": weight.float(), **({} if left else bias)}
            inputs = (source,) if total is None else (source, total)
            total = Value("product", layer, inputs, size, tensors=tensors, scaled=scaled)
        assert total is not None, "a linear map reads something"
        if not bias or self.linears or self.products:
            return total
        if total.kind == "aggregate" and not total.tensors:
            total.tensors = bias
            return total
        return Value("function", layer, (total,), size, "bias", {}, bias)


def _product_weight(product: Value) -> Tensor:
    """The weight that a product multiplies the signs with."""
    if not product.binary_weight:
        return product.tensors["float_weight"].double()
    weight = product.tensors["weight"]
    scale = product.tensors.get("weight_scale")
    scale = torch.ops.bitgnn.pack_scaled(weight)[1] if scale is None else scale
    return torch.where(weight >= 0, 1.0, -1.0).double() * scale.double().unsqueeze(1)


def norm_affine(norm: Value, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Gain and shift of a batch norm; in float32, as PyTorch's CPU code makes them."""
    tensors = {name: tensor.to(dtype) for name, tensor in norm.tensors.items()}
    gain = 1 / torch.sqrt(tensors["var"] + norm.attributes["eps"])
    if "weight" in tensors:
        gain = gain * tensors["weight"]
    shift = -tensors["mean"] * gain
    return gain, shift + tensors["bias"] if "bias" in tensors else shift


def _affine(value: Value) -> tuple[Tensor, Tensor] | None:
    """Gain and shift of a function that is affine in each channel, in float64."""
    if value.name == "batch_norm":
        return norm_affine(value, torch.float64)
    if value.name in ("bias", "gain"):
        vector = value.tensors[value.name].double()
        if value.name == "gain":
            return vector, vector.new_zeros(1)
        return vector.new_ones(1), vector
    one, zero = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    if value.name == "scale":
        return one * value.attributes["factor"], zero
    return (one, one * value.attributes["term"]) if value.name == "shift" else None


def _bytes(value: Value) -> float:
    """Memory traffic of a value in bytes a node, with operations converted to bytes."""

    def row(source: Value) -> float:
        size = source.size or 0
        if source.kind == "pack_int8":
            return size
        return size / BITS_OF_BYTE if is_unit(source) else FLOAT_BYTES * size

    if value.kind in ("input", "call", "classes") or value.name == "sign":
        return 0.0
    size, reads = value.size or 0, sum(map(row, value.inputs))
    out = FLOAT_BYTES * size
    if value.kind == "aggregate":
        return MEAN_DEGREE * reads + out
    if value.kind == "linear":
        return reads + out + 2 * (value.inputs[0].size or 0) * size / OPERATIONS_OF_BYTE
    if value.kind == "product":
        source, *addend = value.inputs
        return (source.size or 0) / BITS_OF_BYTE + sum(map(row, addend)) + out
    return reads + out
