"""A program with its graph that is called as the trained model was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch_geometric.typing import SparseTensor

from bitgnn.bits import BitAdjacency, BitFeatures, BitTensor
from bitgnn.inference.bound_program import Features
from bitgnn.inference.graph import PreparedGraph
from bitgnn.inference.graph_program import Graph, GraphProgram
from bitgnn.inference.own_call import Call
from bitgnn.inference.program import Program
from bitgnn.inference.results import hand_out

_READY_GRAPHS = (type(None), *get_args(Graph))
_PACKED = (BitTensor, BitFeatures, BitAdjacency)
_OTHER_FLOATS = (torch.float64, torch.float16, torch.bfloat16)
_PACKABLE = (torch.float32, *_OTHER_FLOATS, torch.uint8)
"""What packing reads."""


class CalledProgram(GraphProgram):
    """Base of :class:`~bitgnn.inference.FrozenModel`: its call, fast or the trained model's own.

    Arguments and errors are those of :class:`GraphProgram`.
    """

    def __init__(self, program: Program, *args: Any) -> None:
        super().__init__(program, *args)
        # Types of features that the first step reads as they are.
        self._ready_types = _PACKABLE if program.entry == 1 else (torch.float32,)

    def forward(
        self,
        x: Features | Any = None,
        adjacency: Graph | Any = None,
        /,
        *args: Any,
        out: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """What the trained model returns; without gradients.

        A call with features and a prepared graph runs at once. Any other call is the trained
        model's own, with the arguments of its forward in their order or by name, or with a
        ``Data`` object, which then holds them.

        Args:
            x: ``[N, in_channels]`` floats as the trained model takes them, or the result of
                :meth:`~bitgnn.inference.FrozenModel.pack_features`; only the latter for a model
                frozen with ``features="packed"``. Integers, bools, numpy arrays and sparse tensors
                become floats first, ``[*, N, in_channels]`` runs matrix by matrix. Models that look
                nodes up in an embedding take what it takes.
            adjacency: the graph from :meth:`prepare_graph`; an edge index or sparse tensor is
                converted, which is remembered for as long as a dense tensor is the same one and
                not written to. None for a network without a graph.
            *args: further arguments of the trained forward.
            out: the scores are written there at last; its shape, dtype and device must be theirs.
                The argument of that name of the trained forward, where there is one.
            **kwargs: arguments of the trained forward by name.

        Returns:
            ``[N, out_channels]`` scores of the type of a tensor ``x`` of float16, bfloat16 or
            float64, else of float32, in which they are computed; int64 ``[N]`` for a model that
            hands out classes, or the structure of tensors that the forward returns.

        Raises:
            TypeError: an argument is missing, unknown or of no use as such.
            ValueError: the number of features or of nodes does not fit, devices differ, packed
                features lack the row scale this model needs, or are needed in place of floats; or
                ``out`` does not fit.
        """
        if out is not None and any(given.name == "out" for given in self.own_call.inputs):
            kwargs["out"], out = out, None
        if args or kwargs or not self._is_ready(x, adjacency):
            result = self._run_own_call(x, adjacency, args, kwargs)
        else:
            result = _as_given(x, self._run_recorded(x, adjacency, self._run_ready))
        return result if out is None else hand_out("FrozenModel", result, out)

    def _is_ready(self, x: Any, adjacency: Any) -> bool:
        """Whether features and graph are in the form that steps read."""
        if adjacency.__class__ not in _READY_GRAPHS:
            return False
        if x.__class__ is not Tensor:
            return x.__class__ in _PACKED
        return x.dtype in self._ready_types and x.dim() == 2 and x.layout is torch.strided

    def _run_ready(self, x: Features, adjacency: Any) -> Any:
        num_nodes, *features = x.shape
        if self.in_channels:
            size = features[0] if features else 0
            expected = self.packed_channels if isinstance(x, _PACKED) else self.in_channels
            if not features:
                raise ValueError(f"FrozenModel: x must be [N, {expected}], got [{num_nodes}]")
            if size != expected:
                raise ValueError(f"FrozenModel: x must have {expected} features, got {size}")
        with _ungraded():
            if self._needs_pattern_alone and type(adjacency) is BitAdjacency:
                graphs: Sequence[Any] = (adjacency,)
                if adjacency.num_cols != num_nodes:
                    raise ValueError(
                        f"FrozenModel: adjacency has {adjacency.num_cols} nodes, x has {num_nodes}"
                    )
            else:
                graphs = self._adjacencies(adjacency, num_nodes)
            executable, values = self._start(x)
            for run in executable.runners:
                run(values, graphs)
        return values[executable.output]

    def _run_own_call(self, x: Any, adjacency: Any, args: Any, kwargs: Any) -> Any:
        """Run with the arguments of the trained forward."""
        call = self.own_call.sort_call(x, adjacency, args, kwargs, is_ready=_is_graph(adjacency))
        features = _as_features(call.x, self.in_channels, self._ready_types)
        num_nodes = features.shape[-2] if self.in_channels else features.shape[0]
        graph = self._graph_of(call, num_nodes)
        if not (self.in_channels and isinstance(features, Tensor) and features.dim() > 2):
            return _as_given(call.x, self._run_recorded(features, graph, self._run_ready))
        # One matrix after the other: each has its own row scales and thresholds in place.
        found = [self._run_ready(one, graph) for one in features.flatten(0, -3)]
        leading = features.shape[:-2]
        stacked = tree_map(lambda *parts: torch.stack(parts).unflatten(0, leading), *found)
        return _as_given(call.x, stacked)

    def _graph_of(self, call: Call, num_nodes: int) -> Any:
        """The graph of a call with its further inputs."""
        graph, weight, inputs = call.graph, call.weight, call.inputs
        if not self.takes_graph:
            graph = None
        elif _is_graph(graph):
            if weight is not None:
                raise ValueError(
                    "FrozenModel: edge_weight must be None beside a prepared graph, which holds it"
                )
        elif graph is not None:
            weight = weight if self.takes_edge_weight else None
            graph = self._remembered(as_tensor(graph), as_tensor(weight), num_nodes)
        if not inputs or not self._needs_parts:
            return graph
        graph = PreparedGraph((), None, None, num_nodes) if graph is None else graph
        if not isinstance(graph, PreparedGraph):
            return graph  # of another model, which the call then says
        given = {name: as_tensor(value) for name, value in inputs.items()}
        return replace(graph, inputs={**graph.inputs, **given})


def _ungraded() -> Any:
    """No gradients; programs are captured in inference mode, which leaves no trace in them."""
    return torch.inference_mode() if torch.compiler.is_compiling() else torch.no_grad()


def _as_given(x: Any, found: Any) -> Any:
    """Float32 results in the type of the features, which a trained layer keeps."""
    dtype = x.dtype if isinstance(x, Tensor) else None
    if dtype not in _OTHER_FLOATS:
        return found
    return tree_map(lambda part: part.to(dtype) if _is_float32(part) else part, found)


def _is_float32(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32


def _is_graph(value: Any) -> bool:
    return isinstance(value, Graph)


MATRIX = 2


def as_tensor(value: Any) -> Any:
    """A numpy array as a tensor that shares its memory; anything else as it is."""
    return torch.as_tensor(value) if isinstance(value, np.ndarray) else value


def _as_features(x: Any, size: int, ready: Sequence[torch.dtype]) -> Any:
    """Features as dense floats.

    Args:
        x: array, tensor (dense or sparse), or packed bits.
        size: features of a node; 0 for what is no matrix of features, which stays as it is.
        ready: types of numbers that may stay.

    Raises:
        TypeError: ``x`` is none of these.
        ValueError: it is not ``[*, N, size]``.
    """
    if isinstance(x, BitTensor | BitAdjacency):
        if size and len(x.shape) != MATRIX:
            raise ValueError(f"FrozenModel: x must be [N, {size}], got {list(x.shape)}")
        return x
    x = as_tensor(x)
    if isinstance(x, SparseTensor):
        x = x.to_dense()
    if not isinstance(x, Tensor) or x.is_complex():
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(
            f"FrozenModel: x must be a tensor of numbers or the result of pack_features, got {got}"
        )
    if not size:
        return x
    if x.layout != torch.strided:
        x = x.to_dense()
    if x.dim() < MATRIX:
        raise ValueError(f"FrozenModel: x must be [N, {size}], got {list(x.shape)}")
    return x if x.dtype in ready else x.float()
