"""Turns values into steps: bits where readers look at signs alone, floats elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bitgnn.convert.comparisons import Comparison, folded, function_of, mask_of
from bitgnn.convert.demands import (
    BIT_WRITERS,
    Demands,
    input_gain,
    is_standardized,
    standardized_source,
)
from bitgnn.convert.fold_linear import binarised
from bitgnn.convert.lower import Network
from bitgnn.convert.values import Value, canonical, collapse, is_unit
from bitgnn.convert.writer import ProgramWriter
from bitgnn.inference import FreezeReport, FrozenModel
from bitgnn.ops.linear import MOST_FEATURES, weight_digits

__all__ = ["ALSO_FLOATS", "BY_LETTERS", "select_steps"]

BY_LETTERS = "its letters ask for"
"""How reasons begin that the user gave."""
ALSO_FLOATS = "its value is read in floats as well as by sign"

_pack = torch.ops.bitgnn.pack.default
_pack_scaled = torch.ops.bitgnn.pack_scaled.default


def select_steps(network: Network) -> FrozenModel:
    """The frozen model of a network.

    Raises:
        ValueError: the width of the features cannot be told.
    """
    return _Selection(network).run()


class _Bits:
    """Register of some signs, and the channels that are turned round in it."""

    def __init__(self, register: int, size: int, flipped: Tensor | None = None) -> None:
        self.register = register
        self.size = size
        self.flipped = flipped


class _Selection:
    def __init__(self, network: Network) -> None:
        assert network.scores is not None
        self.network = network
        self.demands = Demands(network.scores)
        self.binarised = binarised(network.scores)
        self.out = ProgramWriter()
        self.floats: dict[Value, int] = {}
        self.bits: dict[Value, _Bits] = {}
        self.scaled: dict[Value, tuple[_Bits, int]] = {}
        self.reasons: dict[str, str] = dict(network.calls)
        self.hidden = _behind_layers(self.demands.values)

    def run(self) -> FrozenModel:
        scores, features = self.network.scores, self.network.features
        assert scores is not None
        assert features is not None
        self.floats[features] = 0
        for value in self.demands.values:
            self._emit(value)
        if features.size is None:
            raise ValueError("freeze: no layer tells the number of features")
        report = FreezeReport(
            self.network.letters, self._boundaries(), self.reasons, self.network.folded
        )
        return self.out.finish(features.size, self.floats[scores], report)

    def _emit(self, value: Value) -> None:
        demands = self.demands
        targets = demands.signs.get(value, [])
        if demands.writes_bits(value):
            self._write_bits(value, targets[0])
            return
        is_wanted = value in demands.floats
        packs = [target for target in targets if target not in self.bits]
        if value.kind == "function":
            if is_wanted:
                self.floats[value] = self._function(value)
        elif value.kind != "input" and (is_wanted or packs):
            self.floats[value] = self._float_base(value)
        if value in demands.scaled:
            self._pack_scaled(value)
        for target in packs:
            if target not in self.bits:
                self._pack_signs(value, target)

    def _function(self, value: Value) -> int:
        if value.name == "sign":
            bits = self._plain(canonical(value))
            return self.out.step("unpack", value.layer, [bits.register], {"size": bits.size})
        source = value.inputs[0]
        return self.out.step(
            value.name, value.layer, [self.floats[source]], dict(value.attributes), value.tensors
        )

    def _float_base(self, value: Value) -> int:
        """Emit a value in floats."""
        kind, layer = value.kind, value.layer
        if kind == "product":
            return self._product(value, None)
        if kind == "aggregate":
            return self._aggregate(value, None)
        if kind == "call":
            return self._call(value)
        if kind == "linear":
            sizes = {"size": value.inputs[0].size, "out": value.size}
            if layer in self.network.letters:
                self.reasons.setdefault(layer, f"{BY_LETTERS} a float product")
            return self.out.step(
                "linear", layer, [self.floats[value.inputs[0]]], sizes, value.tensors
            )
        if kind == "add" and all(map(is_unit, value.inputs)):
            parts = [self._plain(canonical(part)).register for part in value.inputs]
            return self.out.step("add_bbf", layer, parts, {"size": value.size})
        return self.out.step(kind, layer, [self.floats[part] for part in value.inputs])

    def _write_bits(self, value: Value, target: Value) -> None:
        """Emit a value as the bits of the one target behind it."""
        if value.kind == "cat":
            parts = [self.bits[canonical(part)] for part in value.inputs]
            sizes = [part.size for part in parts]
            registers = [part.register for part in parts]
            register = self.out.step("concat", value.layer, registers, {"sizes": sizes})
            masks = [
                torch.zeros(p.size, dtype=torch.bool) if p.flipped is None else p.flipped.cpu()
                for p in parts
            ]
            flipped = torch.cat(masks)
            self.bits[target] = _Bits(register, sum(sizes), flipped if flipped.any() else None)
            return
        assert value.size is not None
        if value.kind == "product":
            self.bits[target] = _Bits(self._product(value, target), value.size)
            return
        comparison = self._comparison(value, target)
        if value.kind == "aggregate":
            register = self._aggregate(value, comparison)
        else:
            register = self._sum(value, comparison[0])
        self.bits[target] = _Bits(register, value.size, comparison[1])

    def _product(self, value: Value, target: Value | None) -> int:
        """A product to floats, or to the bits of ``target``."""
        source, *addend = value.inputs
        if not value.binary_weight:
            return self._float_weight_product(value)
        scale: list[int] = []
        if source in self.scaled and value.scaled and value not in self.demands.drops_scale:
            bits, register = self.scaled[source]
            scale = [register]
        else:
            bits = self.bits[canonical(source)]
        weight = value.tensors["weight"]
        words = _pack(weight)
        if bits.flipped is not None:
            # Turning a channel round on both sides leaves every product as it was.
            words = words ^ mask_of(bits.flipped).to(words.device)
        tensors: dict[str, Tensor | None] = {"weight": words, "bias": value.tensors.get("bias")}
        w_scale = _pack_scaled(weight)[1]
        if target is None:
            tensors["weight_scale"] = w_scale
        else:
            is_sign_of_dot = target is value and value.takes_sign_of_dot
            tensors["bias"] = None
            if is_sign_of_dot:
                scale = []
            else:
                threshold, flip = self._comparison(value, target)
                tensors["weight_scale"] = w_scale
                # Scales may be 0, where the sign of the product is +1 whatever the dot product.
                tensors["threshold"] = torch.zeros_like(w_scale) if threshold is None else threshold
                tensors["flip"] = flip
                if value.tensors.get("bias") is not None and addend:
                    tensors["bias"] = value.tensors["bias"]
        kind = "bmm_add" if addend else "bmm_bbf"
        if target is not None:
            kind = "bmm_add_bits" if addend else "bmm_bbb"
        attributes = {"size": bits.size, "out": value.size, "scaled": bool(scale)}
        inputs = [bits.register, *scale, *(self.floats[part] for part in addend)]
        return self.out.step(kind, value.layer, inputs, attributes, tensors)

    def _float_weight_product(self, value: Value) -> int:
        """Signs times float weights."""
        source, *addend = value.inputs
        if value.layer in self.network.letters:
            self.reasons.setdefault(value.layer, f"{BY_LETTERS} float weights")
        scaled = source in self.scaled
        bits = self.scaled[source][0] if scaled else self.bits[canonical(source)]
        weight = value.tensors["float_weight"]
        if (
            value in self.binarised
            or bits.size > MOST_FEATURES
            or not bool(torch.isfinite(weight).all())
        ):
            return self._unpacked_product(value)
        if bits.flipped is not None:
            weight = torch.where(bits.flipped.to(weight.device), -weight, weight)
        digits, step = weight_digits(weight)
        scales = [self.scaled[source][1]] if scaled and value.scaled else []
        attributes = {
            "size": bits.size, "out": value.size, "scaled": bool(scales), "adds": bool(addend),
        }  # fmt: skip
        tensors = {"digits": digits, "step": step, "bias": value.tensors.get("bias")}
        inputs = [bits.register, *scales, *(self.floats[part] for part in addend)]
        return self.out.step("bits_linear", value.layer, inputs, attributes, tensors)

    def _unpacked_product(self, value: Value) -> int:
        """The same with PyTorch's arithmetic, to the last bit, for signs that are taken of it."""
        source, *addend = value.inputs
        bits = self._plain_scaled(source) if source in self.scaled else None
        plain = self._plain(canonical(source)) if bits is None else bits
        unpacked = self.out.step("unpack", value.layer, [plain.register], {"size": plain.size})
        sizes = {"size": plain.size, "out": value.size}
        weight = {"weight": value.tensors["float_weight"]}
        register = self.out.step("linear", value.layer, [unpacked], sizes, weight)
        if source in self.scaled and value.scaled:
            register = self.out.step("scale_rows", value.layer, [register, self.scaled[source][1]])
        if "bias" in value.tensors:
            register = self.out.step(
                "bias", value.layer, [register], {}, {"bias": value.tensors["bias"]}
            )
        for part in addend:
            register = self.out.step("add", value.layer, [register, self.floats[part]])
        return register

    def _aggregate(self, value: Value, comparison: Comparison | None) -> int:
        (source,) = value.inputs
        assert value.spec is not None
        from_bits = is_unit(source)
        letters = "b" if from_bits else "f"
        letters += "f" if value.spec.exact else "b"
        letters += "f" if comparison is None else "b"
        if value.spec.exact and value.layer in self.network.letters:
            self.reasons.setdefault(value.layer, f"{BY_LETTERS} float edge weights")
        read = self._plain(canonical(source)).register if from_bits else self.floats[source]
        last = (
            {"bias": value.tensors.get("bias")}
            if comparison is None
            else {"threshold": comparison[0]}
        )
        size = {"size": value.size}
        graph = self.out.graph(value.spec)
        return self.out.step(f"bspmm_{letters}", value.layer, [read], size, last, graph)

    def _sum(self, value: Value, threshold: Tensor | None) -> int:
        """Bits of a sum of two values."""
        size, last = {"size": value.size}, {"threshold": threshold}
        if all(map(is_unit, value.inputs)):
            parts = [self._plain(canonical(part)).register for part in value.inputs]
            return self.out.step("add_bbb", value.layer, parts, size, last)
        parts = [self.floats[part] for part in value.inputs]
        return self.out.step("add_ffb", value.layer, parts, size, last)

    def _call(self, value: Value) -> int:
        assert value.call is not None
        inputs = [self.floats[part] for part in value.inputs]
        return self.out.call(value.call, value.layer, inputs, value.needs_edges)

    def _pack_signs(self, base: Value, target: Value) -> None:
        """Pack the signs of a target whose base exists in floats."""
        _, chain = collapse(target)
        if base in self.hidden:
            self.reasons.setdefault(target.layer, self._why_packed(base))
        if target is base and is_standardized(base):
            self._pack_standardized(base)
            return
        size = _width(target)
        threshold, flipped = folded([function_of(step) for step in chain], size, self._device)
        tensors = {"threshold": threshold}
        register = self.out.step("pack", target.layer, [self.floats[base]], {"size": size}, tensors)
        self.bits[target] = _Bits(register, size, flipped)

    def _pack_standardized(self, value: Value) -> None:
        """Pack the signs of standardised rows, with their scale where it is wanted."""
        source, relu = standardized_source(value)
        scaled = value in self.demands.scaled
        attributes = {"size": _width(value), "relu": relu, "scaled": scaled}
        inputs = [self.floats[source]]
        words, *scale = self.out.steps_of(
            "pack_standardized", value.layer, inputs, 1 + scaled, attributes
        )
        self.bits[value] = _Bits(words, _width(value))
        if scaled:
            self.scaled[value] = (self.bits[value], scale[0])

    def _why_packed(self, base: Value) -> str:
        if base.kind not in BIT_WRITERS:
            return f"a sign is taken of floats that {base.name or base.kind} computes"
        if len(self.demands.signs[base]) > 1:
            return "its signs are needed behind different functions"
        return ALSO_FLOATS

    def _pack_scaled(self, value: Value) -> None:
        """Pack signs and row scale of a value."""
        if is_standardized(value):
            self._pack_standardized(value)
            return
        size = _width(value)
        centre_gain = input_gain(value)
        tensors: dict[str, Tensor | None] = {}
        source, flipped = value, None
        if centre_gain is not None and value.kind == "function":
            (source,) = value.inputs
            threshold, flipped = folded([function_of(value)], size, self._device)
            tensors = {"threshold": threshold, "gain": centre_gain[1]}
        inputs = [self.floats[source]]
        words, scale = self.out.steps_of(
            "pack_scaled", value.layer, inputs, 2, {"size": size}, tensors
        )
        bits = _Bits(words, size, flipped)
        self.scaled[value] = (bits, scale)
        self.bits.setdefault(canonical(value), bits)

    def _plain(self, target: Value) -> _Bits:
        """The bits of a target with no channel turned round."""
        bits = self._unflipped(self.bits[target], target.layer)
        self.bits[target] = bits
        return bits

    def _plain_scaled(self, value: Value) -> _Bits:
        bits, scale = self.scaled[value]
        bits = self._unflipped(bits, value.layer)
        self.scaled[value] = (bits, scale)
        return bits

    def _unflipped(self, bits: _Bits, layer: str) -> _Bits:
        if bits.flipped is None:
            return bits
        mask = {"mask": mask_of(bits.flipped)[0]}
        return _Bits(
            self.out.step("flip", layer, [bits.register], {"size": bits.size}, mask), bits.size
        )

    def _comparison(self, base: Value, target: Value) -> Comparison:
        """Threshold on what the operator of ``base`` compares, for the sign of ``target``."""
        _, chain = collapse(target)
        functions = [function_of(step) for step in chain]
        bias = base.tensors.get("bias")
        if bias is not None and len(base.inputs) == 1:
            functions.insert(0, lambda v: v + bias)
        assert base.size is not None
        return folded(functions, base.size, self._device)

    @property
    def _device(self) -> torch.device:
        for value in self.demands.values:
            for tensor in value.tensors.values():
                return tensor.device
        return torch.device("cpu")

    def _boundaries(self) -> dict[str, str]:
        found = {}
        for name, value in self.network.outputs.items():
            base, _ = collapse(value)
            in_bits = bool(self.demands.signs.get(base)) and base not in self.floats
            found[name] = "bits" if in_bits else "floats"
        return found


def _width(value: Value) -> int:
    """The features of a value that is packed.

    Raises:
        ValueError: they are not known.
    """
    if value.size is None:
        raise ValueError(f"freeze: the width of what {value.layer!r} gives is not known")
    return value.size


def _behind_layers(values: Sequence[Value]) -> set[Value]:
    """Values that a layer computes or that depend on one; the others are made of the features."""
    found: set[Value] = set()
    for value in values:
        is_layer = value.kind in ("product", "linear", "aggregate", "call")
        if is_layer or any(parent in found for parent in value.inputs):
            found.add(value)
    return found
