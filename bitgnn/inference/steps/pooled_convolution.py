"""One call for a convolution to bits and the pooling that alone reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.inference.program import Runner, Step

__all__ = ["bind_pooled_convolution"]

_conv_bbb = torch.ops.bitgnn.conv_bbb.default


def bind_pooled_convolution(
    group: Sequence[Step], own: Sequence[Mapping[str, Tensor]]
) -> Runner | None:
    """The call, which a GPU does in one launch where it can.

    Args:
        group: ``conv_bbb`` and a ``pool_bits`` that alone reads its bits.
        own: their tensors.

    Returns:
        The call, or None where the steps are others or windows overlap, leave pixels out or are
        padded.
    """
    if [step.kind for step in group] != ["conv_bbb", "pool_bits"]:
        return None
    convolution, pool = group
    window = pool.attributes["kernel"]
    if pool.attributes["stride"] != window or any(pool.attributes["padding"]):
        return None
    (x,), (out,), a = convolution.inputs, pool.outputs, convolution.attributes
    weight = own[0]["weight"]
    numbers = (a["size"], a["stride"], a["padding"], a["dilation"], a["groups"])
    compared = [own[0].get(name) for name in ("threshold", "flip", "prepared")]
    rest = (None, None, *compared, window, own[1].get("flip"))

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _conv_bbb(v[x], weight, *numbers, *rest)

    return run
