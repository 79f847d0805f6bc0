"""Binarized models that train on the rows of several ranks, as one process would on all."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch_geometric.nn
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parameter import is_lazy
from torch_geometric.nn import MessagePassing

from bitgnn.distributed.places import lost
from bitgnn.distributed.sharding import ShardedAdjacency
from bitgnn.distributed.training_rows import TrainingRows
from bitgnn.nn import GCNConv, GraphConv, SAGEConv
from bitgnn.nn.bwta_linear import ActivationQuantizer
from bitgnn.nn.spread import spread_over

MESSAGES = (torch.bfloat16, torch.float32)
MOST_GRAPHS = 4
"""Graphs whose transposed rows are kept."""
CONVOLUTIONS = (GCNConv, SAGEConv, GraphConv)
OVER_NODES = tuple(
    getattr(torch_geometric.nn, name)
    for name in (
        "GraphNorm", "InstanceNorm", "PairNorm", "MeanSubtractionNorm", "GraphSizeNorm",
    )
)  # fmt: skip


class ShardedTraining(nn.Module):
    r"""A model in training over sharded graphs; :func:`parallelize` makes it of a trainable one.

    Each rank has the rows of its own nodes: their features, activations, scores. An aggregation of
    signs gathers packed words of all nodes, one of floats (a last layer's products) the floats;
    both equal those of one process to the bit. Batch norms and statistics of inputs are those of
    all nodes. In the backward pass a rank sums the gradients of all nodes that its rows read,

    .. math::
        \frac{\partial L}{\partial x_j} = c_j \sum_{r} \sum_{i \in r} A_{ij} d_i
        \frac{\partial L}{\partial y_i},

    the inner sum on each rank :math:`r` in float32, the outer by reduce-scatter in the dtype of
    ``messages``. Gradients of weights are summed over ranks: the loss is a sum over own nodes,
    divided by the number of all (:meth:`ShardedAdjacency.total`). Dropout draws on each rank:
    seed ranks differently.

    Attributes:
        module: the model, whose parameters and buffers are equal on all ranks. It trains on several
            ranks as long as this one lives; save its ``state_dict()``, for any number of ranks.
    """

    def __init__(self, module: nn.Module, mesh: DeviceMesh | None, messages: torch.dtype) -> None:
        super().__init__()
        if messages not in MESSAGES:
            raise ValueError(f"parallelize: messages must be one of {MESSAGES}, got {messages}")
        _check(module)
        self.module, self.messages = module, messages
        self._rows: deque[TrainingRows] = deque(maxlen=MOST_GRAPHS)
        self.group = None if mesh is None else mesh.get_group()
        if mesh is not None:
            module.to(mesh.device_type)
        with torch.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                self._all(lambda held: dist.broadcast(held, group=self.group, group_src=0), tensor)
        ref = weakref.ref(self)
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_hook(lambda grad, ref=ref: _summed(ref(), grad))
        self.train(module.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's own call with a sharded graph in place of its edges; all ranks together.

        Args:
            *args: of the model: the rank's rows of features, a graph of :func:`shard_graph`, more.
            **kwargs: further ones by name.

        Returns:
            What the model gives, for the rank's rows.

        Raises:
            TypeError: no argument is a sharded graph.
            ValueError: features have another number of rows, or a layer cannot take the graph.
            ConnectionError: another rank has ended, here or in the backward pass.
        """
        given = [v for v in (*args, *kwargs.values()) if isinstance(v, ShardedAdjacency)]
        if not given or any(graph is not given[0] for graph in given):
            raise TypeError(
                f"parallelize: the model must be called with one graph of shard_graph, got "
                f"{len(given)}"
            )
        rows = self._rows_of(given[0])
        with spread_over(rows):
            return self.module(
                *(rows if isinstance(v, ShardedAdjacency) else v for v in args),
                **{k: rows if isinstance(v, ShardedAdjacency) else v for k, v in kwargs.items()},
            )

    def _rows_of(self, graph: ShardedAdjacency) -> TrainingRows:
        """The graph for layers, kept for the last few."""
        for rows in self._rows:
            if rows.graph is graph:
                return rows
        self._rows.append(TrainingRows(graph, self.messages))
        return self._rows[-1]

    def _all(self, act: Callable[[Tensor], Any], tensor: Tensor) -> Tensor:
        held = tensor.detach()
        held = held if held.is_contiguous() else held.contiguous()
        try:
            act(held)
        except RuntimeError as error:
            raise lost(self.group, error) from error
        if held.data_ptr() != tensor.data_ptr():
            tensor.copy_(held)
        return tensor


def _summed(owner: ShardedTraining | None, grad: Tensor) -> Tensor:
    """A parameter's gradient of all ranks."""
    if owner is None:
        return grad
    with torch.no_grad():
        held = grad.clone(memory_format=torch.contiguous_format)
        return owner._all(lambda found: dist.all_reduce(found, group=owner.group), held)


def _check(module: nn.Module) -> None:
    """Refuse what reads other nodes in another way, or has no size yet."""
    for name, part in module.named_modules():
        kind = type(part).__name__
        is_other = isinstance(part, MessagePassing) and not isinstance(part, CONVOLUTIONS)
        if is_other or isinstance(part, (*OVER_NODES, ActivationQuantizer)):
            raise ValueError(
                f"parallelize: {name or 'the model'}, a {kind}, cannot train on several ranks; "
                "GCNConv, SAGEConv and GraphConv of bitgnn.nn, batch norms and what treats nodes "
                "one by one can"
            )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise ValueError(
                f"parallelize: {name} has no size yet; give in_channels, or run the model once"
            )
