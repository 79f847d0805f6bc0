"""The batch norm behind binary products, which blends few rows with its running statistics."""

from __future__ import annotations

import torch
from torch import Tensor, nn

ENOUGH_ROWS = 256
"""Number of rows that are normalised by their own statistics alone."""
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

    with :math:`w = \max(\tfrac{N}{256}, \tfrac{N}{N (t + 1) + 1})` behind t batches: the first
    ones are averaged, beside initial statistics that count as one row. Gradients flow through the
    batch's share. The running statistics move by the same formulas, with ``momentum`` in place of
    N / 256 where that is less. With 256 rows or more, in evaluation, in checkpoints and in its
    ``repr`` the module is ``BatchNorm1d``.

    A forward inside a backward pass is activation checkpointing at work: it starts from the
    statistics that the last forward started from, so that it repeats it, and leaves them alone.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features)
        self._before: tuple[Tensor, Tensor, Tensor] | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Normalise ``[N, C]`` floats; the result has their dtype."""
        rows = input.size(0)
        few = input.dim() == MATRIX and 0 < rows < ENOUGH_ROWS
        if not (self.training and few):
            out: Tensor = super().forward(input)
            return out
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        held = self.running_mean, self.running_var
        earlier, repeats = self._before, is_in_backward()
        if earlier is None or not repeats:
            earlier = held[0].clone(), held[1].clone(), self.num_batches_tracked.clone()
        mean, variance, batches = earlier
        x = input.to(torch.promote_types(input.dtype, mean.dtype))
        batch_variance, batch_mean = torch.var_mean(x, 0, correction=0)
        now = batch_mean, batch_variance
        share, first = rows / ENOUGH_ROWS, rows / (rows * (batches + 1) + 1)
        if not repeats:
            speed = 0.0 if self.momentum is None else min(self.momentum, share)
            with torch.no_grad():
                moved = _blended((mean, variance), now, first.clamp(min=speed))
                for part, value in zip(held, moved, strict=True):
                    part.copy_(value)
                self.num_batches_tracked.add_(1)
            if not torch.compiler.is_compiling():
                self._before = earlier
        mean, variance = _blended((mean, variance), now, first.clamp(min=share))
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (x * scale + (self.bias - mean * scale)).to(input.dtype)

    def _get_name(self) -> str:
        return nn.BatchNorm1d.__name__


def _blended(held: Statistics, batch: Statistics, share: Tensor) -> Statistics:
    """Mean and variance of rows of which ``share`` are the batch's."""
    apart = batch[0] - held[0]
    mean = held[0] + share * apart
    within = held[1] + share * (batch[1] - held[1])
    return mean, within + share * (1 - share) * apart.square()


def is_in_backward() -> bool:
    """True while autograd runs a backward pass in this thread."""
    if torch.compiler.is_compiling():
        return False
    return bool(torch._C._current_graph_task_id() != -1)
