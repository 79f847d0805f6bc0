"""The batch norm after binary products, which blends few rows with its running statistics."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.nn.repeats import (
    Call,
    find_call,
    is_in_backward,
    is_recorded,
    may_repeat,
    no_calls,
    remember,
)
from bitgnn.nn.spread import spread_graph, whole_moments

ENOUGH_ROWS = 256
"""Fewest rows normalised only by their own statistics."""
MATRIX = 2
Statistics = tuple[Tensor, Tensor]


class ProductNorm(nn.BatchNorm1d):
    r"""``BatchNorm1d`` of ``[N, C]`` that trains on batches of any size, down to one row.

    A batch of a few nodes, all of one graph, says little about the others: centred on itself, it
    loses what tells its graph from the rest. In training, N < 256 rows therefore count as N of 256,
    and the running statistics :math:`\mu_r, v_r` as the others:

    .. math::
        \mu = (1 - w) \mu_r + w \mu_b, \quad
        v = (1 - w) v_r + w v_b + w (1 - w) (\mu_b - \mu_r)^2, \quad
        y = \gamma \frac{x - \mu}{\sqrt{v + \epsilon}} + \beta

    with :math:`w = \max(\tfrac{N}{256}, \tfrac{N}{N (t + 1) + 1})` after t batches: the first
    ones are averaged, with initial statistics that count as one row. Gradients flow through the
    batch's share. The running statistics move by the same formulas, with ``momentum`` in place of
    N / 256 where that is less. With 256 rows or more, in evaluation, in checkpoints and in its
    ``repr`` the module is ``BatchNorm1d``.

    A forward inside a backward pass is activation checkpointing at work: it starts from the
    statistics that the forward on the same input started from, and leaves them alone.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features)
        self._calls = no_calls()

    def forward(self, input: Tensor) -> Tensor:
        """Normalise ``[N, C]`` floats; the result has their dtype."""
        spread = spread_graph()
        rows = input.size(0) if spread is None else spread.count
        few = input.dim() == MATRIX and 0 < rows < ENOUGH_ROWS
        if not (self.training and few):
            if self.training and is_in_backward():  # the first run has moved the statistics
                assert self.running_mean is not None
                assert self.running_var is not None
                copies = self.running_mean.clone(), self.running_var.clone()
                return functional.batch_norm(
                    input, *copies, self.weight, self.bias, True, 0.0, self.eps
                )
            out: Tensor = super().forward(input)
            return out
        before = self._held()
        x = input.to(torch.promote_types(input.dtype, before.dtype))
        if spread is None:
            batch_variance, batch_mean = torch.var_mean(x, 0, correction=0)
        else:
            batch_variance, batch_mean = whole_moments(spread, x)
        key = batch_mean.detach()
        call = find_call(self._calls, rows, lambda: key) if is_in_backward() else None
        before = before if call is None else call.state
        mean, variance, batches = before.split([input.size(1), input.size(1), 1])
        held, batch = (mean, variance), (batch_mean, batch_variance)
        share, first = rows / ENOUGH_ROWS, (rows * (batches + 1) + 1).reciprocal() * rows
        if call is None:
            speed = 0.0 if self.momentum is None else min(self.momentum, share)
            self._move(held, batch, first.clamp(min=speed))
            if may_repeat():
                remember(self._calls, Call(rows, key, before, is_recorded()))
        mean, variance = _blended(held, batch, first.clamp(min=share))
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (x * scale + (self.bias - mean * scale)).to(input.dtype)

    def _held(self) -> Tensor:
        """Running mean, variance and number of batches, ``[2 C + 1]``, as they are now."""
        mean, variance, batches = _running(self)
        # torch.compile computes clones again in the backward pass, when the buffers have moved on
        # (pytorch/pytorch#197039); it keeps results of cat.
        held = torch.cat([mean, variance, batches.view(1)])
        return held.to(torch.promote_types(held.dtype, torch.float32))

    @torch.no_grad()
    def _move(self, held: Statistics, batch: Statistics, share: Tensor) -> None:
        """Move the running statistics on."""
        running_mean, running_var, batches = _running(self)
        mean, variance = _blended(held, batch, share)
        # Not as a change that autograd notices: of a layer with several inputs another batch, of
        # enough rows, keeps these for a backward pass that does not read them.
        running_mean.data.copy_(mean)
        running_var.data.copy_(variance)
        batches.add_(1)

    def _get_name(self) -> str:
        return nn.BatchNorm1d.__name__


def _running(norm: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Running mean and variance, and the number of batches."""
    held = norm._buffers
    return held["running_mean"], held["running_var"], held["num_batches_tracked"]


def _blended(held: Statistics, batch: Statistics, share: Tensor) -> Statistics:
    """Mean and variance of rows of which ``share`` are the batch's."""
    apart = batch[0] - held[0]
    within = held[1] + share * (batch[1] - held[1])
    return held[0] + share * apart, within + share * torch.rsub(share, 1) * apart.square()
