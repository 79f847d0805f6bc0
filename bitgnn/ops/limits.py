"""Comparisons behind integer products as comparisons of the integers themselves."""

from collections.abc import Callable

import torch
from torch import Tensor


def integer_limits(
    bit: Callable[[Tensor], Tensor], bound: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Limits for which ``bit(total) == (total >= limit) ^ turned``, found by bisection.

    Args:
        bit: booleans ``[O]`` of int64 totals ``[O]``, monotone in each of them.
        bound: totals lie in ``[-bound, bound]``.
        like: ``[O]`` on the device of ``bit``.

    Returns:
        int64 limits in ``[-bound, bound + 1]``, and where the comparison is reversed. What is
        always true has the limit ``-bound``, what never is has ``bound + 1``; neither is turned.
    """
    below = torch.full_like(like, -bound, dtype=torch.int64)
    limit, turned = torch.full_like(below, bound + 1), bit(below)
    # The first total with another bit than the lowest one has.
    for _ in range((2 * bound + 1).bit_length()):
        middle = torch.div(below + limit, 2, rounding_mode="floor")
        changed = bit(middle) != turned
        limit, below = torch.where(changed, middle, limit), torch.where(changed, below, middle)
    always = turned & (limit > bound)
    return torch.where(always, -bound, limit), turned & ~always
