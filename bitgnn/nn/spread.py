"""Nodes spread over ranks: what layers and norms ask of all ranks while such a model runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from bitgnn.quantize.first_order import first_order


class SpreadPattern:  # no abstract class: compilers trace isinstance of plain ones
    """A normalised adjacency of a rank's rows, over the nodes of all ranks."""

    shape: tuple[int, int]
    """Rows of the rank, twice: the layer sees its own nodes alone."""

    def sums(
        self, x: Tensor, bias: Tensor | None, use_row: bool, use_col: bool, are_signs: bool
    ) -> Tensor:
        """``row_scale * (pattern (col_scale * x)) + bias`` of own rows ``[rows, K]``, trainable."""
        raise NotImplementedError

    def integer_sums(self, product: Any, bias: Tensor | None, use_col: bool) -> Tensor:
        """What ``IntegerProduct.sums`` gives, for own rows."""
        raise NotImplementedError


class SpreadGraph:
    """A rank's rows of a graph, which layers take in place of edges."""

    @property
    def count(self) -> int:
        """Number of all ranks' nodes."""
        raise NotImplementedError

    def pattern(self, **options: Any) -> SpreadPattern:
        """The adjacency that a layer makes of it: kind, reduction, loops, normalisation, flow."""
        raise NotImplementedError

    def total(self, values: Tensor) -> Tensor:
        """Sum over ranks, without gradient."""
        raise NotImplementedError

    def least(self, value: float) -> float:
        """Least value of all ranks."""
        raise NotImplementedError

    def sample(self, x: Tensor, most: int) -> Tensor:
        """At most so many rows at equal distances of all nodes' ``[rows, K]``, on every rank."""
        raise NotImplementedError

    def mean_of(self, value: Tensor, weight: int) -> Tensor:
        """Mean of the ranks' values with the weights of each."""
        sums = self.total(torch.stack([value.double() * weight, value.new_tensor(weight).double()]))
        return (sums[0] / sums[1].clamp(min=1.0)).to(value.dtype)


def no_weights(layer: str, edge_weight: Tensor | None) -> None:
    """Refuse weights of edges, which a rank's rows have no places for."""
    if edge_weight is not None:
        raise ValueError(f"{layer}: edge_weight must be None with rows of a sharded graph")


_local = threading.local()


def spread_graph() -> SpreadGraph | None:
    """The graph whose nodes are spread over ranks, in a forward of this thread."""
    found: SpreadGraph | None = getattr(_local, "graph", None)
    return found


@contextmanager
def spread_over(graph: SpreadGraph) -> Iterator[None]:
    """Say that the rows of a forward are those of ``graph``, and take norms over all of them."""
    before = spread_graph()
    _local.graph = graph
    try:
        with _WholeNorms(graph):
            yield
    finally:
        _local.graph = before


class _WholeNorms(TorchFunctionMode):
    """Batch norms in training over the rows of all ranks."""

    def __init__(self, graph: SpreadGraph) -> None:
        super().__init__()
        self.graph = graph

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.batch_norm:
            return _batch_norm(self.graph, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def whole_moments(graph: SpreadGraph, x: Tensor) -> tuple[Tensor, Tensor]:
    """Variance and mean of the columns of all ranks' rows ``[rows, K]``, with gradients."""
    variance, mean, _ = _Moments.apply(x, graph)
    return variance, mean


class _Moments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, graph: SpreadGraph) -> tuple[Tensor, ...]:
        variance, mean, number = _moments(graph, x)
        ctx.graph = graph
        ctx.save_for_backward(x, mean, number)
        ctx.mark_non_differentiable(number)
        return variance, mean, number

    @staticmethod
    @first_order
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        x, mean, number = ctx.saved_tensors
        of_variance, of_mean = ctx.graph.total(torch.stack(grads[:2]))
        return ((x - mean) * (2 * of_variance) + of_mean) / number.to(x.dtype), None


def _moments(graph: SpreadGraph, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Variance and mean of all ranks' rows in the dtype of ``x``, and their number.

    Sums are those of float64, so that hardly a bit depends on the number of ranks.
    """
    x = x.detach()
    own = torch.cat([x.sum(0, dtype=torch.float64), x.new_tensor([len(x)]).double()])
    sums = graph.total(own)
    number = sums[-1].clamp(min=1.0)
    exact = sums[:-1] / number
    mean = exact.to(x.dtype)
    squares = (x - mean).square_().sum(0, dtype=torch.float64)
    variance = graph.total(squares) / number - (exact - mean).square()
    return variance.clamp_(min=0.0).to(x.dtype), mean, number


def _batch_norm(
    graph: SpreadGraph,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """``torch.nn.functional.batch_norm`` of ``[rows, C]`` with the statistics of all rows."""
    if not training:
        held = running_mean, running_var, weight, bias
        return functional.batch_norm(input, *held, False, momentum, eps)
    x = input if input.dtype == torch.float64 else input.float()
    out, mean, variance, number = _Norm.apply(x, weight, bias, eps, graph)
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            unbiased = variance * (number / (number - 1).clamp(min=1.0)).to(variance.dtype)
            # Not as a change that autograd notices: another call may keep these.
            running_mean.data.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.data.lerp_(unbiased.to(running_var.dtype), momentum)
    found: Tensor = out.to(input.dtype)
    return found


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        graph: SpreadGraph,
    ) -> tuple[Tensor, ...]:
        variance, mean, number = _moments(graph, x)
        ctx.graph, ctx.has_bias = graph, bias is not None
        ctx.save_for_backward(x, weight, mean, torch.rsqrt(variance + eps), number)
        ctx.mark_non_differentiable(mean, variance, number)
        out = torch.batch_norm(
            x, weight, bias, mean, variance, False, 0.0, eps, torch.backends.cudnn.enabled
        )
        return out, mean, variance, number

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, inverse, number = ctx.saved_tensors
        # The gradients of weight and bias are those of own rows, added up with all others later.
        normal = (x - mean) * inverse
        own = torch.stack([grad.sum(0), (grad * normal).sum(0)])
        whole = ctx.graph.total(own) / number.to(own.dtype)
        grad_x = grad - whole[0] - normal * whole[1]
        grad_x = grad_x * (inverse if weight is None else inverse * weight)
        grad_weight = None if weight is None else own[1].to(weight.dtype)
        return grad_x, grad_weight, own[0] if ctx.has_bias else None, None, None
