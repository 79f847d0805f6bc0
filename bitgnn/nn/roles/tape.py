"""Layers and dropout before a layer, read from autograd's graph."""

from __future__ import annotations

import re
import weakref
from typing import Any

import torch
from torch import Tensor

from bitgnn.nn.spread import spread_graph

MARK = "bitgnn_layer"
MOST_NODES = 100_000
LOOKED_AT = 4096
ZERO_STAYS = re.compile(
    r"(Relu|LeakyRelu|Elu|Gelu|Silu|Tanh|View|Reshape|ToCopy|UnsafeView)Backward"
)
JOIN = re.compile(r"(Cat|Stack)Backward")


def leave_mark(layer: Any, out: Tensor) -> None:
    """Mark ``out`` so that later layers find the one that made it."""
    node: Any = out.grad_fn
    if node is not None:
        node.metadata[MARK] = weakref.ref(layer)


def found_producers(x: Tensor) -> list[Any]:
    """The layers whose results ``x`` was made of, no other binary layer in between.

    Autograd's graph is the data flow: activations, norms, dropout, sums and joins are nodes of it.
    """
    return _found_producers([x.grad_fn])


def _found_producers(nodes: list[Any]) -> list[Any]:
    found: list[Any] = []
    seen: set[Any] = set()
    stack = list(nodes)
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


def joins_features(x: Tensor) -> bool:
    """True if ``x`` joins columns of a binary layer with columns of other origin."""
    node: Any = x.grad_fn
    while node is not None and MARK not in node.metadata:
        parents = [parent for parent, _ in node.next_functions]
        if JOIN.match(node.name()) is not None:
            return not all(parent is not None and _found_producers([parent]) for parent in parents)
        node = parents[0] if parents else None
    return False


def kept_share(x: Tensor) -> float:
    """Share of the entries that dropout between ``x`` and the layer before it has kept.

    Read from autograd's graph, along operations that leave a 0 a 0 and an entry where it is.
    """
    share = 1.0
    node: Any = x.grad_fn
    while node is not None and MARK not in node.metadata:
        name = node.name()
        if name.startswith("NativeDropoutBackward"):
            p = getattr(node, "_saved_p", None)
            share *= float(node._saved_result1.float().mean()) if p is None else 1.0 - p
        elif name.startswith("MulBackward"):
            share *= _share_of_mask(node._saved_other, x)
        elif ZERO_STAYS.match(name) is None:
            break
        node = node.next_functions[0][0]
    spread = spread_graph()
    return share if spread is None else spread.least(share)  # few entries tell nothing


def _share_of_mask(mask: Any, x: Tensor) -> float:
    """``1 - p`` of a mask of zeros and ``1 / (1 - p)``, as the CPU's dropout makes it; else 1."""
    if not isinstance(mask, Tensor) or mask.is_cuda or mask.numel() != x.numel():
        return 1.0
    values = mask.detach().reshape(-1)[:LOOKED_AT]
    least, most = (float(bound) for bound in torch.aminmax(values)) if len(values) else (0.0, 0.0)
    if least != 0.0 or most <= 1.0 or bool(((values != 0) & (values != most)).any()):
        return 1.0
    return 1.0 / most
