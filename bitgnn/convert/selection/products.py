"""Steps of a product with packed signs: binary weights, float weights, floats or bits behind it."""

from __future__ import annotations

import torch
from torch import Tensor

from bitgnn.convert.network.fold_linear import binarised
from bitgnn.convert.network.values import Network, Value, canonical
from bitgnn.convert.selection.comparisons import EXACT, folded_scale, mask_of
from bitgnn.convert.selection.registers import BY_LETTERS, Registers
from bitgnn.ops.linear import MOST_FEATURES, weight_digits

_pack_scaled = torch.ops.bitgnn.pack_scaled.default


class Products(Registers):
    """Registers that products are written to."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.binarised = binarised(self.scores)

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
        words, own_scale = _pack_scaled(weight)
        if bits.flipped is not None:
            # Turning a channel round on both sides leaves every product as it was.
            words = words ^ mask_of(bits.flipped).to(words.device)
        tensors: dict[str, Tensor | None] = {"weight": words, "bias": value.tensors.get("bias")}
        w_scale = value.tensors.get("weight_scale", own_scale)
        if target is None:
            tensors["weight_scale"] = w_scale
        else:
            is_sign_of_dot = target is value and value.takes_sign_of_dot
            tensors["bias"] = None
            if is_sign_of_dot:
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
                if value.tensors.get("bias") is not None and addend:
                    tensors["bias"] = value.tensors["bias"]
        kind = "bmm_add" if addend else "bmm_bbf"
        if target is not None:
            kind = "bmm_add_bits" if addend else "bmm_bbb"
        attributes = {"size": bits.size, "out": value.size, "scaled": bool(scale)}
        inputs = [bits.register, *scale, *(self.floats[part] for part in addend)]
        return self.out.step(kind, value.layer, inputs, attributes, tensors)

    def _ternary_product(self, value: Value, target: Value | None) -> int:
        """A product of ternary activations to floats, or to the bits of ``target``."""
        weight = value.tensors["weight"]
        words, w_scale = _pack_scaled(weight)
        tensors: dict[str, Tensor | None] = {
            "weight": words,
            "weight_scale": w_scale,
            "scale": value.tensors["scale"].clone(),
        }
        kind = "bmm_tbf"
        if target is None:
            tensors["bias"] = value.tensors.get("bias")
        else:
            kind = "bmm_tbb"
            threshold, flip = self._comparison(target)
            # Scales may be 0, where the sign of the product is +1 whatever the dot product.
            tensors["threshold"] = torch.zeros_like(w_scale) if threshold is None else threshold
            tensors["flip"] = flip
        attributes = {"size": value.inputs[0].size, "out": value.size}
        inputs = [self.floats[value.inputs[0]]]
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
        plain = self._plain(source) if bits is None else bits
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
