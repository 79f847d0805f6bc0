"""What each step of a frozen model costs: 1-bit and float operations, and bytes it touches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bitgnn.inference.bound_program import BoundProgram
from bitgnn.inference.step import Register, Step
from bitgnn.inference.steps.products import PATTERN_PRODUCT

__all__ = ["StepCost", "step_cost"]

FLOAT_BYTES = 4
WORD_BITS = 32
INDEX_BYTES = 4
CLASS_BYTES = 8


@dataclass(frozen=True)
class StepCost:
    """Work of one step or of several together.

    Attributes:
        bit_operations: products and sums of single bits; a product and its sum count as two.
        float_operations: products and sums of floats, counted alike.
        bytes: read and written, each neighbour's row once an edge.
    """

    bit_operations: int = 0
    float_operations: int = 0
    bytes: int = 0

    def __add__(self, other: StepCost) -> StepCost:
        return StepCost(
            self.bit_operations + other.bit_operations,
            self.float_operations + other.float_operations,
            self.bytes + other.bytes,
        )

    @property
    def one_bit_share(self) -> float | None:
        """Part of the operations that are on bits; None where there are none at all."""
        whole = self.bit_operations + self.float_operations
        return self.bit_operations / whole if whole else None


def row_bytes(register: Register) -> int:
    """Bytes of one node's share of a register; 0 where the width is not known."""
    if register.form == "scale":
        return FLOAT_BYTES
    if register.form == "classes":
        return CLASS_BYTES
    size = register.size or 0
    return FLOAT_BYTES * (-(-size // WORD_BITS) if register.form == "bits" else size)


def step_cost(model: BoundProgram, step: Step, num_nodes: int, graphs: Sequence[Any]) -> StepCost:
    """Work of one step.

    Args:
        model: the frozen model.
        step: one of its steps.
        num_nodes: rows of the features.
        graphs: adjacencies by :attr:`~bitgnn.inference.program.Step.graph`.

    Returns:
        The work; calls of the user's own code count as bytes in and out alone.
    """
    registers = model.registers
    weights = sum(model.get_buffer(name).nbytes for name in step.tensors.values())
    reads = [row_bytes(registers[register]) for register in step.inputs]
    writes = sum(row_bytes(registers[register]) for register in step.outputs)
    size = registers[step.outputs[0]].size or 0
    if step.kind.startswith("bspmm_") and step.graph is not None:
        edges = graphs[step.graph].nnz
        touched = edges * (reads[0] + INDEX_BYTES) + num_nodes * writes + weights
        # A pattern only adds; float weights multiply as well.
        from_bits, has_values = step.kind[6] in "bt", step.kind[7] == "f"
        if from_bits and not has_values:
            return StepCost(edges * size, 0, touched)
        return StepCost(0, edges * size * (2 if has_values else 1), touched)
    touched = num_nodes * (sum(reads) + writes) + weights
    if step.kind == PATTERN_PRODUCT.name:
        # As the dense product it stands for; the pattern itself is not known here.
        return StepCost(2 * num_nodes * step.attributes["size"] * size, 0, touched)
    if step.kind.startswith("bmm_"):
        extra = num_nodes * size if step.kind.startswith("bmm_add") else 0
        return StepCost(2 * num_nodes * step.attributes["size"] * size, extra, touched)
    if step.kind in ("linear", "bits_linear"):
        return StepCost(0, 2 * num_nodes * step.attributes["size"] * size, touched)
    if step.kind in ("flip", "concat"):
        return StepCost(num_nodes * size, 0, touched)
    return StepCost(0, 0 if step.kind in ("unpack", "cat", "call") else num_nodes * size, touched)
