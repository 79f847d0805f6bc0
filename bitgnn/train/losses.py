"""Training losses: divergence from teachers' class probabilities, also smoothed over the graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import APPNP

from bitgnn.train.recipe import TeacherPropagation

__all__ = ["divergence", "propagated", "teacher_log_probabilities"]

LEAST_PROBABILITY = 1e-9


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
