"""Runs a whole small frozen model as one kernel that stays on the device."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.bits.watch import Watch
from bitgnn.inference.cooperative_stages import StagedProgram, find_stages
from bitgnn.inference.cooperative_tables import (
    GraphShares,
    StageTables,
    share_graph,
    state_words,
    tables_of,
)
from bitgnn.inference.frozen_model import Features, FrozenModel
from bitgnn.inference.graph_program import Graph
from bitgnn.inference.wide_rows import read_often

__all__ = ["CooperativeExecutor"]

DEFAULT_GRAPHS = 8
TOO_LARGE = "too large"
EXACT = 2**24
"""Sums of integers up to which float32 is exact."""
FLOAT_TYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass
class _Prepared:
    """What calls on one graph share.

    Attributes:
        adjacency: the graph as it was given; holding it keeps its identity.
        watch: tells whether it is still what it was.
        shares: what blocks copy of it.
        often: whether its rows are read often.
        states: what blocks hand to each other, by the form of the features.
        stream: of the last call.
    """

    adjacency: Graph
    watch: Watch
    shares: GraphShares
    often: bool
    states: dict[bool, Tensor] = field(default_factory=dict)
    stream: torch.cuda.Stream | None = None


class CooperativeExecutor:
    """Calls of a frozen model, one launch each, of one kernel for all of its layers.

    Every multiprocessor keeps a range of nodes and takes it through all layers; what a layer needs
    of other nodes it reads as soon as they are done. Made for graphs of up to some ten thousand
    nodes, where launches would be most of the time. It takes chains of a binarisation, a product
    and a sum over neighbours: GCN with ``"bin"`` and ``"full"`` layers, of one graph.

    A graph is prepared at the first call with it, which waits for the device, and kept; beyond
    ``max_graphs`` the one used longest ago goes. A call may be captured in a CUDA graph behind a
    first one outside. Calls on one graph share a buffer: calls on another stream than the last one
    wait for it, and replays of captured calls must not overlap with others.

    Args:
        model: frozen model on a CUDA device.
        max_graphs: prepared graphs to keep, at least 1.

    Raises:
        TypeError: ``model`` is not a frozen model.
        ValueError: ``model`` is not on a CUDA device, a step of it has no stage (the message names
            it), or ``max_graphs`` is below 1.
    """

    def __init__(self, model: FrozenModel, max_graphs: int = DEFAULT_GRAPHS) -> None:
        if not isinstance(model, FrozenModel):
            raise TypeError(
                f"CooperativeExecutor: model must be a FrozenModel, got {type(model).__name__}"
            )
        if max_graphs < 1:
            raise ValueError(
                f"CooperativeExecutor: max_graphs must be at least 1, got {max_graphs}"
            )
        self.model = model
        self.max_graphs = max_graphs
        self._prepared: OrderedDict[int, _Prepared] = OrderedDict()
        self._staged: dict[bool, StagedProgram] = {}
        self._tables: dict[tuple[bool, bool], StageTables] = {}
        self._follow_model()

    @property
    def num_graphs(self) -> int:
        """Prepared graphs held now."""
        return len(self._prepared)

    @torch.no_grad()
    def __call__(self, x: Features, adjacency: Graph | None = None) -> Tensor:
        """Scores of each node, as :meth:`FrozenModel.forward` gives them.

        Args:
            x: float32, float16 or bfloat16 features, or those packed in words, on the model's
                device.
            adjacency: result of :meth:`FrozenModel.prepare_graph`, in CSR.

        Returns:
            ``[N, out_channels]`` float32.

        Raises:
            TypeError: ``adjacency`` is not a prepared graph.
            ValueError: what the model itself refuses, features in another form, a graph in another
                layout, or a graph whose share of a multiprocessor does not fit its memory.
            RuntimeError: the graph is new and the current stream is being captured.
        """
        if self._is_stale():
            self._follow_model()
        self._check_features(x)
        if not isinstance(adjacency, Graph):
            raise TypeError(
                "CooperativeExecutor: adjacency must come from prepare_graph, got "
                f"{type(adjacency).__name__}"
            )
        if x.shape[0] == 0:
            return self.model(x, adjacency)
        packed = isinstance(x, BitTensor)
        with torch.cuda.device(self.device):
            held = self._prepare(adjacency, packed, x.shape[0])
            self._order(held)
            tables = self._tables[packed, held.often]
            words, scale = (x.words, x.scale) if isinstance(x, BitTensor) else (x, None)
            if not self._staged[packed].stages[0].scaled:
                scale = None
            shares = held.shares
            try:
                scores: Tensor = torch.ops.bitgnn.run_stages(
                    words,
                    scale,
                    tables.image,
                    shares.slices,
                    held.states[packed],
                    tables.numbers,
                    shares.most_degree,
                )
            except RuntimeError as error:
                if TOO_LARGE not in str(error):
                    raise
                reason = str(error).partition(f"{TOO_LARGE}: ")[2].partition("\n")[0]
                raise ValueError(
                    "CooperativeExecutor: x and adjacency are too large for one kernel, take the "
                    f"executor 'cuda_graph': {reason}"
                ) from error
        return scores

    def _is_stale(self) -> bool:
        return self._times_bound != self.model.times_bound or not self._weights.unchanged()

    def _follow_model(self) -> None:
        """Forget what was derived from the model and look at it anew."""
        self._prepared.clear()
        buffers = dict(self.model.named_buffers())
        device = next((buffer.device for buffer in buffers.values()), torch.device("cpu"))
        if device.type != "cuda":
            raise ValueError(f"CooperativeExecutor: model must be on a CUDA device, got {device}")
        self.device = device
        self._times_bound = self.model.times_bound
        self._weights = Watch(buffers.values())
        self._tables.clear()
        forms = [False, True] if self.model.program.entry is not None else [False]
        if self.model.features == "packed":
            forms = [True]
        self._staged = {
            packed: find_stages(self.model.program, buffers, packed) for packed in forms
        }

    def _check_features(self, x: Any) -> None:
        if not isinstance(x, Tensor | BitTensor):
            raise ValueError(
                "CooperativeExecutor: x must be floats or packed in words (pack_features with "
                f"layout='dense'), got {type(x).__name__}"
            )
        if x.device != self.device:
            raise ValueError(f"CooperativeExecutor: x must be on {self.device}, got {x.device}")
        if len(x.shape) != 2 or x.shape[1] != self.model.in_channels:
            raise ValueError(
                f"CooperativeExecutor: x must be [N, {self.model.in_channels}], got {list(x.shape)}"
            )
        if isinstance(x, BitTensor) not in self._staged:
            wanted = "packed" if True in self._staged else "floats"
            raise ValueError(f"CooperativeExecutor: x must be {wanted} for this model")
        if isinstance(x, BitTensor):
            if x.scale is None and self._staged[True].stages[0].scaled:
                raise ValueError(
                    "CooperativeExecutor: packed x must carry a row scale; use pack_features(x)"
                )
        elif x.dtype not in FLOAT_TYPES:
            raise ValueError(
                f"CooperativeExecutor: x must be float32, float16 or bfloat16, got {x.dtype}"
            )

    def _prepare(self, adjacency: Graph, packed: bool, num_nodes: int) -> _Prepared:
        """The graph's share of each block and the buffer of calls with it."""
        if adjacency.num_cols != num_nodes:
            raise ValueError(
                f"CooperativeExecutor: adjacency has {adjacency.num_cols} nodes, x has {num_nodes}"
            )
        held = self._prepared.get(id(adjacency))
        if held is not None and not held.watch.unchanged(adjacency.tensors):
            held = None
        complete = held is not None and packed in held.states
        if not complete and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "CooperativeExecutor: a graph is prepared at the first call with it, which cannot "
                "be captured; make one call before"
            )
        staged = self._staged[packed]
        if held is None:
            pattern = self.model._adjacencies(adjacency, num_nodes)[staged.graph]
            if not isinstance(pattern, BitAdjacency):
                raise ValueError(
                    "CooperativeExecutor: adjacency must be prepared with layout='csr', got a "
                    f"{type(pattern).__name__}"
                )
            count = torch.cuda.get_device_properties(self.device).multi_processor_count
            shares = share_graph(pattern, max(1, min(count, num_nodes)))
            self._check_exact(pattern, shares)
            held = _Prepared(adjacency, Watch(adjacency.tensors), shares, read_often(pattern))
        if (packed, held.often) not in self._tables:
            tables = tables_of(staged.stages, self.device, held.often)
            self._tables[packed, held.often] = tables
        if packed not in held.states:
            held.states[packed] = torch.zeros(
                state_words(staged.stages, num_nodes),
                dtype=torch.int32,
                device=self.device,
            )
        if not complete:
            # What was made here is read by calls on any stream.
            torch.cuda.current_stream().synchronize()
        self._prepared[id(adjacency)] = held
        self._prepared.move_to_end(id(adjacency))
        while len(self._prepared) > self.max_graphs:
            self._prepared.popitem(last=False)
        return held

    def _check_exact(self, pattern: BitAdjacency, shares: GraphShares) -> None:
        """Sums without factors are integers elsewhere; floats hold them up to a size."""
        widest = max(
            (
                stage.size
                for staged in self._staged.values()
                for stage in staged.stages
                if stage.output == "integers" and not stage.scaled
            ),
            default=0,
        )
        if pattern.col_scale is None and shares.most_degree * widest > EXACT:
            raise ValueError(
                "CooperativeExecutor: adjacency without column factors must have rows of at most "
                f"{EXACT // widest} edges for this model, got {shares.most_degree}"
            )

    def _order(self, held: _Prepared) -> None:
        """Let a call wait for the one before it, on whatever stream that was."""
        stream = torch.cuda.current_stream()
        if torch.cuda.is_current_stream_capturing():
            return
        if held.stream is not None and held.stream != stream:
            stream.wait_stream(held.stream)
            for state in held.states.values():
                state.record_stream(stream)
        held.stream = stream
