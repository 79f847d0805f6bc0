"""Other ways for BWTA activations to lose levels, those of the paper's figures 9 and 10."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from bitgnn.distillation.batches import Batched
from bitgnn.nn.bwta_linear import ActivationQuantizer
from bitgnn.nn.multistage import activation_quantizers, set_level

__all__ = ["WAYS", "falling"]

BITS = (3, 1)
"""Levels of three bits and of two, the paper's contrast to 4, 3, 2 and 1."""
FACTORS = torch.linspace(0.2, 2.0, 37).tolist()
"""Of the scale that activations would start from, among which is searched."""
Inputs = dict[str, tuple[Tensor, ...]]


def _entered(
    model: nn.Module,
    level: int,
    run: Callable[[], Any],
    only: Collection[str] | None,
    change: Callable[[ActivationQuantizer, tuple[Tensor, ...]], Any],
) -> None:
    """Set a level, then change each scale by the activations that the old level gives."""
    found = {n: q for n, q in activation_quantizers(model, only).items() if q.kind != "sign"}
    inputs: Inputs = {}
    handles = [
        quantizer.register_forward_pre_hook(
            lambda module, given, name=name: inputs.setdefault(name, given) and None
        )
        for name, quantizer in found.items()
    ]
    try:
        with torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    set_level(model, level, only)
    with torch.no_grad():
        for name, given in inputs.items():
            change(found[name], given)


def mean(
    model: nn.Module, level: int, run: Callable[[], Any], only: Collection[str] | None = None
) -> None:
    """Scales start anew from the mean magnitude."""
    _entered(model, level, run, only, lambda quantizer, given: quantizer.initialize(*given))


def none(
    model: nn.Module, level: int, run: Callable[[], Any], only: Collection[str] | None = None
) -> None:
    """Scales stay."""
    set_level(model, level, only)


def search(
    model: nn.Module, level: int, run: Callable[[], Any], only: Collection[str] | None = None
) -> None:
    """Scales of the least square error of the activations."""
    _entered(model, level, run, only, _search)


def _search(quantizer: ActivationQuantizer, given: tuple[Tensor, ...]) -> None:
    quantizer.initialize(*given)
    start, errors = quantizer.scale.clone(), []
    for factor in FACTORS:
        quantizer.scale.copy_(factor * start)
        q, scale = quantizer.forward(*given)
        error = (q * scale - given[0]).square()
        valid = given[1] if len(given) > 1 else None
        errors.append((error if valid is None else error * valid).sum())
    best = int(torch.stack(errors).argmin())
    quantizer.scale.copy_(FACTORS[best] * start)


WAYS: dict[str, tuple[tuple[int, ...] | None, Callable[..., None] | None]] = {
    "mean": (None, mean), "none": (None, none), "search": (None, search), "bits": (BITS, mean),
}  # fmt: skip
"""Levels, and what becomes of scales between them; None for what the package does."""


@contextmanager
def falling(way: str) -> Iterator[None]:
    """Distillation in which levels fall in another way."""
    levels, enter = WAYS[way]
    with (
        mock.patch.object(Batched, "levels", levels or Batched.levels),
        mock.patch("bitgnn.distillation.stages.enter_level", enter),
    ):
        yield
