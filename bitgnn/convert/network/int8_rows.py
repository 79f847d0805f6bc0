"""First layers on 8-bit rows: codes of dense features, their products, thresholds on these."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitgnn.bits.int8 import MOST
from bitgnn.convert.network.registers import Bits, Comparison, Registers, functions_of
from bitgnn.convert.network.values import Value, collapse, named, with_size
from bitgnn.ops.conv_shape import integer_limits
from bitgnn.ops.int8 import quantise_weight
from bitgnn.quantize.int8_linear import column_factors, int8_affine


def is_rows(bits: Any) -> bool:
    """True for an input that enters as 8-bit rows, as features do that no layer has seen yet."""
    return bits.kind in ("rows", None)


def codes_of(name: str, bits: Any, value: Value, size: int) -> Value:
    """The 8-bit codes of a value's features; layers with the same scales share them."""
    value = with_size(value, size, name)
    centre, inverse_step = bits.scales()
    tensors = named(centre=centre, inverse_step=inverse_step)
    for codes in value.codes:
        if all(torch.equal(tensors[key], held) for key, held in codes.tensors.items()):
            return codes
    codes = Value("pack_int8", name, (value,), size, tensors=tensors)
    value.codes.append(codes)
    return codes


def int8_product(
    name: str, codes: Value, weight: Tensor, norm: Any, gain: Tensor | None, addend: Value | None
) -> Value:
    """The product of codes with a latent weight behind its norm or gain, as in training."""
    rows, row_scale = quantise_weight(
        weight.detach() * column_factors(codes.tensors["inverse_step"])
    )
    scale, shift = int8_affine(row_scale, norm, gain)
    tensors = {"weight": rows, **named(scale=scale, shift=shift)}
    inputs = (codes,) if addend is None else (codes, addend)
    return Value("int8_product", name, inputs, weight.size(0), tensors=tensors)


def dot_comparison(target: Value) -> Comparison:
    """int32 threshold and flipped channels, on a product's integers, of the sign of ``target``.

    ``scale * dot + shift`` and functions behind it are computed for single integers, each step
    rounded as in the trained model, so that the first integer with another sign is the threshold.
    """
    base, links = collapse(target)
    scale, shift = (base.tensors.get(name) for name in ("scale", "shift"))
    functions, weight = functions_of(links, base.rank), base.tensors["weight"]

    def bit(dot: Tensor) -> Tensor:
        value = dot.float() if scale is None else scale * dot.float()
        value = (value if shift is None else value + shift).unsqueeze(0)
        for function in functions:
            value = function(value)
        return value.squeeze(0) >= 0

    bound = MOST**2 * (base.inputs[0].size or 0)
    limit, turned = integer_limits(bit, bound, weight[:, 0])
    has_flips = bool(turned.any())
    threshold = limit.int() if bool((limit != 0).any()) else None
    return threshold, turned if has_flips else None


class Int8Products(Registers):
    """Emits products of codes."""

    def _int8_product(self, value: Value, target: Value | None) -> Bits:
        """A product to floats, or to the bits of ``target``."""
        codes, *addend = value.inputs
        assert value.size is not None
        tensors: dict[str, Tensor | None] = dict(value.tensors)
        attributes: dict[str, Any] = {"size": codes.size, "out": value.size}
        flipped = None
        if target is None:
            kind = "bmm_iif"
        elif addend:
            kind = "bmm_add_iib"
            threshold, flipped = self._comparison(target)
            tensors["threshold"] = threshold
        else:
            kind = "bmm_iib"
            threshold, flip = dot_comparison(target)
            tensors = {"weight": tensors["weight"], "threshold": threshold, "flip": flip}
        inputs = [self.floats[part] for part in value.inputs]
        register = self.step(kind, value.layer, inputs, attributes, **tensors)
        return Bits(register, value.size, flipped)
