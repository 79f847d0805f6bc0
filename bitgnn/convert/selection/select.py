"""Turns values into steps: bits where readers look at signs alone, floats elsewhere."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from bitgnn.convert.network.lower import Network
from bitgnn.convert.network.values import Value, canonical, collapse, is_unit
from bitgnn.convert.selection.comparisons import Comparison, folded, function_of
from bitgnn.convert.selection.demands import signs_beside
from bitgnn.convert.selection.products import Products
from bitgnn.convert.selection.registers import BY_LETTERS, Bits
from bitgnn.inference import FreezeReport, FrozenModel

__all__ = ["select_steps"]


def select_steps(network: Network) -> FrozenModel:
    """The frozen model of a network.

    Raises:
        ValueError: the width of the features cannot be told.
    """
    return _Selection(network).run()


class _Selection(Products):
    def run(self) -> FrozenModel:
        scores, features = self.network.scores, self.network.features
        assert scores is not None
        assert features is not None
        self.floats[features] = 0
        for value in self.demands.values:
            self._emit(value)
        readers = [value for value in self.demands.values if features in value.inputs]
        if features.size is None and not all(value.kind == "call" for value in readers):
            raise ValueError("freeze: no layer tells the number of features")
        report = FreezeReport(
            self.network.letters,
            self._boundaries(),
            self.reasons,
            self.network.folded,
            self.network.orders,
        )
        own_call = self.network.own_call
        return self.out.finish(features.size or 0, self.floats[scores], report, own_call)

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
        if kind == "ternary_product":
            return self._ternary_product(value, None)
        if kind == "ternary_aggregate":
            return self._ternary_aggregate(value, None)
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
            self.bits[target] = Bits(register, sum(sizes), flipped if flipped.any() else None)
            return
        assert value.size is not None
        if value.kind == "product":
            self.bits[target] = Bits(self._product(value, target), value.size)
            return
        if value.kind == "ternary_product":
            self.bits[target] = Bits(self._ternary_product(value, target), value.size)
            return
        beside = signs_beside(value)
        if beside is not None:
            self.bits[target] = self._beside_signs(value, target, *beside)
            return
        comparison = self._comparison(value, target)
        if value.kind == "aggregate":
            register = self._aggregate(value, comparison)
        elif value.kind == "ternary_aggregate":
            register = self._ternary_aggregate(value, comparison)
        else:
            register = self._sum(value, comparison[0])
        self.bits[target] = Bits(register, value.size, comparison[1])

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
        graph = self.out.graph(value.spec)
        if letters == "fbb" and source.kind == "product" and source.tensors.get("bias") is not None:
            # The product's integers are summed, and its shift times the factors, as in training.
            sums = self.out.step("bspmm_fbf", value.layer, [read], {"size": value.size}, {}, graph)
            assert comparison is not None
            threshold = {"threshold": comparison[0]}
            return self.out.step("pack", value.layer, [sums], {"size": value.size}, threshold)
        last = (
            {"bias": value.tensors.get("bias")}
            if comparison is None
            else {"threshold": comparison[0]}
        )
        size = {"size": value.size}
        return self.out.step(f"bspmm_{letters}", value.layer, [read], size, last, graph)

    def _ternary_aggregate(self, value: Value, comparison: Comparison | None) -> int:
        """Sums of ternary values, to floats or to bits."""
        assert value.spec is not None
        scale, size = {"scale": value.tensors["scale"]}, {"size": value.size}
        source = [self.floats[value.inputs[0]]]
        planes = self.out.step("pack_ternary", value.layer, source, size, scale)
        # Buffers of a checkpoint share no memory.
        scale = {"scale": scale["scale"].clone()}
        kind, last = "bspmm_tbf", {"bias": value.tensors.get("bias")}
        if comparison is not None:
            kind, last = "bspmm_tbb", {"threshold": comparison[0]}
        graph = self.out.graph(value.spec)
        return self.out.step(kind, value.layer, [planes], size, {**scale, **last}, graph)

    def _sum(self, value: Value, threshold: Tensor | None) -> int:
        """Bits of a sum of two values."""
        size, last = {"size": value.size}, {"threshold": threshold}
        if all(map(is_unit, value.inputs)):
            parts = [self._plain(canonical(part)).register for part in value.inputs]
            return self.out.step("add_bbb", value.layer, parts, size, last)
        parts = [self.floats[part] for part in value.inputs]
        return self.out.step("add_ffb", value.layer, parts, size, last)

    def _beside_signs(self, value: Value, target: Value, signs: Value, factor: float) -> Bits:
        """Bits of floats beside a multiple of signs: one threshold for each of the two."""
        size = value.size
        assert size is not None
        functions = [function_of(step) for step in collapse(target)[1]]
        thresholds = {}
        for name, term in (("threshold", factor), ("threshold_below", -factor)):
            shift = partial(torch.add, other=term)
            threshold, flipped = folded([shift, *functions], size, self._device)
            if threshold is None:
                threshold = torch.zeros(size, device=self._device)
            thresholds[name] = threshold
        registers = [self.floats[value.inputs[0]], self._plain(canonical(signs)).register]
        sizes = {"size": size}
        register = self.out.step("add_fbb", value.layer, registers, sizes, thresholds)
        return Bits(register, size, flipped)  # a term turns no channel round

    def _call(self, value: Value) -> int:
        assert value.call is not None
        inputs = [self.floats[part] for part in value.inputs]
        return self.out.call(value.call, value.layer, inputs, value.needs_edges)

    def _boundaries(self) -> dict[str, str]:
        found = {}
        for name, value in self.network.outputs.items():
            base, _ = collapse(value)
            in_bits = bool(self.demands.signs.get(base)) and base not in self.floats
            found[name] = "bits" if in_bits else "floats"
        return found
