"""Steps of graph attention over bits."""

from __future__ import annotations

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency
from bitgnn.bits.tensor import words_for
from bitgnn.inference.step import Read, Register, StepReader, step_kind
from bitgnn.ops.linear import MOST_FEATURES

_bits_linear = torch.ops.bitgnn.bits_linear.default
_gat = torch.ops.bitgnn.gat_bits.default
_gatv2 = torch.ops.bitgnn.gatv2_bits.default


def _columns(s: StepReader) -> tuple[int, int, int, bool, bool]:
    """Features of the messages, heads, columns of the result, and whether these are bits."""
    size, heads = s.positive("size"), s.positive("heads")
    shared, to_bits = s.attributes["shared"], s.attributes["to_bits"]
    if s.checks and ((shared and to_bits) or (not shared and size % heads)):
        raise ValueError(f"{heads} heads do not fit {size} features")
    return size, heads, heads * size if shared else size, shared, to_bits


def _last(s: StepReader, columns: int, to_bits: bool) -> list[Tensor | None]:
    """Bias, and threshold of bits."""
    found = s.vectors(columns, "threshold" if to_bits else "bias")
    return [found.get("bias"), found.get("threshold")]


@step_kind("gat", uses_graph="pattern")
def _read_gat(s: StepReader) -> Read:
    """Inputs: bits of messages, which are those of the scores as well."""
    s.has(size=int, heads=int, shared=bool, to_bits=bool, negative_slope=float)
    size, heads, columns, shared, to_bits = _columns(s)
    if s.checks and size > MOST_FEATURES:
        raise ValueError(f"size must be at most {MOST_FEATURES}, got {size}")
    s.reads(("bits", size))
    digits = s.tensor("digits", torch.int8, 3, 2 * heads, words_for(size), 8, 4)
    step = s.tensor("step", torch.float32, 2 * heads)
    base = s.tensor("score_bias", torch.float32, 2 * heads) if "score_bias" in s.tensors else None
    last, slope = _last(s, columns, to_bits), s.attributes["negative_slope"]

    def attend(x: Tensor, a: BitAdjacency) -> Tensor:
        scores = _bits_linear(x, digits, step, size, None, base)
        ends = scores[:, :heads], scores[:, heads:]
        out: Tensor = _gat(
            x, size, heads, a.rowptr, a.indices, *ends, slope, None, *last, shared, to_bits, True
        )
        return out

    return [Register("bits" if to_bits else "floats", columns)], attend


@step_kind("gatv2", uses_graph="pattern")
def _read_gatv2(s: StepReader) -> Read:
    """Inputs: bits of messages, of projections of sources, and of those of destinations."""
    s.has(size=int, heads=int, shared=bool, to_bits=bool, width=int)
    size, heads, columns, shared, to_bits = _columns(s)
    width = s.positive("width")
    if s.checks and width % heads:
        raise ValueError(f"{heads} heads do not fit {width} features of projections")
    s.reads(("bits", size), ("bits", None), ("bits", None))
    if s.checks and any(r.size not in (None, width) for r in s.registers[1:]):
        raise ValueError(f"inputs must have {width} features, got {list(s.registers)}")
    alone, both = (s.tensor(name, torch.int32, width) for name in ("alone", "both"))
    step = s.tensor("step", torch.float32, heads)
    last = _last(s, columns, to_bits)

    def attend(x: Tensor, left: Tensor, right: Tensor, a: BitAdjacency) -> Tensor:
        out: Tensor = _gatv2(
            x, size, heads, a.rowptr, a.indices, left, right, width, alone, both, step, *last,
            shared, to_bits, True,
        )  # fmt: skip
        return out

    return [Register("bits" if to_bits else "floats", columns)], attend
