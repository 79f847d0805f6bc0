"""Products and sums of networks of graphs: to floats, or to the bits of a sign behind them."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from bitgnn.convert.network.demands import EXACT, attended_inputs
from bitgnn.convert.network.folding import binarised
from bitgnn.convert.network.int8_rows import Int8Products
from bitgnn.convert.network.registers import (
    BY_LETTERS,
    Bits,
    Comparison,
    folded,
    folded_scale,
    functions_of,
    mask_of,
    width_of,
)
from bitgnn.convert.network.values import Value, canonical, collapse, is_unit
from bitgnn.ops.linear import MOST_FEATURES, weight_digits

_pack_scaled = torch.ops.bitgnn.pack_scaled.default


class GraphProducts(Int8Products):
    """Registers of networks of graphs or matrices."""

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
