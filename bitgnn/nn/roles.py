"""The forms of "bin" and "full" by role, and how layers find their role in the first forward."""

from __future__ import annotations

import contextvars
import functools
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from bitgnn.nn.precision import LayerPrecision

__all__ = [
    "NAMED", "KeptEntries", "Role", "default_precision", "found_producers", "kept_entries",
    "leave_mark", "named_forms",
]  # fmt: skip

Role = Literal["hidden", "last"]
"""``"hidden"``: a binary layer takes the result; ``"last"``: nothing or something else does."""

Form = Literal["hidden", "last", "few_bits"]
"""That of a role, or of a hidden layer on features of no more bits than it has outputs."""

NAMED = ("bin", "full")
"""Precisions by name, whose form depends on the layer's role."""

MARK = "bitgnn_layer"
MOST_NODES = 100_000

_default: contextvars.ContextVar[str | LayerPrecision] = contextvars.ContextVar(
    "bitgnn_default_precision", default="bin"
)


@contextmanager
def default_precision(precision: str | LayerPrecision) -> Iterator[None]:
    """Let graph layers made inside have this precision where they name none.

    ``with bitgnn.nn.default_precision("fp32"):`` makes PyG's own layers of them. Outside it is
    ``"bin"``.

    Args:
        precision: what ``precision=`` of a layer takes.

    Raises:
        ValueError: it is neither a name nor letters.
    """
    LayerPrecision.parse(precision)
    token = _default.set(precision)
    try:
        yield
    finally:
        _default.reset(token)


def chosen_precision(precision: str | LayerPrecision | None) -> str | LayerPrecision:
    """The precision a layer was asked for, or the default."""
    return _default.get() if precision is None else precision


def named_forms(precision: str | LayerPrecision) -> dict[Form, LayerPrecision] | None:
    r"""The forms of ``"bin"`` or ``"full"``; None for anything else.

    A hidden layer has a batch norm behind its product; in ``"bin"`` the sign follows, and bits are
    aggregated; a GCNConv between two others adds the node's own bits. The last one has none of
    these: it sums the neighbours' bits, which gives integers, and
    multiplies them by binary weights with a scale for each output, the learnt gain of the scores.
    A hidden layer on features of no more bits than it has outputs does so, too, with its batch
    norm: fewer bits are summed than behind the product, and no sign loses any of the sums.
    """
    if precision not in NAMED:
        return None
    letters = ("FBB", "BBF") if precision == "bin" else ("FBF", "FBF")
    hidden = LayerPrecision(*letters, hidden_norm="batch", inputs="looked_up", shortcut=True)
    last = LayerPrecision("FBF", "FBF", inputs="looked_up", order="aggregate_first")
    few = replace(last, hidden_norm="batch") if precision == "bin" else hidden
    return {"hidden": hidden, "last": last, "few_bits": few}


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


ZERO_STAYS = re.compile(
    r"(Relu|LeakyRelu|Elu|Gelu|Silu|Tanh|View|Reshape|ToCopy|UnsafeView)Backward"
)
LOOKED_AT = 4096


class KeptEntries(NamedTuple):
    """Entries that dropout in front of a layer has kept.

    Attributes:
        mask: bool tensor of as many elements as the input, in its order; None is not known, or all.
        share: probability of keeping.
    """

    mask: Tensor | None
    share: float


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
