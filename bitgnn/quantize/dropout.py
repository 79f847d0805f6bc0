"""Dropout from few random bits on the CPU, and small constant tensors that are made once."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import Tensor
from torch.nn import functional

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)

LEVEL_BITS = 16
LEVELS = 2**LEVEL_BITS
INT64_MIN = -(2**63)
MOST = 256
"""Constant tensors that are kept at most."""

_kept: dict[Hashable, Tensor] = {}


def made_once(key: Hashable, like: Tensor, make: Callable[[], Tensor]) -> Tensor:
    """Cached result of ``make()``, read-only; ``key`` names its inputs other than the device.

    What a compiler traces or a CUDA graph captures gets a tensor of its own.
    """
    is_traced = torch.compiler.is_compiling() or type(like) is not Tensor
    if is_traced or (like.is_cuda and torch.cuda.is_current_stream_capturing()):
        return make()
    found = _kept.get((key, like.device))
    if found is None:
        if len(_kept) >= MOST:
            _kept.clear()
        with torch.inference_mode(False), torch.no_grad():
            found = make()
        _kept[key, like.device] = found
    return found


def filled(size: int, value: float, like: Tensor) -> Tensor:
    """Float32 ``[size]`` of one value on the device of ``like``, read-only."""
    device = like.device
    return made_once(
        (size, value), like, lambda: torch.full((size,), value, device=device, dtype=torch.float32)
    )


def all_words(size: int, like: Tensor) -> Tensor:
    """int32 words ``[1, ceil(size / 32)]`` with the bit of every feature set, read-only."""
    device = like.device
    return made_once(
        ("words", size),
        like,
        lambda: torch.ops.bitgnn.pack(torch.ones(1, size, device=device, dtype=torch.float32)),
    )


def fast_dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """``torch.nn.functional.dropout`` with ``p`` rounded to a multiple of 2^-16.

    The random numbers of a dense dropout cost more than a layer's matrix products on the CPU;
    16 random bits a place decide as well as 32. What is kept is divided by the rounded probability
    of keeping, so the expectation is exact. Elsewhere than on the CPU this is PyTorch's own
    dropout.

    Args:
        x: float tensor of any shape.
        p: probability of dropping, in [0, 1).
        training: whether to drop at all.

    Returns:
        Tensor like ``x``; ``x`` itself where nothing is dropped.
    """
    if not training or round(p * LEVELS) == 0 or x.numel() == 0:
        return x
    if x.device.type != "cpu":
        return functional.dropout(x, p)
    words, kept = keep_words(1, x.numel(), p, x)
    signs = torch.ops.bitgnn.unpack(words, x.numel()).view(x.shape)
    return x * signs.add_(1.0).mul_(0.5 / kept).to(x.dtype)


def keep_words(rows: int, size: int, p: float, like: Tensor) -> tuple[Tensor, float]:
    """Decisions of a dropout as words ``[rows, ceil(size / 32)]``, bit 1 where kept (padding is 0).

    On the CPU ``p`` is rounded to a multiple of 2^-16 and a random word decides for 64 places at
    once: with ``k`` the kept levels of 2^16, and from the lowest set bit of ``k`` upwards, OR with
    a random word takes a probability ``q`` to ``(1 + q) / 2`` (bit 1), AND to ``q / 2`` (bit 0).
    The probability of keeping comes with the words.
    """
    device = like.device
    if device.type != "cpu":
        drawn = torch.rand(rows, size, device=device, dtype=torch.float32)
        return torch.ops.bitgnn.pack(drawn, filled(size, p, like)), 1.0 - p
    valid = all_words(size, like)
    kept = LEVELS - round(p * LEVELS)
    if kept == LEVELS:
        return valid.expand(rows, -1).contiguous(), 1.0
    doubles = torch.empty(-(-rows * valid.size(1) // 2), dtype=torch.int64)
    decided = torch.zeros_like(doubles)
    lowest = (kept & -kept).bit_length() - 1
    for bit in range(lowest, LEVEL_BITS):
        doubles.random_(INT64_MIN, None)
        if kept >> bit & 1:
            decided.bitwise_or_(doubles)
        else:
            decided.bitwise_and_(doubles)
    words = decided.view(torch.int32)[: rows * valid.size(1)].view(rows, valid.size(1))
    return words.bitwise_and_(valid), kept / LEVELS


def unpacked(words: Tensor, raised: Tensor | None, size: int) -> Tensor:
    """Signs as floats ``[N, size]``; the sum of both with ``raised``.

    A dropped sign is -1 in ``words`` and +1 in ``raised``: it vanishes from the sum of both, and
    from the sum of their products with anything; a kept one counts twice. So two exact products of
    bits make the exact product with dropout.
    """
    if raised is None:
        signs: Tensor = torch.ops.bitgnn.unpack(words, size)
    else:
        signs = torch.ops.bitgnn.unpack_pair(words, raised, size)
    return signs
