"""Costs of a frozen model's steps, and this machine's rates that turn them into times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import BitImages, BitTensor
from bitgnn.bits.int8 import bytes_for
from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.inference.bound_program import BoundProgram
from bitgnn.inference.step import Register, Step
from bitgnn.inference.steps.images import CONVOLUTIONS, FIXED, OF_PATCHES
from bitgnn.inference.steps.int8 import PRODUCTS as INT8_PRODUCTS
from bitgnn.inference.steps.products import PATTERN_PRODUCT

FLOAT_BYTES = 4
INDEX_BYTES = 4
CLASS_BYTES = 8
MOVES = ("flatten_bits", "unpack_images", "unpack", "flatten", "cat_channels", "call", "to_float")
"""Kinds of steps on images that compute nothing, or nothing that could be counted."""
MOVED_BYTES = tuple(2**power for power in range(20, 28))
"""Read and written by the copies: from what caches hold to what memory alone does."""
SIDE = 1024
REPEATS = 7


@dataclass(frozen=True)
class StepCost:
    """Work of one step or of several together.

    Operations are products and sums, of single bits, of floats or of 8-bit integers; a product and
    its sum count as two. ``bytes`` are read and written, each neighbour's row once an edge.
    """

    bit_operations: int = 0
    float_operations: int = 0
    bytes: int = 0
    int8_operations: int = 0

    def __add__(self, other: StepCost) -> StepCost:
        return StepCost(
            self.bit_operations + other.bit_operations,
            self.float_operations + other.float_operations,
            self.bytes + other.bytes,
            self.int8_operations + other.int8_operations,
        )

    @property
    def one_bit_share(self) -> float | None:
        """Part of the operations that are on bits; None where there are none at all."""
        whole = self.bit_operations + self.float_operations + self.int8_operations
        return self.bit_operations / whole if whole else None


def row_bytes(register: Register) -> int:
    """Bytes of one node's share of a register; 0 where the width is not known."""
    if register.form == "scale":
        return FLOAT_BYTES
    if register.form == "classes":
        return CLASS_BYTES
    size = register.size or 0
    if register.form == "codes":
        return int(bytes_for(size))
    return FLOAT_BYTES * (words_for(size) if register.form == "bits" else size)


def step_cost(model: BoundProgram, step: Step, num_nodes: int, graphs: Sequence[Any]) -> StepCost:
    """Work of one step on so many nodes; calls of the user's own code count as bytes alone.

    ``graphs`` are the adjacencies by :attr:`~bitgnn.inference.program.Step.graph`.
    """
    registers = model.registers
    weights = _weight_bytes(model, step)
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
    if step.kind in INT8_PRODUCTS:
        operations = 2 * num_nodes * step.attributes["size"] * size
        extra = num_nodes * size * (len(step.inputs) - 1)
        return StepCost(0, extra, touched, operations)
    if step.kind == PATTERN_PRODUCT.name or step.kind.startswith("bmm_"):
        # A pattern counts as the dense product it stands for; it is not known here.
        extra = num_nodes * size if step.kind.startswith("bmm_add") else 0
        return StepCost(2 * num_nodes * step.attributes["size"] * size, extra, touched)
    if step.kind in ("linear", "bits_linear"):
        return StepCost(0, 2 * num_nodes * step.attributes["size"] * size, touched)
    if step.kind in ("flip", "concat"):
        return StepCost(num_nodes * size, 0, touched)
    return StepCost(0, 0 if step.kind in ("unpack", "cat", "call") else num_nodes * size, touched)


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
    """Work of one step on images: ``results`` by register, ``result`` is what it wrote first.

    Products of fixed point with signs count as float operations.
    """
    touched = _weight_bytes(model, step) + _bytes(result)
    touched += sum(_bytes(results[register]) for register in step.inputs if register in results)
    entries = 0
    if isinstance(result, Tensor | BitImages | BitTensor):
        entries = result.shape.numel()
    weights = weights_of(model, step)
    if weights:
        operations = 2 * weights * entries // step.attributes["out"]
        extra = entries if len(step.inputs) > 1 else 0
        if step.kind in FIXED or step.kind in ("float_conv", "linear"):
            return StepCost(0, operations + extra, touched)
        return StepCost(operations, extra, touched)
    if step.kind in MOVES:
        return StepCost(0, 0, touched)
    if step.kind in ("pool_bits", "flip_images", "flip"):
        window = step.attributes.get("kernel", [1, 1])
        return StepCost(entries * window[0] * window[1], 0, touched)
    return StepCost(0, entries, touched)


def _weight_bytes(model: BoundProgram, step: Step) -> int:
    return sum(model.get_buffer(name).nbytes for name in step.tensors.values())


def _bytes(value: Any) -> int:
    return int(value.nbytes) if isinstance(value, Tensor | BitImages | BitTensor) else 0


@dataclass(frozen=True)
class Rates:
    """Work per second of one device with the present number of threads.

    ``bytes`` are those of torch's copies, by the number of bytes that each reads and writes, since
    caches are faster than memory; operations those of products of two 1024 x 1024 matrices, packed
    ones, torch's of float32 and those of 8-bit rows.
    """

    bytes: Mapping[int, float]
    bit_operations: float
    float_operations: float
    int8_operations: float

    def byte_rate(self, size: int) -> float:
        """The rate of the largest copy of no more bytes, or of the smallest of all."""
        return self.bytes[max((n for n in self.bytes if n <= size), default=min(self.bytes))]

    def seconds(self, cost: StepCost) -> float:
        """Time that moving the bytes takes, or computing, whichever is longer."""
        compute = (
            cost.bit_operations / self.bit_operations
            + cost.float_operations / self.float_operations
            + cost.int8_operations / self.int8_operations
        )
        return max(cost.bytes / self.byte_rate(cost.bytes), compute)


def median_seconds(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median time of a call, behind one untimed call."""
    return statistics.median(_seconds(call, device, repeats))


def _seconds(call: Callable[[], object], device: torch.device, repeats: int) -> list[float]:
    found = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - start)
    return found[1:]


def measured_rates(device: torch.device) -> Rates:
    """Rates of a device, measured once in a process for each number of threads."""
    return _measured(device, torch.get_num_threads())


@lru_cache
@torch.inference_mode()
def _measured(device: torch.device, threads: int) -> Rates:
    def rate(amount: int, call: Callable[[], object]) -> float:
        return amount / min(_seconds(call, device, REPEATS))

    moved = {}
    for size in MOVED_BYTES:
        data, copy = torch.zeros(2, size // 2, dtype=torch.uint8, device=device)
        moved[size] = rate(size, partial(copy.copy_, data))
    words = torch.zeros(SIDE, SIDE // WORD_BITS, dtype=torch.int32, device=device)
    floats = torch.ones(SIDE, SIDE, device=device, dtype=torch.float32)
    bit_rate = rate(2 * SIDE**3, lambda: torch.ops.bitgnn.bmm_bbf.default(words, words, SIDE))
    float_rate = rate(2 * SIDE**3, lambda: floats @ floats)
    codes = torch.zeros(SIDE, SIDE, dtype=torch.int8, device=device)
    int8_rate = rate(2 * SIDE**3, lambda: torch.ops.bitgnn.bmm_iif.default(codes, codes, SIDE))
    return Rates(moved, bit_rate, float_rate, int8_rate)
