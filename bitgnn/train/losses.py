"""Losses that make a student follow its teachers: class probabilities, states, attention."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import APPNP

from bitgnn.train.recipe import TeacherPropagation

__all__ = [
    "attention_loss",
    "divergence",
    "logit_loss",
    "propagated",
    "state_loss",
    "teacher_log_probabilities",
]

LEAST_PROBABILITY, LEAST_ATTENTION = 1e-9, 1e-7


def teacher_log_probabilities(teachers: Sequence[Tensor], temperature: float) -> Tensor:
    """Logarithm of the teachers' mean class probabilities ``softmax(logits / T)``.

    Args:
        teachers: ``[N, C]`` logits of each, at least one.
        temperature: T.

    Returns:
        ``[N, C]`` float tensor.
    """
    logs = [functional.log_softmax(logits / temperature, dim=-1) for logits in teachers]
    if len(logs) == 1:
        return logs[0]
    count = torch.tensor(float(len(logs)), device=logs[0].device)
    return torch.stack(logs).logsumexp(dim=0) - count.log()


@torch.no_grad()
def propagated(
    log_probabilities: Tensor, edge_index: Tensor, propagation: TeacherPropagation
) -> Tensor:
    """Class probabilities smoothed over the graph, rows adding up to 1 again.

    Args:
        log_probabilities: ``[N, C]``.
        edge_index: ``[2, E]`` edge index or sparse adjacency.
        propagation: how far.

    Returns:
        ``[N, C]`` logarithms.
    """
    smooth = APPNP(propagation.steps, propagation.alpha)
    found = smooth(log_probabilities.exp(), edge_index)
    shares = found / found.sum(dim=1, keepdim=True).clamp(min=LEAST_PROBABILITY)
    return shares.clamp(min=LEAST_PROBABILITY).log()


def divergence(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """``T^2 KL(teacher || softmax(logits / T))``, mean over nodes (Hinton et al. 2015).

    Args:
        logits: ``[N, C]`` of the student.
        teacher: ``[N, C]`` logarithms of probabilities at temperature T.
        temperature: T.

    Returns:
        scalar.
    """
    found = functional.kl_div(
        functional.log_softmax(logits / temperature, dim=-1),
        teacher,
        reduction="batchmean",
        log_target=True,
    )
    return temperature**2 * found


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
