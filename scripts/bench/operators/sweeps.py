"""Square products of the papers' sweeps: bits to bits, floats in and out, transposed operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.cases import Case, Contender, WrongResultError, same_call
from bitgnn.bits import BitTensor
from bitgnn.ops import bmm

SEED = 0
BITS, FLOATS, TRANSPOSED = "BMM, bits in and out", "BMM, floats in and out", "BMM, transposed"
SIDES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
"""From BSTC's smallest to its largest; those of TCBNN are 128 to 16384."""
MOST_FLOATS = 16384
"""TCBNN's largest side, of products that take floats."""
TRANSPOSED_SIDES = (1024, 4096, 16384)
MOST_INT8, MOST_ON_CPU = 16384, 1024
CHECKED_ROWS = 64


def sweep_cases(device: str, quick: bool = False) -> Iterator[Case]:
    """Every side in turn, the smaller ones on a CPU."""
    most = MOST_ON_CPU if device == "cpu" else SIDES[-1]
    sides = (64,) if quick else [side for side in SIDES if side <= most]
    for side in sides:
        yield _case(BITS, device, side, _bits_contenders)
        if side <= MOST_FLOATS:
            yield _case(FLOATS, device, side, _floats_contenders)
        if side in TRANSPOSED_SIDES:
            yield _case(TRANSPOSED, device, side, _transposed_contenders)


def _case(group: str, device: str, side: int, make: Callable[..., Iterator[Contender]]) -> Case:
    return Case(
        group, f"{side}³", partial(make, device, side), work=2.0 * side**3, details={"side": side}
    )


def _values(device: str, side: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(SEED)
    x, w = (torch.randn(side, side, generator=generator, device=device) for _ in range(2))
    return x, w


def _products(x: Tensor, w: Tensor, prefix: str = "") -> Iterator[Contender]:
    """Products of these matrices by torch: fp16 on a GPU and int8 of signs, else their own type."""
    if x.is_cuda:
        half = partial(functional.linear, x.half(), w.half())
        yield Contender(f"{prefix}cuBLAS fp16", False, same_call(half))
        if 16 < x.size(0) <= MOST_INT8:
            signs = (torch.where(t >= 0, 1, -1).to(torch.int8) for t in (x, w))
            narrow, weight = signs
            product = partial(torch._int_mm, narrow, weight.t())
            yield Contender(f"{prefix}torch._int_mm int8", False, same_call(product))
    else:
        yield Contender("torch fp32", False, same_call(partial(functional.linear, x, w)))


def _signs(x: Tensor) -> Tensor:
    return torch.where(x >= 0, 1.0, -1.0)


def _checked(call: Callable[[], Any], x: Tensor, w: Tensor) -> Callable[[], Any]:
    """A call whose first rows equal the product of signs, an integer that float32 holds."""
    found, expected = call(), _signs(x[:CHECKED_ROWS]) @ _signs(w).t()
    if isinstance(found, BitTensor):
        rows = BitTensor(found.words[:CHECKED_ROWS], found.size).to_float() > 0
        right = torch.equal(rows, expected >= 0)
    else:
        right = torch.equal(found[:CHECKED_ROWS].float(), expected)
    if not right:
        raise WrongResultError
    return call


def _bits_contenders(device: str, side: int) -> Iterator[Contender]:
    x, w = _values(device, side)
    yield from _products(_signs(x), _signs(w))
    call = partial(bmm.bbb, BitTensor.from_float(x), BitTensor.from_float(w))
    yield Contender("bits in and out", True, partial(_checked, call, x, w))


def _floats_contenders(device: str, side: int) -> Iterator[Contender]:
    """Both operands are floats and become bits in the call, the result is floats."""
    x, w = _values(device, side)
    yield from _products(x, w)
    if x.is_cuda:
        yield Contender("cuBLAS fp32", False, same_call(partial(functional.linear, x, w)))

    def whole() -> Tensor:
        return bmm.bbf(BitTensor.from_float(x), BitTensor.from_float(w))

    yield Contender("floats in and out", True, partial(_checked, whole, x, w))
    weight = BitTensor.from_float(w)
    packed = partial(bmm.fbf, x, weight, scale=False)
    yield Contender("weights packed before", True, partial(_checked, packed, x, w), ranked=False)


def _transposed_contenders(device: str, side: int) -> Iterator[Contender]:
    """A·Bᵀ, as bits lie, is ranked; the other three orders stand in the record."""
    x, w = _values(device, side)
    yield from _products(_signs(x), _signs(w))
    for turn_x, turn_w in ((False, False), (True, False), (False, True), (True, True)):
        bits, weight = (BitTensor.from_float(t.t().contiguous() if turn else t)
                        for t, turn in ((x, turn_x), (w, turn_w)))  # fmt: skip
        call = partial(bmm.bbb, bits, weight, transpose_x=turn_x, transpose_w=turn_w)
        name = f"{'Aᵀ' if turn_x else 'A'}·{'B' if turn_w else 'Bᵀ'}"
        ranked = not (turn_x or turn_w)
        yield Contender(name, True, partial(_checked, call, x, w), ranked=ranked)
