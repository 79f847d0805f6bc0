"""Signs behind functions and max pooling: thresholds of what stands in front, and pools of bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bitgnn.convert.network.values import IMAGES, Value, canonical
from bitgnn.convert.selection.comparisons import Comparison, folded, function_of
from bitgnn.inference.steps.floats import is_monotone

__all__ = ["Chain", "chain_of", "comparison", "is_pool", "pool_flips", "target_of"]

_SIDE = 2
"""Rows and columns of the images that functions are evaluated on: as many take the loops of images
in channels_last, which one pixel might not."""


class Chain(NamedTuple):
    """Functions and max pools from a base to the value whose signs are wanted, first one first."""

    base: Value
    links: tuple[Value, ...]


def is_pool(value: Value) -> bool:
    """Whether a value is a max pooling that bits can do."""
    a = value.attributes
    return value.kind == "max_pool" and not a["ceil_mode"] and a["dilation"] == [1, 1]


def target_of(value: Value) -> Value:
    """The earliest value with the same signs."""
    return canonical(value)


def chain_of(target: Value) -> Chain:
    """What leads to a value whose signs are wanted."""
    links = []
    while (target.kind == "function" and is_monotone(target.name)) or is_pool(target):
        links.append(target)
        (target,) = target.inputs
    return Chain(target, tuple(links[::-1]))


def _on_images(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function of images on channels ``[1, C]``, with the very arithmetic of images."""

    def on_channels(v: Tensor) -> Tensor:
        images = v[:, :, None, None].expand(1, -1, _SIDE, _SIDE)
        images = images.contiguous(memory_format=torch.channels_last)
        return function(images)[:, :, 0, 0]

    return on_channels


def _functions(links: Sequence[Value], rank: int | None) -> list[Callable[[Tensor], Tensor]]:
    made = [function_of(link) for link in links if link.kind == "function"]
    return [_on_images(function) for function in made] if rank == IMAGES else made


def comparison(chain: Chain, of_sums: bool) -> Comparison:
    """Threshold and flipped channels of the signs at the end of a chain.

    Args:
        chain: what leads to them.
        of_sums: compare the bare sums of a binary product (times the step of fixed point in a
            first layer), its scale and bias being the first functions; else its base's values.
    """
    base, links = chain
    functions = _functions(links, base.rank)
    scale, bias = base.tensors.get("scale"), base.tensors.get("bias")
    if of_sums:
        if bias is not None:
            functions.insert(0, lambda v: v + bias)
        if scale is not None:
            functions.insert(0, lambda v: scale * v)
    assert base.size is not None
    return folded(functions, base.size, _device(base, links))


def pool_flips(chain: Chain) -> list[tuple[Value, Tensor | None]]:
    """The pools of a chain, and which channels take the minimum of their bits.

    The maximum in front of a falling function is the minimum behind it.
    """
    found = []
    for place, link in enumerate(chain.links):
        if link.kind == "max_pool":
            behind = chain.links[place + 1 :]
            size = chain.base.size
            assert size is not None
            functions = _functions(behind, chain.base.rank)
            found.append((link, folded(functions, size, _device(link, behind))[1]))
    return found


def _device(base: Value, links: Sequence[Value]) -> torch.device:
    for value in (base, *links):
        for tensor in value.tensors.values():
            return tensor.device
    return torch.device("cpu")
