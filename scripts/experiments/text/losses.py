"""Losses that make a quantised transformer follow its full-precision teacher."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["attention_loss", "logit_loss", "state_loss"]

LEAST_ATTENTION = 1e-7


def state_loss(student: Sequence[Tensor], teacher: Sequence[Tensor], weight: Tensor) -> Tensor:
    """Mean squared difference of states, over all tokens that count, summed over layers.

    Args:
        student: ``[B, T, D]`` of each layer.
        teacher: the same of the teacher.
        weight: ``[B, T]``, 1 for tokens that count and 0 for others.

    Returns:
        scalar.

    Raises:
        ValueError: the numbers of layers or the shapes differ.
    """
    _check("state_loss", student, teacher)
    total = weight.sum().clamp(min=1)
    # All layers at once: on a GPU small operators cost by their number.
    losses = (torch.stack(tuple(student)) - torch.stack(tuple(teacher))).square().mean(-1)
    return (losses * weight).sum() / total


def attention_loss(student: Sequence[Tensor], teacher: Sequence[Tensor], weight: Tensor) -> Tensor:
    """``KL(teacher || student)`` of attention probabilities, over rows that count, layers summed.

    Args:
        student: ``[B, H, T, T]`` probabilities of each layer.
        teacher: the same of the teacher.
        weight: ``[B, T]``, 1 for tokens whose rows count and 0 for others.

    Returns:
        scalar.

    Raises:
        ValueError: the numbers of layers or the shapes differ.
    """
    _check("attention_loss", student, teacher)
    total = weight.sum().clamp(min=1)
    s, t = torch.stack(tuple(student)), torch.stack(tuple(teacher))
    # Keys that may not be attended to have probability 0 in both and add nothing.
    log_ratio = (t.clamp(min=LEAST_ATTENTION) / s.clamp(min=LEAST_ATTENTION)).log()
    return ((t * log_ratio).sum(-1).mean(2) * weight).sum() / total


def logit_loss(student: Tensor, teacher: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """``T^2 KL(softmax(teacher / T) || softmax(student / T))``, mean over rows that count.

    Args:
        student: ``[B, C]`` logits.
        teacher: the same of the teacher.
        weight: ``[B]``, 1 for rows that count and 0 for others.
        temperature: T.

    Returns:
        scalar.

    Raises:
        ValueError: the shapes differ.
    """
    _check("logit_loss", [student], [teacher])
    rows = functional.kl_div(
        functional.log_softmax(student / temperature, dim=-1),
        functional.log_softmax(teacher / temperature, dim=-1),
        reduction="none",
        log_target=True,
    ).sum(-1)
    return temperature**2 * (rows * weight).sum() / weight.sum().clamp(min=1)


def _check(name: str, student: Sequence[Tensor], teacher: Sequence[Tensor]) -> None:
    if not student:
        raise ValueError(f"{name}: student must have at least one layer")
    found, wanted = [list(s.shape) for s in student], [list(t.shape) for t in teacher]
    if found != wanted:
        raise ValueError(f"{name}: student must have the teacher's shapes {wanted}, got {found}")
