"""What each step of a frozen network of images costs, from the shapes that it ran on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from bitgnn.bits import BitImages, BitTensor
from bitgnn.inference.bound_program import BoundProgram
from bitgnn.inference.costs import StepCost
from bitgnn.inference.step import Step
from bitgnn.inference.steps.convolutions import CONVOLUTIONS, FIXED, OF_PATCHES

__all__ = ["image_step_cost", "weights_of"]

MOVES = ("flatten_bits", "unpack_images", "unpack", "flatten", "cat_channels", "call", "to_float")
"""Kinds of steps that compute nothing, or nothing that could be counted."""


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


def image_step_cost(
    model: BoundProgram, step: Step, results: Mapping[int, Any], result: Any
) -> StepCost:
    """Work of one step.

    Args:
        model: the frozen model.
        step: one of its steps.
        results: what the registers it reads hold.
        result: what it wrote first.

    Returns:
        The work. Products of fixed point with signs count as float operations.
    """
    tensors = sum(model.get_buffer(name).nbytes for name in step.tensors.values())
    touched = tensors + _bytes(result)
    touched += sum(_bytes(results[register]) for register in step.inputs if register in results)
    entries = _entries(result)
    weights = weights_of(model, step)
    if weights:
        operations = 2 * weights * entries // step.attributes["out"]
        extra = entries if len(step.inputs) > 1 else 0
        is_float = step.kind in FIXED or step.kind in ("float_conv", "linear")
        return StepCost(
            0 if is_float else operations, (operations if is_float else 0) + extra, touched
        )
    if step.kind in MOVES:
        return StepCost(0, 0, touched)
    if step.kind in ("pool_bits", "flip_images", "flip"):
        window = step.attributes.get("kernel", [1, 1])
        return StepCost(entries * window[0] * window[1], 0, touched)
    return StepCost(0, entries, touched)


def _bytes(value: Any) -> int:
    return int(value.nbytes) if isinstance(value, Tensor | BitImages | BitTensor) else 0


def _entries(value: Any) -> int:
    if isinstance(value, BitImages | BitTensor):
        return value.shape.numel()
    return value.numel() if isinstance(value, Tensor) else 0
