"""Operations of a frozen model's steps, on bits and on anything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bitgnn.bits import BitImages, BitTensor
from bitgnn.inference.bound_program import BoundProgram
from bitgnn.inference.step import Step
from bitgnn.inference.steps.images import CONVOLUTIONS, FIXED, OF_PATCHES
from bitgnn.inference.steps.int8 import PRODUCTS as INT8_PRODUCTS
from bitgnn.inference.steps.products import PATTERN_PRODUCT

MOVES = ("flatten_bits", "unpack_images", "unpack", "flatten", "cat_channels", "call", "to_float")
"""Kinds of steps on images that compute nothing, or nothing that could be counted."""


@dataclass(frozen=True)
class StepCost:
    """Products and sums of one step or of several together; a product and its sum count as two.

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


def step_cost(model: BoundProgram, step: Step, num_nodes: int, graphs: Sequence[Any]) -> StepCost:
    """Operations of one step on so many nodes; calls of the user's own code count as none.

    ``graphs`` are the adjacencies by :attr:`~bitgnn.inference.program.Step.graph`.
    """
    size = model.registers[step.outputs[0]].size or 0
    if step.kind.startswith("bspmm_") and step.graph is not None:
        edges = graphs[step.graph].nnz
        # A pattern only adds; float weights multiply as well.
        from_bits, has_values = step.kind[6] in "bt", step.kind[7] == "f"
        if from_bits and not has_values:
            return StepCost(edges * size)
        return StepCost(0, edges * size * (2 if has_values else 1))
    if step.kind in ("gat", "gatv2") and step.graph is not None:
        return StepCost(0, graphs[step.graph].nnz * (size + step.attributes["heads"]))
    if step.kind in INT8_PRODUCTS:
        addends = num_nodes * size * (len(step.inputs) - 1)
        return StepCost(0, 2 * num_nodes * step.attributes["size"] * size + addends)
    if step.kind == PATTERN_PRODUCT.name or step.kind.startswith("bmm_"):
        # A pattern counts as the dense product it stands for; it is not known here.
        addends = num_nodes * size if step.kind.startswith("bmm_add") else 0
        return StepCost(2 * num_nodes * step.attributes["size"] * size, addends)
    if step.kind in ("linear", "bits_linear"):
        return StepCost(0, 2 * num_nodes * step.attributes["size"] * size)
    if step.kind in ("flip", "concat"):
        return StepCost(num_nodes * size)
    return StepCost(0, 0 if step.kind in ("unpack", "cat", "call") else num_nodes * size)


def weights_of(model: BoundProgram, step: Step) -> int:
    """Weights that a step multiplies with, as many as the trained layer has."""
    a = step.attributes
    if step.kind in CONVOLUTIONS:
        words = model.get_buffer(step.tensors["weight"])
        taps = words.size(1) * words.size(2)
        return int(a["out"] * taps * (a["size"] // a.get("groups", 1)))
    if step.kind == OF_PATCHES:
        return int(a["out"] * a["taps"] * a["channels"])
    if step.kind == "float_conv":
        return model.get_buffer(step.tensors["weight"]).numel()
    if step.kind.startswith("bmm_") or step.kind == "linear":
        return int(a["size"] * a["out"])
    return 0


def image_step_cost(model: BoundProgram, step: Step, result: Any) -> StepCost:
    """Operations of one step on images that wrote ``result`` first.

    Products of fixed point with signs count as wide.
    """
    is_dense = isinstance(result, Tensor | BitImages | BitTensor)
    entries = result.shape.numel() if is_dense else 0
    weights = weights_of(model, step)
    if weights:
        operations = 2 * weights * entries // step.attributes["out"]
        addends = entries if len(step.inputs) > 1 else 0
        if step.kind in FIXED or step.kind in ("float_conv", "linear"):
            return StepCost(0, operations + addends)
        return StepCost(operations, addends)
    if step.kind in MOVES:
        return StepCost()
    if step.kind in ("pool_bits", "flip_images", "flip"):
        window = step.attributes.get("kernel", [1, 1])
        return StepCost(entries * window[0] * window[1])
    return StepCost(0, entries)
