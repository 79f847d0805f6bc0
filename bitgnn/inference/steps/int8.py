"""Steps on 8-bit rows: packing dense features, and products of their codes with 8-bit weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import Int8Tensor
from bitgnn.bits.int8 import MOST, MOST_FEATURES, STEPS, bytes_for
from bitgnn.bits.int8 import inverse_step as inverse_of
from bitgnn.inference.step import Form, Read, Register, StepReader, step_kind

# Bound once: resolving an overload by name costs as much as a small kernel.
_pack_int8 = torch.ops.bitgnn.pack_int8.default
_bmm_iif = torch.ops.bitgnn.bmm_iif.default
_bmm_iib = torch.ops.bitgnn.bmm_iib.default
_bmm_add_iib = torch.ops.bitgnn.bmm_add_iib.default

PACK = "pack_int8"
"""Kind of what packs floats."""
PRODUCTS = ("bmm_iif", "bmm_iib", "bmm_add_iib")
"""Kinds of products of codes."""


def no_rows(centre: Tensor, inverse_step: Tensor) -> Int8Tensor:
    """An ``Int8Tensor`` without rows, whose scales are those of a packing step."""
    size = centre.size(0)
    step = inverse_of(inverse_step)
    codes = torch.empty(0, bytes_for(size), dtype=torch.int8, device=centre.device)
    # Copies: a model may be written to, the rows that it packed stay as they are.
    return Int8Tensor(codes, size, centre.clone(), step)


@step_kind(PACK)
def _read_pack(s: StepReader) -> Read:
    """Codes of floats: ``clamp(rint((x - centre) * inverse_step), -127, 127)``."""
    size = _size_of(s, *s.sizes("size"))
    s.reads(("floats", size))
    centre, inverse_step = (
        s.tensor(name, torch.float32, size) for name in ("centre", "inverse_step")
    )
    if s.checks and not bool(centre.isfinite().all()):
        raise ValueError("centre must be finite")
    low, high = STEPS
    is_step = (inverse_step >= low) & (inverse_step <= high)
    if s.checks and not bool((is_step | (inverse_step == 0)).all()):
        raise ValueError("inverse_step must be 0 or in [2^-126, 2^126]")
    return [Register("codes", size)], lambda x: _pack_int8(x, centre, inverse_step)


@step_kind(*PRODUCTS)
def _read_product(s: StepReader) -> Read:
    """Inputs: codes, and an addend of a ``bmm_add_iib`` and perhaps of a ``bmm_iif``."""
    to_floats = s.kind == "bmm_iif"
    size, out = s.sizes("size", "out")
    size = _size_of(s, size)
    adds = s.num_inputs > 1 if to_floats else s.kind == "bmm_add_iib"
    s.reads(("codes", size), *[("floats", out)] * adds)
    weight = _weight_of(s, size, out)
    form: Form = "floats" if to_floats else "bits"
    written = [Register(form, out)]
    if s.kind == "bmm_iib":
        has_threshold = "threshold" in s.tensors
        threshold = s.tensor("threshold", torch.int32, out) if has_threshold else None
        flip = s.vectors(out, "flip").get("flip")
        return written, lambda x: _bmm_iib(x, weight, size, threshold, flip)
    t = s.vectors(out, "scale", "shift", *["threshold"] * (not to_floats))
    scale, shift, limit = (t.get(name) for name in ("scale", "shift", "threshold"))
    if not to_floats:
        return written, lambda x, addend: _bmm_add_iib(x, weight, addend, size, scale, shift, limit)

    def product(x: Tensor, addend: Tensor | None = None) -> Any:
        return _bmm_iif(x, weight, size, scale, shift, addend)

    return written, product


def _size_of(s: StepReader, size: int) -> int:
    """A number of features whose products fit 32 bits."""
    if s.checks and size > MOST_FEATURES:
        raise ValueError(f"size must be at most {MOST_FEATURES}, got {size}")
    return size


def _weight_of(s: StepReader, size: int, out: int) -> Tensor:
    """Codes of a weight, each within [-127, 127], padding 0."""
    weight = s.tensor("weight", torch.int8, out, bytes_for(size))
    if s.checks and bool((weight == -MOST - 1).any()):
        raise ValueError(f"weight must lie in [-{MOST}, {MOST}]")
    if s.checks and bool(weight[:, size:].any()):
        raise ValueError("padding of weight must be 0")
    return weight
