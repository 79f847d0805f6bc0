"""Layers of BinCNN one by one, as the paper's table 2 has them: one image of 96x96 pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.cases import Case, Contender, WrongResultError, same_call
from bitgnn.bits import BitImages, BitTensor
from bitgnn.ops import bmm, conv, patches

GROUP, SEED = "BinCNN, layers", 0
KERNEL, PADDING, OUTPUTS, DENSE = 5, 2, 32, 100
FIRST, SECOND = (3, 96), (32, 48)
"""Channels and pixels of a side that the two convolutions take."""
FLAT = 24 * 24 * 32


def bincnn_cases(device: str) -> Iterator[Case]:
    """Two convolutions, each cut into patches and multiplied; two pools; the large linear layer."""
    cases: list[tuple[str, Callable[..., Iterator[Contender]], tuple[Any, ...]]] = [
        ("patches of floats, packed (96, 96, 3)", _patches, FIRST),
        ("convolution (32, 5, 5, 3) of patches, bits out", _first, FIRST),
        ("max pool (96, 96, 32)", _pool, (OUTPUTS, 96)),
        ("convolution (32, 5, 5, 32), bits in and out", _second, SECOND),
        ("max pool (48, 48, 32)", _pool, (OUTPUTS, 48)),
        ("linear (100, 24x24x32), bits in, int32 out", _linear, ()),
    ]
    for name, make, shape in cases:
        yield Case(GROUP, name, partial(make, device, *shape))


def _values(device: str, *shape: int, seed: int = SEED) -> Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=device)


def _types(device: str) -> tuple[torch.dtype, ...]:
    """The types in which torch is measured."""
    return (torch.float32, torch.float16) if device == "cuda" else (torch.float32,)


def _peers(
    device: str, call: Callable[..., Tensor], *given: Tensor, **numbers: Any
) -> Iterator[Contender]:
    """Torch's call in each type."""
    for dtype in _types(device):
        name = f"torch {str(dtype).removeprefix('torch.').replace('float', 'fp')}"
        yield Contender(
            name, False, same_call(partial(call, *(t.to(dtype) for t in given), **numbers))
        )


def _signs(x: Tensor) -> Tensor:
    return torch.where(x >= 0, 1.0, -1.0)


def _checked(call: Callable[[], Any], expected: Tensor) -> Callable[[], Any]:
    found = call()
    values = found.to_float() if isinstance(found, (BitImages, BitTensor)) else found.float()
    if not torch.equal(values, expected):
        raise WrongResultError
    return call


def _convolved(x: Tensor, w: Tensor) -> Tensor:
    """Sums of products of signs; rounded, since a convolution may be one of Fourier transforms."""
    return functional.conv2d(_signs(x), _signs(w), padding=PADDING).round()


def _patches(device: str, channels: int, size: int) -> Iterator[Contender]:
    """The paper's im2col; ours packs signs while it cuts."""
    x = _values(device, 1, channels, size, size)
    yield from _peers(device, functional.unfold, x, kernel_size=KERNEL, padding=PADDING)
    call = partial(patches.pack, x, KERNEL, padding=PADDING)
    # The convolution below tells whether patches are right.
    yield Contender("patches.pack", True, same_call(call))


def _first(device: str, channels: int, size: int) -> Iterator[Contender]:
    x = _values(device, 1, channels, size, size)
    w = _values(device, OUTPUTS, channels, KERNEL, KERNEL, seed=1)
    yield from _peers(device, functional.conv2d, x, w, padding=PADDING)
    packed = patches.pack(x, KERNEL, padding=PADDING)
    kernel = patches.kernel(BitImages.from_float(w))
    expected = _convolved(x, w)
    call = partial(patches.bbb, packed, kernel)
    yield Contender("packed patches", True, partial(_checked, call, _signs(expected)))


def _second(device: str, channels: int, size: int) -> Iterator[Contender]:
    x = _values(device, 1, channels, size, size)
    w = _values(device, OUTPUTS, channels, KERNEL, KERNEL, seed=1)
    yield from _peers(device, functional.conv2d, x, w, padding=PADDING)
    kernel = BitImages.from_float(w)
    call = partial(
        conv.bbb, BitImages.from_float(x), kernel, padding=PADDING, prepared=conv.prepare(kernel)
    )
    expected = _convolved(x, w)
    yield Contender("bits in and out", True, partial(_checked, call, _signs(expected)))


def _pool(device: str, channels: int, size: int) -> Iterator[Contender]:
    x = _values(device, 1, channels, size, size)
    yield from _peers(device, functional.max_pool2d, x, kernel_size=2)
    call = partial(conv.max_pool, BitImages.from_float(x), 2)
    expected = functional.max_pool2d(_signs(x), 2)
    yield Contender("bits in and out", True, partial(_checked, call, expected))


def _linear(device: str) -> Iterator[Contender]:
    x, w = _values(device, 1, FLAT), _values(device, DENSE, FLAT, seed=1)
    yield from _peers(device, functional.linear, x, w)
    bits, weight = BitTensor.from_float(x), BitTensor.from_float(w)
    expected = _signs(x) @ _signs(w).t()
    call = partial(bmm.bbf, bits, weight, integer=True)
    yield Contender("packed before", True, partial(_checked, call, expected))
    whole = partial(bmm.fbf, x, weight, integer=True)
    yield Contender("packing included", True, partial(_checked, whole, expected), ranked=False)
