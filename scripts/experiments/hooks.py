"""Hooks of studies: they change how students are made and trained, inside of a context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from bitgnn.distillation import fitting, teaching
from bitgnn.nn.looked_up_products import LookedUpProducts

__all__ = ["after_steps", "before_epochs", "latent_weights", "students"]

MATRIX = 2
Weights = list[nn.Parameter]


def latent_weights(model: nn.Module) -> Weights:
    """Matrices of which a model's binary layers use the signs; none of a float model."""
    layers = (layer for layer in model.modules() if isinstance(layer, LookedUpProducts))
    return [p for layer in layers for p in layer.parameters() if p.dim() == MATRIX]


@contextmanager
def students(change: Callable[[nn.Module, nn.Module], Any]) -> Iterator[None]:
    """Call ``change(student, float model)`` with each student before it learns."""
    make = teaching.binary_student

    def made(model: nn.Module, precision: Any, problem: Any) -> nn.Module:
        student = make(model, precision, problem)
        with torch.no_grad():
            change(student, model)
        return student

    with patch.object(teaching, "binary_student", made):
        yield


@contextmanager
def before_epochs(call: Callable[[fitting.Fit, float], Any]) -> Iterator[None]:
    """Call ``call(training, share of it that is over)`` before each epoch."""
    step = fitting.step_epoch

    def stepped(session: fitting.Fit, problem: Any, ask: Any, progress: float) -> None:
        call(session, progress)
        problem.repeats = False  # what is called may make each epoch another one
        step(session, problem, ask, progress)

    with patch.object(fitting, "step_epoch", stepped):
        yield


@contextmanager
def after_steps(change: Callable[[nn.Parameter, Tensor, float], Any]) -> Iterator[None]:
    """Call ``change(weight, value before, share of the training that is over)`` after each step.

    It changes latent weights in place: signs stay those of the weights, and what is validated and
    frozen is what was trained.
    """
    hooked: list[Any] = [None, 0.0]

    def hook(session: fitting.Fit, progress: float) -> None:
        seen, hooked[1] = hooked[0], progress
        if seen is session:
            return
        hooked[0], weights = session, latent_weights(session.model)
        held: list[Tensor] = []

        def before(*_: Any) -> None:
            held[:] = [weight.detach().clone() for weight in weights]

        @torch.no_grad()
        def after(*_: Any) -> None:
            for weight, value in zip(weights, held, strict=True):
                change(weight, value, hooked[1])

        session.optimizer.register_step_pre_hook(before)
        session.optimizer.register_step_post_hook(after)

    with before_epochs(hook):
        yield
