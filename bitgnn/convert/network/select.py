"""Turns values into steps: bits if readers take only signs, else floats or integers."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from bitgnn.convert.network.demands import (
    EXACT,
    attended_inputs,
    is_standardized,
    signs_beside,
)
from bitgnn.convert.network.folding import binarised
from bitgnn.convert.network.image_products import ImageProducts
from bitgnn.convert.network.int8_rows import Int8Products
from bitgnn.convert.network.registers import (
    ALSO_FLOATS,
    BY_LETTERS,
    FIRST_LAYER,
    Bits,
    Comparison,
    comparison,
    folded,
    folded_scale,
    functions_of,
    mask_of,
    width_of,
)
from bitgnn.convert.network.tracer import NotTraced
from bitgnn.convert.network.values import (
    IMAGES,
    PRODUCTS,
    ROWS,
    SUMS,
    Network,
    Value,
    canonical,
    collapse,
    is_unit,
)
from bitgnn.inference.frozen import FreezeReport
from bitgnn.inference.frozen_hetero import FrozenHetero
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.image_calls import Takes
from bitgnn.ops.linear import MOST_FEATURES, weight_digits

_pack_scaled = torch.ops.bitgnn.pack_scaled.default


def select_steps(network: Network) -> FrozenModel:
    """The frozen model of a network.

    Raises:
        ValueError: the width of the features cannot be told, or something does not fit; the message
            names the layer.
    """
    selection = _Selection(network)
    demands = selection.demands
    for value in demands.values:
        if demands.is_needed(value) or value in demands.scaled:
            selection.emit(value)
    return selection.images() if network.of_images else selection.model()


def _reads_input(value: Value) -> bool:
    """True if a value is the input, flattened or not."""
    return all(p.kind == "input" or (p.kind == "flatten" and _reads_input(p)) for p in value.inputs)


class _Selection(Int8Products, ImageProducts):
    def model(self) -> FrozenModel:
        """A model of graphs or matrices."""
        network = self.network
        for features in network.inputs:
            readers = [value for value in self.demands.values if features in value.inputs]
            if features.size is None and not all(value.kind == "call" for value in readers):
                raise NotTraced("freeze: no layer tells the number of features")
        for name, value in network.outputs.items():
            base, _ = collapse(value)
            in_bits = bool(self.demands.signs.get(base)) and base not in self.floats
            self.boundaries[name] = "bits" if in_bits else "floats"
        report = FreezeReport(
            network.letters, self.boundaries, self.reasons, network.folded, network.orders
        )
        widths = [features.size or 0 for features in network.inputs]
        program, tensors, calls = self.parts(widths, self.floats[self.scores])
        specs, own_call = self.specs, network.own_call
        if network.types is not None:
            return FrozenHetero(program, tensors, specs, report, calls, types=network.types)
        return FrozenModel(program, tensors, specs, report, calls, own_call=own_call)

    def images(self) -> FrozenModel:
        """A model of images or rows."""
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
        program, tensors, calls = self.parts([size or 0], self.floats[self.scores])
        return FrozenModel(program, tensors, (), report, calls, takes=takes)

    def emit(self, value: Value) -> None:
        """Write a value in every form that its readers need."""
        demands = self.demands
        targets, is_wanted = demands.signs.get(value, []), value in demands.floats
        has_sums = demands.writes_sums(value)
        if has_sums or value in demands.residuals:
            self._integers(value, targets, has_sums)
            if is_wanted or len(targets) > 1:
                sums = [self.sums[value]]
                self.floats[value] = self.step("sums_to_floats", value.layer, sums)
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
        if target is base and is_standardized(base) and not self.of_images:
            self._pack_standardized(base)
            return
        size = width_of(base)
        compared = comparison(target, self.device, of_sums=False)
        if self.of_images:
            self._pack_images(base, target, compared)
            return
        threshold, flipped = compared
        read, sizes = [self.floats[base]], {"size": size}
        register = self.step("pack", target.layer, read, sizes, threshold=threshold)
        self.bits[target] = Bits(register, size, flipped)

    def _why_packed(self, base: Value) -> str:
        if base.kind == "add" and self.of_images:
            return self.demands.why_no_integers(base)
        if base.kind in ("conv", "linear") and _reads_input(base):
            return FIRST_LAYER
        if base.kind not in self.demands.bit_writers:
            return f"a sign is taken of floats that {base.name or base.kind} computes"
        if len(self.demands.signs[base]) > 1 and not self.of_images:
            return "its signs are needed behind different functions"
        return ALSO_FLOATS

    def _float_base(self, value: Value) -> int:
        """Emit a value in floats."""
        kind, layer = value.kind, value.layer
        if value.is_function("sign"):
            if self.of_images:
                return self._unpacked_images(value)
            bits = self._plain(value)
            return self.step("unpack", layer, [bits.register], {"size": bits.size})
        if kind == "product" and self.of_images:
            self.boundaries[layer] = "floats"
            return self._image_product(value, None)
        if kind in PRODUCTS:
            return self._product(value, None)
        if kind == "int8_product":
            return self._int8_product(value, None).register
        if kind in SUMS:
            return self._aggregate(value, None)
        if kind == "attend":
            return self._attend(value, None)
        if kind == "linear" and layer in self.network.letters:
            self.reasons.setdefault(layer, f"{BY_LETTERS} a float product")
        if kind == "add" and all(map(is_unit, value.inputs)) and not self.of_images:
            return self._sum(value, None)
        return self._float_step(value)

    def _write_bits(self, value: Value, target: Value) -> None:
        """Emit a value as the bits of the one target behind it."""
        if value.kind == "product" and self.of_images:
            self.boundaries[value.layer] = "bits"
            self._pooled(self._image_product(value, target), target)
            return
        if value.kind == "cat":
            self.bits[target] = self._joined(value)
            return
        if value.kind == "int8_product":
            self.bits[target] = self._int8_product(value, target)
            return
        assert value.size is not None
        if value.kind in PRODUCTS:
            self.bits[target] = Bits(self._product(value, target), value.size)
        elif (beside := signs_beside(value)) is not None:
            self.bits[target] = self._beside_signs(value, target, *beside)
        else:
            compared = self._comparison(target)
            others = {"add": self._sum, "attend": self._attend}
            emit = others.get(value.kind, self._aggregate)
            self.bits[target] = Bits(emit(value, compared), value.size, compared[1])

    def _joined(self, value: Value) -> Bits:
        """The bits of several values side by side."""
        parts = [self.bits[canonical(part)] for part in value.inputs]
        sizes, registers = [part.size for part in parts], [part.register for part in parts]
        register = self.step("concat", value.layer, registers, {"sizes": sizes})
        masks = [
            torch.zeros(p.size, dtype=torch.bool) if p.flipped is None else p.flipped.cpu()
            for p in parts
        ]
        flipped = torch.cat(masks)
        return Bits(register, sum(sizes), flipped if flipped.any() else None)

    def _product(self, value: Value, target: Value | None) -> int:
        """A product to floats, or to the bits of ``target``."""
        if value.kind == "ternary_product":
            return self._ternary_product(value, target)
        if not value.binary_weight:
            return self._float_weight_product(value)
        source, *addend = value.inputs
        scale: list[int] = []
        if source in self.scaled and value.scaled and value not in self.demands.drops_scale:
            bits, register = self.scaled[source]
            scale = [register]
        else:
            bits = self.bits[canonical(source)]
        words, own_scale = _pack_scaled(value.tensors["weight"])
        if bits.flipped is not None:
            # Turning a channel round on both sides leaves every product as it was.
            words = words ^ mask_of(bits.flipped).to(words.device)
        bias, w_scale = value.tensors.get("bias"), value.tensors.get("weight_scale", own_scale)
        bias = bias if target is None or addend else None  # which is part of the threshold
        tensors: dict[str, Tensor | None] = {"weight": words, "bias": bias}
        if target is None:
            tensors["weight_scale"] = w_scale
        elif target is value and value.takes_sign_of_dot:
            scale = []
        else:
            threshold, flip = self._comparison(target)
            if not scale and not addend and bits.size < EXACT:
                threshold, flip = folded_scale(bits.size, w_scale, threshold, flip)
            else:
                tensors["weight_scale"] = w_scale
                # Scales may be 0, where the product's sign is +1 whatever the dot product.
                threshold = torch.zeros_like(w_scale) if threshold is None else threshold
            tensors["threshold"], tensors["flip"] = threshold, flip
        kind = "bmm_add" if addend else "bmm_bbf"
        if target is not None:
            kind = "bmm_add_bits" if addend else "bmm_bbb"
        attributes = {"size": bits.size, "out": value.size, "scaled": bool(scale)}
        inputs = [bits.register, *scale, *(self.floats[part] for part in addend)]
        return self.step(kind, value.layer, inputs, attributes, **tensors)

    def _ternary_product(self, value: Value, target: Value | None) -> int:
        words, w_scale = _pack_scaled(value.tensors["weight"])
        tensors = {"weight": words, "weight_scale": w_scale}
        tensors["scale"] = value.tensors["scale"].clone()
        kind, read = "bmm_tbf", [self.floats[value.inputs[0]]]
        last = {"bias": value.tensors.get("bias")}
        if target is not None:
            kind = "bmm_tbb"
            threshold, flip = self._comparison(target)
            # As above, scales may be 0.
            threshold = torch.zeros_like(w_scale) if threshold is None else threshold
            last = {"threshold": threshold, "flip": flip}
        sizes = {"size": value.inputs[0].size, "out": value.size}
        return self.step(kind, value.layer, read, sizes, **tensors, **last)

    def _float_weight_product(self, value: Value) -> int:
        """Signs times float weights."""
        source, *addend = value.inputs
        if value.layer in self.network.letters:
            self.reasons.setdefault(value.layer, f"{BY_LETTERS} float weights")
        scaled = source in self.scaled
        bits = self.scaled[source][0] if scaled else self.bits[canonical(source)]
        scales = [self.scaled[source][1]] if scaled and value.scaled else []
        added = [self.floats[part] for part in addend]
        weight, bias = value.tensors["float_weight"], value.tensors.get("bias")
        layer, sizes = value.layer, {"size": bits.size, "out": value.size}
        is_short = bits.size <= MOST_FEATURES
        is_free = value not in binarised(self.scores)
        if is_short and is_free and bool(torch.isfinite(weight).all()):
            if bits.flipped is not None:
                weight = torch.where(bits.flipped.to(weight.device), -weight, weight)
            digits, step = weight_digits(weight)
            attributes = {**sizes, "scaled": bool(scales), "adds": bool(addend)}
            tensors = {"digits": digits, "step": step, "bias": bias}
            inputs = [bits.register, *scales, *added]
            return self.step("bits_linear", layer, inputs, attributes, **tensors)
        # The same with PyTorch's arithmetic, to the last bit, for signs that are taken of it.
        if scaled:
            bits = self._unflipped(bits, source.layer)
            self.scaled[source] = (bits, self.scaled[source][1])
        else:
            bits = self._plain(source)
        register = self.step("unpack", layer, [bits.register], {"size": bits.size})
        register = self.step("linear", layer, [register], sizes, weight=weight)
        for scale in scales:
            register = self.step("scale_rows", layer, [register, scale])
        if bias is not None:
            register = self.step("bias", layer, [register], bias=bias)
        for part in added:
            register = self.step("add", layer, [register, part])
        return register

    def _aggregate(self, value: Value, compared: Comparison | None) -> int:
        """Sums of neighbours, which may be bits or ternary, to floats or to bits."""
        (source,) = value.inputs
        layer, size = value.layer, {"size": value.size}
        assert value.spec is not None
        end, last = "f", {"bias": value.tensors.get("bias")}
        if compared is not None:
            end, last = "b", {"threshold": compared[0]}
        graph = self.graph(value.spec)
        if value.kind == "ternary_aggregate":
            read, scale = [self.floats[source]], value.tensors["scale"]
            planes = [self.step("pack_ternary", layer, read, size, scale=scale)]
            # Buffers of a checkpoint share no memory.
            last = {"scale": scale.clone(), **last}
            return self.step(f"bspmm_tb{end}", layer, planes, size, graph, **last)
        if value.spec.keeps_weights and layer in self.network.letters:
            self.reasons.setdefault(layer, f"{BY_LETTERS} float edge weights")
        from_bits = is_unit(source)
        letters = f"{'b' if from_bits else 'f'}{'f' if value.spec.keeps_weights else 'b'}{end}"
        read = [self._plain(source).register if from_bits else self.floats[source]]
        if letters == "fbb" and source.kind == "product" and source.tensors.get("bias") is not None:
            # The product's integers are summed, and its shift times the factors, as in training.
            sums = self.step("bspmm_fbf", layer, read, size, graph)
            return self.step("pack", layer, [sums], size, **last)
        return self.step(f"bspmm_{letters}", layer, read, size, graph, **last)

    def _attend(self, value: Value, compared: Comparison | None) -> int:
        """Sums of neighbours' bits weighted by attention, to floats or to bits."""
        (source, *sides), floats = attended_inputs(value)
        tensors: dict[str, Tensor | None] = dict(value.tensors)
        a = {**value.attributes, "size": source.size, "to_bits": compared is not None}
        if compared is not None:
            tensors |= {"bias": None, "threshold": compared[0]}
        kind = "gat"
        if a.get("of_rows"):
            kind, a["width"] = "transformer", floats[0].size
        elif sides:
            kind, a["width"] = "gatv2", sides[0].size
        elif "score_weight" in tensors:
            weight = tensors.pop("score_weight")
            assert weight is not None
            tensors["digits"], tensors["step"] = weight_digits(weight)
        else:
            kind = "gat_of_edges"
        read = [self._plain(part).register for part in (source, *sides)]
        read += [self.floats[part] for part in floats]
        return self.step(kind, value.layer, read, a, self.graph(value.spec), **tensors)

    def _sum(self, value: Value, compared: Comparison | None) -> int:
        """A sum of two values: bits, or floats where both are signs."""
        if all(map(is_unit, value.inputs)):
            kind = "add_bbf" if compared is None else "add_bbb"
            parts = [self._plain(part).register for part in value.inputs]
        else:
            kind, parts = "add_ffb", [self.floats[part] for part in value.inputs]
        threshold = None if compared is None else compared[0]
        return self.step(kind, value.layer, parts, {"size": value.size}, threshold=threshold)

    def _beside_signs(self, value: Value, target: Value, signs: Value, factor: float) -> Bits:
        """Bits of floats beside a multiple of signs: one threshold for each of the two."""
        size = width_of(value)
        functions = functions_of(collapse(target)[1])
        thresholds = {}
        for name, term in (("threshold", factor), ("threshold_below", -factor)):
            shift = partial(torch.add, other=term)
            threshold, flipped = folded([shift, *functions], size, self.device)
            if threshold is None:
                threshold = torch.zeros(size, device=self.device, dtype=torch.float32)
            thresholds[name] = threshold
        registers = [self.floats[value.inputs[0]], self._plain(signs).register]
        register = self.step("add_fbb", value.layer, registers, {"size": size}, **thresholds)
        return Bits(register, size, flipped)  # a term turns no channel round
