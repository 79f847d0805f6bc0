"""Operands of a product to floats and the aggregation of its result, as one call takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bitgnn.inference.program import Step

__all__ = ["FloatPair"]


@dataclass(frozen=True)
class FloatPair:
    """Registers and tensors of both steps.

    Attributes:
        x: register that is read.
        out: register that is written.
        graph: index of the adjacency.
        weight: packed weight of the product.
        size: features of the product.
        x_scale: register of the row scale, None where there is none or it is measured.
        w_scale: scale of each output, or None.
        packing: threshold and gain of the packing step and whether it measures the row scale.
        shift: what the product adds to its results, or None.
        bias: what is added behind the aggregation, or None.
        threshold: what the aggregation's sums are compared with, or None.
    """

    x: int
    out: int
    graph: int
    weight: Tensor
    size: int
    x_scale: int | None
    w_scale: Tensor | None
    packing: tuple[Tensor | None, Tensor | None, bool]
    shift: Tensor | None
    bias: Tensor | None
    threshold: Tensor | None

    @classmethod
    def of(
        cls,
        step: Step,
        aggregation: Step,
        tensors: Mapping[str, Tensor],
        last_tensors: Mapping[str, Tensor],
        packing: Step | None,
        pack_tensors: Mapping[str, Tensor] | None,
    ) -> FloatPair:
        """From the steps as the binders of pairs are given them."""
        assert aggregation.graph is not None, "Program.check requires it"
        given: Mapping[str, Any] = pack_tensors or {}
        scaled, packs = step.attributes["scaled"], packing is not None
        return cls(
            x=(step if packing is None else packing).inputs[0],
            out=aggregation.outputs[0],
            graph=aggregation.graph,
            weight=tensors["weight"],
            size=step.attributes["size"],
            x_scale=step.inputs[1] if scaled and not packs else None,
            w_scale=tensors.get("weight_scale"),
            packing=(given.get("threshold"), given.get("gain"), scaled and packs),
            shift=tensors.get("bias"),
            bias=last_tensors.get("bias"),
            threshold=last_tensors.get("threshold"),
        )
