"""Signs behind functions and pools as comparisons with thresholds, with flipped channels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from bitgnn.convert.network.values import IMAGES, Value, collapse
from bitgnn.inference.steps.floats import FUNCTIONS
from bitgnn.inference.threshold_folding import sign_threshold
from bitgnn.ops.conv_shape import integer_limits

Function = Callable[[Tensor], Tensor]
Comparison = tuple[Tensor | None, Tensor | None]
"""Threshold and flipped channels of a sign; None where they are 0 and none."""
EXACT = 2**24
"""Integers up to which float32 is exact."""
_SIDE = 2
"""Rows and columns of the images that functions are evaluated on: as many take the loops of images
in channels_last, which one pixel might not."""
_pack = torch.ops.bitgnn.pack.default


def functions_of(links: Iterable[Value], rank: int | None = None) -> list[Function]:
    """Functions of values of kind ``"function"``, on channels ``[1, C]`` of the one in front."""
    made = [partial(_applied, link) for link in links if link.kind == "function"]
    return [partial(_on_images, function) for function in made] if rank == IMAGES else [*made]


def _applied(value: Value, v: Tensor) -> Tensor:
    return FUNCTIONS[value.name].apply(v, value.tensors, value.attributes)


def _on_images(function: Function, v: Tensor) -> Tensor:
    """A function of images on channels ``[1, C]``, with the very arithmetic of images."""
    images = v[:, :, None, None].expand(1, -1, _SIDE, _SIDE)
    return function(images.contiguous(memory_format=torch.channels_last))[:, :, 0, 0]


def comparison(target: Value, device: torch.device, of_sums: bool) -> Comparison:
    """Threshold and flipped channels of the signs of a value, as a comparison of its base.

    Args:
        target: the value.
        device: where the tensors of its functions are.
        of_sums: compare what the operator of the base computes in front of its scale and bias (a
            first layer's sums times the step of fixed point), these being the first functions;
            else the values of the base.
    """
    base, links = collapse(target)
    functions = functions_of(links, base.rank)
    scale = base.tensors.get("scale") if base.kind == "product" else None
    bias = base.tensors.get("bias") if len(base.inputs) == 1 else None
    if of_sums and bias is not None:
        functions.insert(0, lambda v: v + bias)
    if of_sums and scale is not None:
        functions.insert(0, lambda v: scale * v)
    assert base.size is not None
    return folded(functions, base.size, device)


def pool_flips(target: Value, device: torch.device) -> list[tuple[Value, Tensor | None]]:
    """The pools in front of a value, and which channels take the minimum of their bits.

    The maximum in front of a falling function is the minimum behind it.
    """
    base, links = collapse(target)
    found = []
    for place, link in enumerate(links):
        if link.kind == "max_pool":
            assert base.size is not None
            behind = functions_of(links[place + 1 :], base.rank)
            found.append((link, folded(behind, base.size, device)[1]))
    return found


def folded(functions: Sequence[Function], size: int, device: torch.device) -> Comparison:
    """Threshold and flipped channels of the sign behind a chain of functions.

    Args:
        functions: monotone in each channel, applied in order.
        size: number of channels.
        device: where the functions' tensors are.
    """
    if not functions:
        return None, None

    def chain(v: Tensor) -> Tensor:
        for function in functions:
            v = function(v)
        return v

    return _plain(*sign_threshold(chain, size, device))


def folded_scale(
    size: int, scale: Tensor, threshold: Tensor | None, flipped: Tensor | None
) -> Comparison:
    """The comparison ``(scale * dot >= threshold) ^ flipped`` as one of dot products themselves.

    Args:
        size: dot products lie in ``[-size, size]``, below :data:`EXACT`.
        scale: float32 of each channel, of any sign.
        threshold: None is 0.
        flipped: None is no channel.
    """
    least_value = torch.zeros_like(scale) if threshold is None else threshold
    least, turned = integer_limits(lambda dot: scale * dot.float() >= least_value, size, scale)
    if flipped is not None:
        turned = turned ^ flipped
    return _plain(least.float(), turned)


def _plain(threshold: Tensor, flipped: Tensor) -> Comparison:
    """None in place of zeros and of no flipped channel."""
    has_flips = bool(flipped.any())
    if not has_flips and bool((threshold == 0).all()):
        return None, None
    return threshold, flipped if has_flips else None


def mask_of(flipped: Tensor) -> Tensor:
    """Words ``[1, ceil(size / 32)]`` whose set bits are the flipped channels."""
    words: Tensor = _pack(torch.where(flipped, 1.0, -1.0).unsqueeze(0))
    return words
