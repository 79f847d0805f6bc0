"""First products of dense features on 8-bit integers against torch's products of the same shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.cuda_ceilings import Ceilings
from bench.operators.case import OperatorCase
from bitgnn.bits import Int8Tensor
from bitgnn.ops import bmm
from bitgnn.ops.int8 import quantise_weight


def int8_cases(
    n: int, k: int, m: int, device: str, ceilings: Ceilings | None = None
) -> Iterator[OperatorCase]:
    """Signs of a product from floats and from packed rows, and the sum with floats to signs."""
    x, weight = torch.randn(n, k, device=device), torch.randn(m, k, device=device)
    centre, step = torch.zeros(k, device=device), torch.full((k,), 4 / 127, device=device)
    rows, codes = Int8Tensor.from_float(x, centre, step), quantise_weight(weight)[0]
    addend = torch.randn(n, m, device=device)
    shape = f"[{n}, {k}] → {m}"
    baselines: dict[str, Callable[[], Any]] = {
        "torch fp32": partial(functional.linear, x, weight),
        "torch bf16": partial(functional.linear, x.bfloat16(), weight.bfloat16()),
    }
    if ceilings is not None:
        baselines["torch fp16"] = partial(functional.linear, x.half(), weight.half())
        baselines["torch TF32"] = partial(_in_tf32, x, weight)
        baselines["torch._int_mm"] = partial(torch._int_mm, rows.codes, codes.t())
    variants: dict[str, tuple[Callable[[], Any], Callable[[], Any], int, int]] = {
        "FIB from float32": (
            partial(bmm.fib, x, codes, centre, 1 / step),
            partial(_signs, rows, codes),
            x.nbytes,
            n * m // 8,
        ),
        "IIB": (
            partial(bmm.iib, rows, codes),
            partial(_signs, rows, codes),
            rows.codes.nbytes,
            n * m // 8,
        ),
        "IIB of a sum": (
            partial(bmm.add_iib, rows, codes, addend),
            partial(_signs, rows, codes, addend),
            rows.codes.nbytes + addend.nbytes,
            n * m // 8,
        ),
    }
    for letters, (ours, expected, read, written) in variants.items():
        yield OperatorCase(
            "BMM",
            f"{letters}, {shape}",
            ours,
            baselines,
            work=2.0 * n * k * m,
            unit="operation",
            ceiling_seconds=None
            if ceilings is None
            else ceilings.memory_seconds(read, written) + ceilings.launch_seconds,
            binds="memory",
            check=partial(_equal, ours, expected),
        )


def _signs(rows: Int8Tensor, codes: Tensor, addend: Tensor | None = None) -> Tensor:
    """Bits of the exact product, in float64."""
    product = rows.codes.double() @ codes.double().t()
    return (product if addend is None else product.float() + addend) >= 0


def _equal(ours: Callable[[], Any], expected: Callable[[], Tensor]) -> bool:
    return torch.equal(ours().to_float() > 0, expected())


def _in_tf32(x: Tensor, weight: Tensor) -> Tensor:
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return functional.linear(x, weight)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
