"""Layers of the BWTA benchmark in torch and, where it is installed, bitsandbytes."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.cases import Contender, same_call

LEAST_INT8_ROWS = 17
"""That ``torch._int_mm`` takes."""
GROUP, INNER_TILES = 64, 8
"""Weights with a common scale in 4 bits, and the tiles that torch's kernel reads at once."""


def linear_peers(x: Tensor, w: Tensor) -> Iterator[Contender]:
    """A linear layer in the type of its operands, in int8 and by bitsandbytes."""
    name = str(x.dtype).removeprefix("torch.").replace("float", "fp")
    yield Contender(f"torch {name}", False, same_call(partial(functional.linear, x, w)))
    if not x.is_cuda:
        return
    yield from int8_linear_contenders(x, [w], 1)
    if x.size(0) >= LEAST_INT8_ROWS:
        narrow, weight = (t.clamp(-8, 8).mul(8).to(torch.int8) for t in (x, w))
        product = partial(torch._int_mm, narrow, weight.t())
        yield Contender("torch._int_mm, quantised before", False, same_call(product), ranked=False)

        def whole() -> Tensor:
            quantised = torch.round(x * 8).clamp(-127, 127).to(torch.int8)
            return torch._int_mm(quantised, weight.t()).to(torch.float16) * 0.015625

        yield Contender("torch._int_mm, quantising included", False, same_call(whole))


def product_peers(x: Tensor, y: Tensor) -> Iterator[Contender]:
    """A product of matrices in the type of its operands, and of one pair in int8."""
    name = str(x.dtype).removeprefix("torch.").replace("float", "fp")
    yield Contender(f"torch {name}", False, same_call(partial(torch.matmul, x, y)))
    if x.dim() == 2 and x.size(0) >= LEAST_INT8_ROWS:
        # cuBLAS takes columns of int8 that lie behind each other.
        narrow = x.clamp(-1, 1).round().to(torch.int8)
        columns = y.clamp(-1, 1).round().to(torch.int8).t().contiguous().t()
        product = partial(torch._int_mm, narrow, columns)
        yield Contender("torch._int_mm, quantised before, int32 out", False, same_call(product))


def int8_linear_contenders(x: Tensor, weights: Sequence[Tensor], count: int) -> Iterator[Contender]:
    """``Linear8bitLt`` of bitsandbytes, where that is installed; nothing where it is not.

    Weights are int8 before the call, activations become int8 in it, by rows.
    """
    library = _bitsandbytes()
    if library is None:
        return

    def make() -> Callable[[], Any]:
        layers = []
        for w in weights:
            layer = library.Linear8bitLt(w.size(1), w.size(0), bias=False, has_fp16_weights=False)
            # Moving it from the CPU is what makes it int8.
            layer.weight = library.Int8Params(w.cpu(), requires_grad=False, has_fp16_weights=False)
            layers.append(layer.to(x.device).eval())

        def call() -> Any:
            result = None
            for i in range(count):
                result = layers[i % len(layers)](x)
            return result

        return call

    yield Contender("bitsandbytes Linear8bitLt", False, make)


def four_bit_contenders(x: Tensor, w: Tensor) -> Iterator[Contender]:
    """Torch's own kernel of packed 4-bit weights and bfloat16 activations, on a GPU alone."""
    if not x.is_cuda:
        return

    def make() -> Callable[[], Any]:
        groups = w.float().unflatten(1, (-1, GROUP))
        low, high = groups.amin(2), groups.amax(2)
        step = ((high - low) / 15).clamp(min=1e-6)
        levels = ((groups - low[..., None]) / step[..., None]).round().clamp(0, 15).int().flatten(1)
        pairs = (levels[:, ::2] << 4 | levels[:, 1::2]).to(torch.uint8)
        packed = torch.ops.aten._convert_weight_to_int4pack(pairs, INNER_TILES)
        # The kernel takes levels less 8.
        numbers = torch.stack([step, low + 8 * step], 2).transpose(0, 1).contiguous().bfloat16()
        rows = x.bfloat16()
        call = partial(torch.ops.aten._weight_int4pack_mm, rows, packed, GROUP, numbers)
        expected = rows.float() @ w.float().t()
        if (call().float() - expected).norm() > 0.2 * expected.norm():
            raise RuntimeError("products of 4-bit weights are far from those of floats")
        return call

    yield Contender("torch int4 weights", False, make)


def _bitsandbytes() -> Any:
    """Its layers; None where it is not installed or does not load."""
    try:
        return importlib.import_module("bitsandbytes.nn")
    except (ImportError, OSError, RuntimeError) as error:
        if not isinstance(error, ModuleNotFoundError):
            warnings.warn(f"bitsandbytes does not load: {error}", RuntimeWarning, stacklevel=2)
        return None
