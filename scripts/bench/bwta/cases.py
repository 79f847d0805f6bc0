"""Linear layers and attention of BWTA transformers, against torch in fp16, fp32 and int8."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.bwta.peers import (
    int8_linear_contenders,
    linear_peers,
    product_peers,
)
from bench.cases import Case, Contender, Goal, WrongResultError, same_call
from bitgnn.bits import BitTensor, BooleanTensor, TernaryTensor
from bitgnn.ops import bmm, ternary

SEED = 0
SCALE = 0.9
"""Of values with standard deviation 1: about two thirds become -1 or +1."""
CACHE_BYTES = 100 * 2**20
"""Weights that are read in turn until so many have gone by come from memory, not from a cache."""

Shape = tuple[int, int, int]

LINEARS: dict[Shape, float | None] = {
    (128, 768, 768): 2.4e-6,
    (128, 768, 3072): 2.6e-6,
    (128, 3072, 768): 3.5e-6,
    (32, 5120, 13824): 6e-6,
    (4096, 4096, 4096): 40e-6,
    (1, 4096, 4096): None,
    (32, 4096, 4096): None,
    (128, 4096, 4096): None,
    (512, 4096, 4096): None,
    (2048, 4096, 4096): None,
    (128, 4096, 11008): None,
    (2048, 4096, 11008): None,
    (128, 11008, 4096): None,
    (2048, 11008, 4096): None,
}
"""Rows, inputs, outputs: table 12 of the paper, its LLM, 4096 cubed, and LLaMA-7B's layers."""
GEMVS: dict[tuple[int, int], float | None] = {
    (2560, 2560): None,
    (2560, 3840): None,
    (2560, 13824): 4.5e-6,
    (6912, 2560): None,
    (3200, 3200): None,
    (3200, 4800): None,
    (3200, 20480): None,
    (10240, 3200): None,
    (4096, 4096): None,
}
"""Inputs and outputs of the layers that BitNet's kernel is measured with, and LLaMA-7B's."""
LENGTHS = (128, 256, 512, 1024, 2048, 4096)
HEADS, HEAD_SIZE, BATCH = 16, 64, 8
Product = tuple[int, int, int, int]

SCORES: tuple[Product, ...] = (
    *((1, length, length, HEAD_SIZE) for length in LENGTHS),
    (BATCH * HEADS, 512, 512, HEAD_SIZE),
)
"""Matrices, queries, keys, features: one head of every length and a batch of heads."""
MIXTURES: tuple[Product, ...] = (
    *((1, length, HEAD_SIZE, length) for length in LENGTHS),
    (BATCH * HEADS, 512, HEAD_SIZE, 512),
)
"""Matrices, queries, features, keys."""
ATTENTION_GOALS = {2048: 200e-6}
CPU_LINEARS: dict[Shape, float | None] = {
    (128, 3072, 768): 10.0,
    (128, 768, 768): None,
    (128, 768, 3072): None,
    (1, 4096, 4096): 12.0,
    (8, 4096, 4096): None,
    (128, 4096, 4096): None,
}
"""Times faster than torch in fp32 on two cores."""


def normal(*shape: int, device: str, dtype: torch.dtype, seed: int = SEED) -> Tensor:
    """Normal values, the same on every call with the same seed."""
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=device).to(dtype)


def _operations(rows: int, inputs: int, outputs: int) -> dict[str, Any]:
    return {"operations": 2.0 * rows * inputs * outputs}


def linear_cases(device: str, quick: bool = False) -> Iterator[Case]:
    """Linear layers: floats in and out, weights packed before."""
    on_cuda = device == "cuda"
    shapes = LINEARS if on_cuda else CPU_LINEARS
    for (rows, inputs, outputs), goal in ({(9, 64, 32): None} if quick else shapes).items():
        kind = "seconds" if on_cuda else "ratio"
        yield Case(
            f"linear, {'fp16' if on_cuda else 'fp32'} in and out, packing included",
            f"[{rows}, {inputs}] to {outputs}",
            partial(linear_contenders, device, rows, inputs, outputs),
            () if goal is None else (Goal(kind, goal),),
            details=_operations(rows, inputs, outputs),
        )


def linear_contenders(device: str, rows: int, inputs: int, outputs: int) -> Iterator[Contender]:
    """A linear layer by torch and its like, and ours whole, its product and its packing alone."""
    dtype = torch.float16 if device == "cuda" else torch.float32
    x = normal(rows, inputs, device=device, dtype=dtype)
    w = normal(outputs, inputs, device=device, dtype=dtype)
    yield from linear_peers(x, w)
    weight = BitTensor.from_float(w.float(), scale="mean")
    scale = torch.tensor(SCALE, device=device)
    whole = partial(ternary.linear, x, weight, scale)

    def checked() -> Callable[[], Any]:
        expected = _emulated(x, weight)
        found = ternary.linear(x, weight, scale, dtype=torch.float32)
        if not torch.allclose(found, expected, rtol=1e-5, atol=1e-3):
            raise WrongResultError
        return whole

    yield Contender("packing and product", True, checked)
    packed = ternary.pack_ternary(x, scale)
    product = partial(bmm.tbf, packed, weight)
    yield Contender("product of packed rows, fp32 out", True, same_call(product), ranked=False)
    packing = partial(ternary.pack_ternary, x, scale)
    yield Contender("packing alone", True, same_call(packing), ranked=False)


def _emulated(x: Tensor, weight: BitTensor) -> Tensor:
    """Result of the layer by float products of the quantised values: exact sums of integers."""
    quantised = (x.float() >= SCALE / 2).float() - (x.float() < -SCALE / 2).float()
    signs = BitTensor(weight.words, weight.size).to_float()
    sums = (quantised.double() @ signs.double().t()).float()
    assert weight.scale is not None
    return sums * (weight.scale * SCALE)


def gemv_cases(quick: bool = False) -> Iterator[Case]:
    """One row times weights that no cache holds: enough matrices in turn to exceed it."""
    for (inputs, outputs), goal in ({(64, 64): None} if quick else GEMVS).items():
        count = 2 if quick else max(4, -(-CACHE_BYTES * 8 // (inputs * outputs)))
        yield Case(
            "one row, weights from memory",
            f"[1, {inputs}] to {outputs}, {count} layers in turn",
            partial(_gemv_contenders, inputs, outputs, count),
            () if goal is None else (Goal("seconds", goal * count),),
            details=_operations(count, inputs, outputs) | {"layers": count},
        )


def _in_turn(calls: Sequence[Callable[[], Any]]) -> Callable[[], None]:
    def run() -> None:
        for call in calls:
            call()

    return run


def _gemv_contenders(inputs: int, outputs: int, count: int) -> Iterator[Contender]:
    x = normal(1, inputs, device="cuda", dtype=torch.float16)
    # 16 bits a weight exceed the cache with fewer matrices; as many run, some of them again.
    plain = [
        torch.randn(outputs, inputs, device="cuda", dtype=torch.float16)
        for _ in range(min(count, max(2, -(-CACHE_BYTES // (2 * inputs * outputs)))))
    ]
    rows = x.bfloat16()
    for name, row, matrices in (
        ("torch fp16", x, plain),
        ("torch bf16", rows, [w.bfloat16() for w in plain]),
    ):
        calls = [partial(functional.linear, row, matrices[i % len(matrices)]) for i in range(count)]
        yield Contender(name, False, same_call(_in_turn(calls)))
    yield from int8_linear_contenders(x, plain, count)
    weight = BitTensor.from_float(plain[0].float(), scale="mean")
    weights = [BitTensor(weight.words.clone(), inputs, weight.scale) for _ in range(count)]
    scale = torch.tensor(SCALE, device="cuda")

    def checked() -> Callable[[], Any]:
        found = ternary.linear(x, weight, scale, dtype=torch.float32)
        if not torch.allclose(found, _emulated(x, weight), rtol=1e-5, atol=1e-3):
            raise WrongResultError
        return _in_turn([partial(ternary.linear, x, w, scale) for w in weights])

    yield Contender("packing and product", True, checked)


def product_cases(quick: bool = False) -> Iterator[Case]:
    """Products of attention from packed operands: one head and many heads."""
    for batch, rows, columns, size in ((1, 32, 32, 64),) if quick else SCORES:
        yield _product_case("queries and keys", _scores, batch, rows, columns, size)
    for batch, rows, columns, size in ((1, 32, 64, 32),) if quick else MIXTURES:
        yield _product_case("probabilities and values", _mixed, batch, rows, columns, size)


def _product_case(
    name: str,
    make: Callable[..., Iterator[Contender]],
    batch: int,
    rows: int,
    columns: int,
    size: int,
) -> Case:
    return Case(
        f"{name}, packed before, fp16 out",
        f"{f'{batch} of ' if batch > 1 else ''}[{rows}, {size}] x [{columns}, {size}]",
        partial(make, batch, rows, columns, size),
        details={"operations": 2.0 * batch * rows * columns * size},
    )


def _matrices(batch: int, *shapes: tuple[int, int]) -> Iterator[Tensor]:
    for seed, shape in enumerate(shapes):
        leading = (batch,) if batch > 1 else ()
        yield normal(*leading, *shape, device="cuda", dtype=torch.float16, seed=seed)


def _scores(batch: int, rows: int, columns: int, size: int) -> Iterator[Contender]:
    q, k = _matrices(batch, (rows, size), (columns, size))
    yield from product_peers(q, k.mT)
    packed = [TernaryTensor.from_float(t, SCALE) for t in (q, k)]
    yield Contender("packed operands", True, partial(checked_product, *packed))


def _mixed(batch: int, rows: int, columns: int, size: int) -> Iterator[Contender]:
    p, v = _matrices(batch, (rows, size), (size, columns))
    yield from product_peers(p, v)
    packed = BooleanTensor.from_float(p, SCALE), TernaryTensor.from_columns(v, SCALE)
    yield Contender("packed operands", True, partial(checked_product, *packed))


def checked_product(x: TernaryTensor | BooleanTensor, y: TernaryTensor) -> Callable[[], Any]:
    """The product of packed operands as a call, equal to that of their integers."""
    call = partial(ternary.matmul, x, y, dtype=torch.float16)
    sums = ternary.matmul(x, y, scale=False, dtype=torch.int32)
    bare = [type(t)(t.words, t.size, t.counts).to_float().double() for t in (x, y)]
    if not torch.equal(sums.double(), bare[0] @ bare[1].mT):
        raise WrongResultError
    assert x.scale is not None
    assert y.scale is not None
    if not torch.equal(call(), (x.scale * y.scale * sums.float()).half()):
        raise WrongResultError
    return call


def attention_cases(quick: bool = False) -> Iterator[Case]:
    """Attention of all heads without a matrix of scores, from packed operands and from floats."""
    for length in (32,) if quick else LENGTHS:
        goal = ATTENTION_GOALS.get(length)
        operations = 4.0 * BATCH * HEADS * length * length * HEAD_SIZE
        yield Case(
            f"attention, batch {BATCH}, {HEADS} heads of {HEAD_SIZE}",
            f"length {length}",
            partial(_attention_contenders, length),
            () if goal is None else (Goal("seconds", goal),),
            details={"operations": operations},
        )


def _attention_contenders(length: int) -> Iterator[Contender]:
    shape = (BATCH, HEADS, length, HEAD_SIZE)
    q, k, v = (normal(*shape, device="cuda", dtype=torch.float16) for _ in range(3))

    def flash() -> Callable[[], Any]:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            functional.scaled_dot_product_attention(q, k, v)

        def call() -> Tensor:
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
                return functional.scaled_dot_product_attention(q, k, v)

        return call

    yield Contender("torch fp16, flash", False, flash)
    chosen = partial(functional.scaled_dot_product_attention, q, k, v)
    yield Contender("torch fp16, torch's choice", False, same_call(chosen))
    numbers = {"scale": SCALE**2 / HEAD_SIZE**0.5, "bool_scale": 2.0 / length, "out_scale": 1.0}

    def pack() -> tuple[TernaryTensor, TernaryTensor, TernaryTensor]:
        return (
            TernaryTensor.from_float(q, SCALE),
            TernaryTensor.from_float(k, SCALE),
            TernaryTensor.from_columns(v, SCALE),
        )

    packed = pack()
    call = partial(ternary.attention, *packed, **numbers, dtype=torch.float16)
    yield Contender("packed operands", True, same_call(call))

    whole = partial(ternary.attention_floats, q, k, v, *(torch.tensor(SCALE, device="cuda"),) * 3)

    def checked() -> Callable[[], Any]:
        call = partial(whole, **numbers)
        if not torch.equal(call(), ternary.attention(*packed, **numbers, dtype=torch.float16)):
            raise WrongResultError
        return call

    yield Contender("packing included", True, checked, ranked=False)

    def apart() -> Tensor:
        return ternary.attention(*pack(), **numbers, dtype=torch.float16)

    yield Contender("packing in launches of its own", True, same_call(apart), ranked=False)
