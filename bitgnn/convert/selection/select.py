"""Turns values into steps: bits where readers look at signs alone, floats or integers elsewhere."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from bitgnn.convert.network.values import IMAGES, ROWS, Network, Value, canonical, collapse, is_unit
from bitgnn.convert.selection.comparisons import Comparison, comparison, folded, functions_of
from bitgnn.convert.selection.demands import BIT_WRITERS, is_standardized, signs_beside
from bitgnn.convert.selection.image_products import ImageProducts
from bitgnn.convert.selection.products import Products
from bitgnn.convert.selection.registers import (
    ALSO_FLOATS,
    BY_LETTERS,
    FIRST_LAYER,
    Bits,
    width_of,
)
from bitgnn.inference.frozen import FreezeReport
from bitgnn.inference.frozen_images import FrozenImages, Takes
from bitgnn.inference.frozen_model import FrozenModel


def select_steps(network: Network) -> FrozenModel:
    """The frozen model of a network, a :class:`FrozenImages` for one of images.

    Raises:
        ValueError: the width of the features cannot be told, or something does not fit; the message
            names the layer.
    """
    selection = _Selection(network)
    return selection.images() if network.of_images else selection.model()


def _reads_input(value: Value) -> bool:
    """Whether a value is made of nothing but the input, flattened or not."""
    return all(p.kind == "input" or (p.kind == "flatten" and _reads_input(p)) for p in value.inputs)


class _Selection(Products, ImageProducts):
    def model(self) -> FrozenModel:
        """A model of graphs or matrices."""
        self._emit_all()
        features, network = self.features, self.network
        readers = [value for value in self.demands.values if features in value.inputs]
        if features.size is None and not all(value.kind == "call" for value in readers):
            raise ValueError("freeze: no layer tells the number of features")
        for name, value in network.outputs.items():
            base, _ = collapse(value)
            in_bits = bool(self.demands.signs.get(base)) and base not in self.floats
            self.boundaries[name] = "bits" if in_bits else "floats"
        report = FreezeReport(
            network.letters, self.boundaries, self.reasons, network.folded, network.orders
        )
        program, tensors, calls = self.out.parts(features.size or 0, self.floats[self.scores])
        specs, own_call = self.out.specs, network.own_call
        return FrozenModel(program, tensors, specs, report, calls, own_call=own_call)

    def images(self) -> FrozenImages:
        """A model of images or rows."""
        self._emit_all()
        letters = {
            name: letters[:2] + ("B" if self.boundaries.get(name) == "bits" else "F")
            for name, letters in self.network.letters.items()
        }
        report = FreezeReport(letters, self.boundaries, self.reasons, self.network.folded)
        values, features = self.demands.values, self.features
        size, rank = features.size, features.rank
        if rank is None:  # the user's own code alone reads it
            of_images = any(v.kind == "product" and v.rank == IMAGES for v in values)
            rank = IMAGES if of_images else ROWS
        takes: Takes = "images" if rank == IMAGES else "rows"
        if size is None and takes == "images":
            rows = (v.size for v in values if v.kind == "flatten" and features in v.inputs)
            size, takes = next(rows, None), "flattened"
        # What only the user's own code reads has channels that nothing tells.
        program, tensors, calls = self.out.parts(size or 0, self.floats[self.scores])
        return FrozenImages(program, tensors, report, calls, takes=takes)

    def _emit_all(self) -> None:
        for value in self.demands.values:
            if self.demands.is_needed(value) or value in self.demands.scaled:
                self._emit(value)

    def _emit(self, value: Value) -> None:
        demands = self.demands
        targets, is_wanted = demands.signs.get(value, []), value in demands.floats
        has_sums = demands.writes_sums(value)
        if has_sums or demands.residuals.get(value) is not None:
            self._integers(value, targets, has_sums)
            if is_wanted or len(targets) > 1:
                register = self.out.step("sums_to_floats", value.layer, [self.sums[value]])
                self.floats[value] = register
        elif demands.writes_bits(value):
            self._write_bits(value, targets[0])
            return
        elif value.kind != "input":
            packs = value.kind != "function" and any(t not in self.bits for t in targets)
            if is_wanted or packs:
                self.floats[value] = self._float_base(value)
        if value in demands.scaled:
            self._pack_scaled(value)
        for target in targets:
            if target not in self.bits:
                self._pack_signs(value, target)

    def _pack_signs(self, base: Value, target: Value) -> None:
        """Pack the signs of a target whose base exists in floats."""
        if base in self.hidden:
            self.reasons.setdefault(target.layer, self._why_packed(base))
        if target is base and is_standardized(base) and not self.network.of_images:
            self._pack_standardized(base)
            return
        size = width_of(base)
        if base.kind == "function" and base.name == "levels":
            source = base.inputs[0]
            sizes = {"size": size, "features": width_of(source)}
            read = [self.floats[source]]
            register = self.out.step("pack_levels", base.layer, read, sizes, base.tensors)
            self.bits[target] = Bits(register, size)
            return
        pack = self._pack_images if self.network.of_images else self._pack_rows
        pack(base, target, comparison(target, self.device, of_sums=False))

    def _why_packed(self, base: Value) -> str:
        if base.kind == "add" and self.network.of_images:
            return self.demands.residuals.why_floats(base)
        if base.kind in ("conv", "linear") and _reads_input(base):
            return FIRST_LAYER
        if base.kind not in (BIT_WRITERS if not self.network.of_images else ("product",)):
            return f"a sign is taken of floats that {base.name or base.kind} computes"
        if len(self.demands.signs[base]) > 1 and not self.network.of_images:
            return "its signs are needed behind different functions"
        return ALSO_FLOATS

    def _float_base(self, value: Value) -> int:
        """Emit a value in floats."""
        kind, layer, of_images = value.kind, value.layer, self.network.of_images
        if kind == "function" and value.name == "sign":
            if of_images:
                return self._unpacked(value)
            bits = self._plain(value)
            return self.out.step("unpack", layer, [bits.register], {"size": bits.size})
        if kind == "product" and of_images:
            self.boundaries[layer] = "floats"
            return self._image_product(value, None)
        if kind == "product":
            return self._product(value, None)
        if kind == "aggregate":
            return self._aggregate(value, None)
        if kind == "ternary_product":
            return self._ternary_product(value, None)
        if kind == "ternary_aggregate":
            return self._ternary_aggregate(value, None)
        if kind == "linear" and layer in self.network.letters:
            self.reasons.setdefault(layer, f"{BY_LETTERS} a float product")
        if kind == "add" and all(map(is_unit, value.inputs)) and not of_images:
            parts = [self._plain(part).register for part in value.inputs]
            return self.out.step("add_bbf", layer, parts, {"size": value.size})
        return self._float_step(value)

    def _write_bits(self, value: Value, target: Value) -> None:
        """Emit a value as the bits of the one target behind it."""
        if value.kind == "product" and self.network.of_images:
            self.boundaries[value.layer] = "bits"
            self._pooled(self._image_product(value, target), target)
            return
        if value.kind == "cat":
            self.bits[target] = self._joined(value)
            return
        assert value.size is not None
        if value.kind in ("product", "ternary_product"):
            product = self._product if value.kind == "product" else self._ternary_product
            self.bits[target] = Bits(product(value, target), value.size)
            return
        beside = signs_beside(value)
        if beside is not None:
            self.bits[target] = self._beside_signs(value, target, *beside)
            return
        compared = self._comparison(target)
        if value.kind == "aggregate":
            register = self._aggregate(value, compared)
        elif value.kind == "ternary_aggregate":
            register = self._ternary_aggregate(value, compared)
        else:
            register = self._sum(value, compared[0])
        self.bits[target] = Bits(register, value.size, compared[1])

    def _joined(self, value: Value) -> Bits:
        """The bits of several values side by side."""
        parts = [self.bits[canonical(part)] for part in value.inputs]
        sizes, registers = [part.size for part in parts], [part.register for part in parts]
        register = self.out.step("concat", value.layer, registers, {"sizes": sizes})
        masks = [
            torch.zeros(p.size, dtype=torch.bool) if p.flipped is None else p.flipped.cpu()
            for p in parts
        ]
        flipped = torch.cat(masks)
        return Bits(register, sum(sizes), flipped if flipped.any() else None)

    def _aggregate(self, value: Value, comparison: Comparison | None) -> int:
        (source,) = value.inputs
        assert value.spec is not None
        from_bits = is_unit(source)
        letters = "b" if from_bits else "f"
        letters += "f" if value.spec.keeps_weights else "b"
        letters += "f" if comparison is None else "b"
        if value.spec.keeps_weights and value.layer in self.network.letters:
            self.reasons.setdefault(value.layer, f"{BY_LETTERS} float edge weights")
        read = self._plain(source).register if from_bits else self.floats[source]
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
            parts = [self._plain(part).register for part in value.inputs]
            return self.out.step("add_bbb", value.layer, parts, size, last)
        parts = [self.floats[part] for part in value.inputs]
        return self.out.step("add_ffb", value.layer, parts, size, last)

    def _beside_signs(self, value: Value, target: Value, signs: Value, factor: float) -> Bits:
        """Bits of floats beside a multiple of signs: one threshold for each of the two."""
        size = value.size
        assert size is not None
        functions = functions_of(collapse(target)[1])
        thresholds = {}
        for name, term in (("threshold", factor), ("threshold_below", -factor)):
            shift = partial(torch.add, other=term)
            threshold, flipped = folded([shift, *functions], size, self.device)
            if threshold is None:
                threshold = torch.zeros(size, device=self.device)
            thresholds[name] = threshold
        registers = [self.floats[value.inputs[0]], self._plain(signs).register]
        sizes = {"size": size}
        register = self.out.step("add_fbb", value.layer, registers, sizes, thresholds)
        return Bits(register, size, flipped)  # a term turns no channel round
