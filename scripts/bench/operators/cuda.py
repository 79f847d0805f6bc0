"""The operator benchmark on a CUDA device: pack, BMM and BSpMM against cuBLAS and cuSPARSE."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.cases import Goal
from bench.cuda_ceilings import Ceilings
from bench.operators.case import SEED, OperatorCase, multiplies_right, packs_right
from bench.operators.int8 import int8_cases
from bitgnn.bits import BitTensor
from bitgnn.ops import bmm

DEVICE = "cuda"
MAX_CHECKED_SIDE = 2048


@dataclass(frozen=True)
class Sizes:
    """How large the operands are; the quick ones only show that everything runs."""

    features: tuple[int, int] = (232_965, 602)
    hidden: int = 128
    cubes: tuple[int, ...] = (8192, 4096, 2048, 1024)
    linears: tuple[tuple[int, int, int], ...] = (
        (2_708, 1_433, 64),
        (19_717, 500, 64),
        (89_250, 500, 256),
    )
    dense: tuple[tuple[int, int, int], ...] = ((89_250, 500, 256), (169_343, 128, 256))


QUICK = Sizes((2000, 100), 32, (256, 128), ((100, 50, 16),), ((100, 48, 16),))

# 1-bit operations a second, and times faster than cuBLAS fp16, to reach for cubes.
SIGN_GOALS = {
    8192: Goal("rate", 10e15),
    4096: Goal("ratio", 8.0),
    2048: Goal("ratio", 5.0),
    1024: Goal("ratio", 2.0),
}


def dense_cases(sizes: Sizes, ceilings: Ceilings) -> Iterator[OperatorCase]:
    """Pack and BMM, made one at a time to bound memory."""
    torch.manual_seed(SEED)
    yield from _pack_cases(sizes, ceilings)
    for side in sizes.cubes:
        yield from _cube_cases(side, ceilings)
    for n, k, m in sizes.linears:
        yield _linear_case(n, k, m, ceilings)
    for n, k, m in sizes.dense:
        yield from int8_cases(n, k, m, DEVICE, ceilings)


def _pack_cases(sizes: Sizes, ceilings: Ceilings) -> Iterator[OperatorCase]:
    n, k = sizes.features
    x = torch.randn(n, k, device=DEVICE)
    w = BitTensor.from_float(torch.randn(sizes.hidden, k, device=DEVICE))
    weights = w.to_float()
    for dtype in (torch.float32, torch.float16):
        values = x.to(dtype)
        kind = str(dtype).removeprefix("torch.")
        packed_bytes = n * (k + 31) // 32 * 4
        read = ceilings.memory_seconds(values.nbytes)
        yield OperatorCase(
            "pack",
            f"{kind} [{n}, {k}] to bits",
            partial(BitTensor.from_float, values),
            {"torch.amax": values.amax},
            # At least 0.8 of the rate at which the same bytes are read.
            goal=Goal("seconds", read / 0.8) if dtype == torch.float32 else None,
            work=values.nbytes,
            unit="byte",
            ceiling_seconds=ceilings.memory_seconds(values.nbytes, packed_bytes),
            binds="memory",
            check=partial(packs_right, values),
        )
        half = values.half()
        yield OperatorCase(
            "BMM",
            f"FBB from {kind}, [{n}, {k}] → {sizes.hidden}",
            partial(bmm.fbb, values, w),
            {
                "pack alone": partial(BitTensor.from_float, values),
                "cuBLAS same dtype": partial(functional.linear, values, weights.to(dtype)),
                "cuBLAS fp16, input already fp16": partial(functional.linear, half, weights.half()),
            },
            goal=Goal("ratio", 1 / 1.15, "pack alone") if dtype == torch.float32 else None,
            work=2.0 * n * k * sizes.hidden,
            unit="operation",
            ceiling_seconds=ceilings.memory_seconds(values.nbytes, n * sizes.hidden / 8),
            binds="memory",
            check=partial(multiplies_right, values, w),
        )


def _signs(rows: int, columns: int) -> tuple[Tensor, BitTensor]:
    """A random ±1 matrix as float16 and as bits."""
    bits = BitTensor.from_float(torch.randn(rows, columns, device=DEVICE))
    return bits.to_float().half(), bits


def _cube_cases(side: int, ceilings: Ceilings) -> Iterator[OperatorCase]:
    x, x_bits = _signs(side, side)
    w, w_bits = _signs(side, side)
    baselines: dict[str, Callable[[], Any]] = {"cuBLAS fp16": partial(torch.matmul, x, w.t())}
    if side <= 4096:
        # Not beside the largest one, whose power draw would slow the others down.
        x8, w8 = x.to(torch.int8), w.to(torch.int8)
        baselines["torch._int_mm int8"] = partial(torch._int_mm, x8, w8.t())
    operations = 2.0 * side**3
    variants: list[tuple[str, Callable[[], Any], float, Goal | None]] = [
        ("BBB", partial(bmm.bbb, x_bits, w_bits), 1 / 8, SIGN_GOALS.get(side)),
        (
            "BBF, int32 out",
            partial(bmm.bbf, x_bits, w_bits, integer=True),
            4.0,
            Goal("rate", 6e15) if side == 8192 else None,
        ),
        (
            "BBF, float32 out",
            partial(bmm.bbf, x_bits, w_bits),
            4.0,
            Goal("rate", 6e15) if side == 8192 else None,
        ),
    ]
    for letters, ours, element_bytes, goal in variants:
        compute = operations / ceilings.product_rate
        memory = ceilings.memory_seconds(side * side / 4, element_bytes * side * side)
        yield OperatorCase(
            "BMM",
            f"{letters}, {side}³",
            ours,
            baselines,
            goal=goal,
            work=operations,
            unit="operation",
            ceiling_seconds=max(compute, memory) + ceilings.launch_seconds,
            binds="1-bit products" if compute > memory else "memory",
            check=partial(_cube_right, x, w, x_bits, w_bits) if side <= MAX_CHECKED_SIDE else None,
        )


def _cube_right(x: Tensor, w: Tensor, x_bits: BitTensor, w_bits: BitTensor) -> bool:
    product = x.float() @ w.float().t()
    return torch.equal(bmm.bbf(x_bits, w_bits), product) and torch.equal(
        bmm.bbb(x_bits, w_bits).to_float() > 0, product >= 0
    )


def _linear_case(n: int, k: int, m: int, ceilings: Ceilings) -> OperatorCase:
    x = torch.randn(n, k, device=DEVICE)
    w = BitTensor.from_float(torch.randn(m, k, device=DEVICE))
    weights = w.to_float()
    return OperatorCase(
        "BMM",
        f"FBB from float32, [{n}, {k}] → {m}",
        partial(bmm.fbb, x, w),
        {
            "pack alone": partial(BitTensor.from_float, x),
            "cuBLAS fp32": partial(functional.linear, x, weights),
            "cuBLAS fp16": partial(functional.linear, x.half(), weights.half()),
        },
        work=2.0 * n * k * m,
        unit="operation",
        ceiling_seconds=ceilings.memory_seconds(x.nbytes, n * m / 8) + ceilings.launch_seconds,
        binds="memory",
        check=partial(multiplies_right, x, w),
    )
