"""Layers and dropout in front of a layer, read from autograd's graph."""

from __future__ import annotations

import functools
import re
import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

MARK = "bitgnn_layer"
MOST_NODES = 100_000
LOOKED_AT = 4096
ZERO_STAYS = re.compile(
    r"(Relu|LeakyRelu|Elu|Gelu|Silu|Tanh|View|Reshape|ToCopy|UnsafeView)Backward"
)


def leave_mark(layer: Any, out: Tensor) -> None:
    """Let layers further on find the one that made ``out``."""
    node: Any = out.grad_fn
    if node is not None:
        node.metadata[MARK] = weakref.ref(layer)


def found_producers(x: Tensor) -> list[Any]:
    """The layers whose results ``x`` was made of, nothing binary in between.

    Autograd's graph is the data flow: activations, norms, dropout, sums and joins are nodes of it.
    """
    found: list[Any] = []
    seen: set[Any] = set()
    stack: list[Any] = [x.grad_fn]
    while stack and len(seen) < MOST_NODES:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        mark = node.metadata.get(MARK)
        if mark is None:
            stack.extend(parent for parent, _ in node.next_functions)
            continue
        layer = mark()
        if layer is not None:
            found.append(layer)
    return found


class KeptEntries(NamedTuple):
    """Entries that dropout in front of a layer has kept."""

    mask: Tensor | None
    """Of as many elements as the input, in its order; None is not known, or all."""
    share: float
    """Probability of keeping."""


def kept_entries(x: Tensor) -> KeptEntries:
    """Entries that dropout between ``x`` and the layer in front has kept.

    Read from autograd's graph, along operations that leave a 0 a 0 and an entry where it is.
    """
    masks: list[Tensor] = []
    share = 1.0
    node: Any = x.grad_fn
    while node is not None and MARK not in node.metadata:
        name = node.name()
        if name.startswith("NativeDropoutBackward"):
            mask, p = node._saved_result1, getattr(node, "_saved_p", None)
            share *= float(mask.float().mean()) if p is None else 1.0 - p
            masks.append(mask)
        elif name.startswith("MulBackward"):
            kept = _share_of_mask(node._saved_other, x)
            if kept < 1.0:
                masks.append(node._saved_other != 0)
                share *= kept
        elif ZERO_STAYS.match(name) is None:
            break
        node = node.next_functions[0][0]
    if not masks:
        return KeptEntries(None, share)
    rows = [mask.detach().reshape(x.shape) for mask in masks]
    return KeptEntries(functools.reduce(torch.logical_and, rows), share)


def _share_of_mask(mask: Any, x: Tensor) -> float:
    """``1 - p`` of a mask of zeros and ``1 / (1 - p)``, as the CPU's dropout makes it; else 1."""
    if not isinstance(mask, Tensor) or mask.is_cuda or mask.numel() != x.numel():
        return 1.0
    values = mask.detach().reshape(-1)[:LOOKED_AT]
    least, most = (float(bound) for bound in torch.aminmax(values)) if len(values) else (0.0, 0.0)
    if least != 0.0 or most <= 1.0 or bool(((values != 0) & (values != most)).any()):
        return 1.0
    return 1.0 / most
