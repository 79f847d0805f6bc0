"""Products of BWTA's tables 3, 10 and 11 and figure 11: a column, and parts of linear layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.bwta.cases import (
    SCALE,
    checked_product,
    linear_contenders,
    normal,
)
from bench.bwta.peers import four_bit_contenders, linear_peers
from bench.cases import Case, Contender, WrongResultError, same_call
from bitgnn.bits import BitTensor, BooleanTensor, TernaryTensor
from bitgnn.ops import bmm, ternary

COLUMN, PARTS = "256x256 by a column", "parts of a linear layer"
SIDE, HEAD = 256, 2048
SHAPES = (
    (128, 128, 128), (128, 768, 768), (128, 768, 3072), (32, 5120, 13824), (32, 8192, 22016),
)  # fmt: skip
"""Rows, inputs, outputs of tables 10 and 11 and of figure 11."""


def paper_products(quick: bool = False) -> Iterator[Case]:
    """Every variant of table 3, then whole layers beside their product and their packing alone."""
    variants: dict[str, Callable[[], Iterator[Contender]]] = {
        "binary linear": _binary_linear,
        "binary A x V": _binary_mixture,
        "BWTA linear": _linear,
        "BWTA A x V": _mixture,
        "BWTA Q x K": _scores,
    }
    for name, make in variants.items():
        yield Case(COLUMN, name, make, work=2.0 * SIDE**2)
    for rows, inputs, outputs in SHAPES[:1] if quick else SHAPES:
        yield Case(
            PARTS,
            f"[{rows}, {inputs}] to {outputs}",
            partial(linear_contenders, "cuda", rows, inputs, outputs),
            work=2.0 * rows * inputs * outputs,
        )
    yield Case(PARTS, f"Q x K, [{HEAD}, {HEAD}] each", _long_scores, work=2.0 * HEAD**3)


def _column() -> tuple[Tensor, Tensor]:
    """A row of 256 inputs, and weights ``[256, 256]``, in fp16."""
    half: Any = {"device": "cuda", "dtype": torch.float16}
    return normal(1, SIDE, **half), normal(SIDE, SIDE, **half, seed=1)


def _peers(x: Tensor, w: Tensor) -> Iterator[Contender]:
    yield from linear_peers(x, w)
    narrow = partial(functional.linear, x.bfloat16(), w.bfloat16())
    yield Contender("torch bf16", False, same_call(narrow))
    yield from four_bit_contenders(x, w)


def _binary_linear() -> Iterator[Contender]:
    """Signs of floats, packed in the call, times packed signs."""
    x, w = _column()
    yield from _peers(x, w)
    weight = BitTensor.from_float(w.float())
    call = partial(bmm.fbf, x, weight, integer=True)
    expected = torch.where(x >= 0, 1.0, -1.0) @ weight.to_float().t()

    def checked() -> Callable[[], Any]:
        if not torch.equal(call().float(), expected):
            raise WrongResultError
        return call

    yield Contender("packing and product", True, checked)


def _binary_mixture() -> Iterator[Contender]:
    """Probabilities of 0 and 1 times signs, packed before: counts of bits less their number."""
    p, v = _column()
    yield from _peers(p, v)
    bits = BitTensor.from_float(v.float())
    packed = BooleanTensor.from_float(p, SCALE)
    plus = TernaryTensor.from_float(bits.to_float(), 1.0)
    yield Contender("packed operands", True, partial(checked_product, packed, plus))


def _linear() -> Iterator[Contender]:
    """A BWTA layer: floats in and out."""
    x, w = _column()
    yield from _peers(x, w)
    yield from (one for one in linear_contenders("cuda", 1, SIDE, SIDE) if one.ours)


def _mixture() -> Iterator[Contender]:
    p, v = _column()
    yield from _peers(p, v)
    packed = BooleanTensor.from_float(p, SCALE), TernaryTensor.from_float(v, SCALE)
    yield Contender("packed operands", True, partial(checked_product, *packed))


def _scores() -> Iterator[Contender]:
    q, k = _column()
    yield from _peers(q, k)
    packed = [TernaryTensor.from_float(t, SCALE) for t in (q, k)]
    yield Contender("packed operands", True, partial(checked_product, *packed))


def _long_scores() -> Iterator[Contender]:
    """Queries and keys of 2048 features: the product alone, and with both packed in the call."""
    half: Any = {"device": "cuda", "dtype": torch.float16}
    q, k = normal(HEAD, HEAD, **half), normal(HEAD, HEAD, **half, seed=1)
    yield Contender("torch fp16", False, same_call(partial(torch.matmul, q, k.t())))
    packed = [TernaryTensor.from_float(t, SCALE) for t in (q, k)]
    product = partial(checked_product, *packed)
    yield Contender("product of packed rows", True, product, ranked=False)

    def whole() -> Tensor:
        return ternary.matmul(
            *(TernaryTensor.from_float(t, SCALE) for t in (q, k)), dtype=torch.float16
        )

    yield Contender("packing and product", True, same_call(whole))
    packing = partial(TernaryTensor.from_float, q, SCALE)
    yield Contender("packing alone", True, same_call(packing), ranked=False)
