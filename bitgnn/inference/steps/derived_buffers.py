"""Tells which buffers a bound step derived others from, so that a write to them is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from torch import Tensor

from bitgnn.inference.program import Runner

__all__ = ["derives_from", "sources_of"]

AnyRunner = TypeVar("AnyRunner", bound=Runner)


def derives_from(tensors: Iterable[Tensor]) -> Callable[[AnyRunner], AnyRunner]:
    """Mark a bound step with the buffers whose values it read when it was bound."""

    def mark(run: AnyRunner) -> AnyRunner:
        run.__dict__["sources"] = tuple(tensors)
        return run

    return mark


def sources_of(run: Runner) -> tuple[Tensor, ...]:
    """The buffers that :func:`derives_from` marked a bound step with."""
    marked: tuple[Tensor, ...] = vars(run).get("sources", ())
    return marked
