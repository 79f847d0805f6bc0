"""Operations of a frozen model's calls, on bits and on anything else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bitgnn.bits import BitImages, BitTensor
from bitgnn.inference.bound_program import BoundProgram
from bitgnn.inference.program import CALL, Call

MOVES = (
    "flatten_bits", "unpack_images", "unpack", "flatten", "cat", CALL, "to", "permute",
    "constant_pad_nd", "contiguous", "readable",
)  # fmt: skip
"""Kinds of calls on images that compute nothing, or nothing that could be counted."""
INT8_PRODUCTS = ("bmm_iif", "bmm_iib", "bmm_add_iib")
FIXED = ("conv_fbb", "conv_fbf")
"""First layers of fixed point."""
CONVOLUTIONS = ("conv_bbb", "conv_bbf", "conv_add", *FIXED)


@dataclass(frozen=True)
class StepCost:
    """Products and sums of one call or of several together; a product and its sum count as two.

    Attributes:
        bits: operations on single bits.
        wide: operations on floats or 8-bit integers.
    """

    bits: int = 0
    wide: int = 0

    def __add__(self, other: StepCost) -> StepCost:
        return StepCost(self.bits + other.bits, self.wide + other.wide)

    @property
    def one_bit_share(self) -> float | None:
        """Part of the operations that are on bits; None where there are none at all."""
        whole = self.bits + self.wide
        return self.bits / whole if whole else None


def call_cost(model: BoundProgram, call: Call, num_nodes: int, graphs: Sequence[Any]) -> StepCost:
    """Operations of one call on so many nodes; the user's own code counts as none.

    ``graphs`` are the adjacencies by their numbers.
    """
    kind, size = call.kind, model.registers[result_of(model, call)].size or 0
    if kind.startswith("bspmm_") and call.graph is not None:
        edges = graphs[call.graph].nnz
        # A pattern only adds; float weights multiply as well.
        from_bits, has_values = kind[6] in "bt", kind[7] == "f"
        if from_bits and not has_values:
            return StepCost(edges * size)
        return StepCost(0, edges * size * (2 if has_values else 1))
    if kind in ("gat_bits", "gatv2_bits", "transformer_bits") and call.graph is not None:
        of_scores = 2 * call.named["width"] if kind == "transformer_bits" else call.named["heads"]
        return StepCost(0, graphs[call.graph].nnz * (size + of_scores))
    inner = call.named["size"] * size if kind == "bits_linear" else weights_of(model, call)
    products = 2 * num_nodes * inner
    addends = num_nodes * size if call.named.get("addend") is not None else 0
    if kind in (*INT8_PRODUCTS, "linear", "bits_linear"):
        return StepCost(0, products + (addends if kind in INT8_PRODUCTS else 0))
    if products:
        # A pattern counts as the dense product it stands for; it is not known here.
        return StepCost(products, addends)
    if kind in ("bitwise_xor", "concat_bbb"):
        return StepCost(num_nodes * size)
    return StepCost(0, 0 if kind in ("unpack", "cat", CALL) else num_nodes * size)


def weights_of(model: BoundProgram, call: Call) -> int:
    """Weights that a call multiplies with, as many as the trained layer has."""
    named, out = call.named, model.registers[result_of(model, call)].size or 0
    if call.kind in CONVOLUTIONS:
        words, source = model.get_buffer(named["w"].name), call.inputs[0]
        channels, taps = model.registers[source].size or 0, words.size(1) * words.size(2)
        packing = next(c for c in model.program.calls if source in c.outputs) if source else call
        if packing.kind == "pack_patches":
            channels = model.registers[packing.inputs[0]].size or 0
            taps = math.prod(packing.named["kernel"])
        return out * taps * channels // int(named.get("groups", 1))
    if call.kind in ("conv2d", "linear"):
        return model.get_buffer(named["weight"].name).numel()
    is_product = call.kind.startswith("bmm_") or call.kind == "linear_ternary"
    return int(named["size"] * out) if is_product else 0


def result_of(model: BoundProgram, call: Call) -> int:
    """The register that a call was made for."""
    return next(n for n in call.outputs if model.registers[n].form != "unused")


def image_call_cost(model: BoundProgram, call: Call, result: Any) -> StepCost:
    """Operations of one call on images that wrote ``result`` first.

    Products of fixed point with signs count as wide.
    """
    is_dense = isinstance(result, Tensor | BitImages | BitTensor)
    entries = result.shape.numel() if is_dense else 0
    weights = weights_of(model, call)
    if weights:
        operations = 2 * weights * entries // (model.registers[result_of(model, call)].size or 1)
        addends = entries if call.named.get("addend") is not None else 0
        if call.kind in FIXED or call.kind in ("conv2d", "linear"):
            return StepCost(0, operations + addends)
        return StepCost(operations, addends)
    if call.kind in MOVES:
        return StepCost()
    if call.kind in ("pool_bits", "bitwise_xor"):
        window = call.named.get("kernel", [1, 1])
        return StepCost(entries * window[0] * window[1])
    return StepCost(0, entries)
