"""A bound program with its graph, called as the trained model was."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from bitgnn._memory import tells_of_memory
from bitgnn.bits import BitAdjacency, BitFeatures, BitTensor, Int8Features, Int8Tensor
from bitgnn.bits.adjacency import LESS_OF_GRAPHS
from bitgnn.bits.tensor import words_for
from bitgnn.bits.tensor_version import TensorMemory
from bitgnn.inference.bound_program import BoundProgram, FeatureForm, Features
from bitgnn.inference.checks import Ends
from bitgnn.inference.executable import Write
from bitgnn.inference.graph import (
    Graph,
    GraphLayout,
    GraphSpec,
    PreparedGraph,
    check_layout,
    lay_out,
)
from bitgnn.inference.own_call import (
    PLAIN_CALL,
    Call,
    OtherForm,
    OwnCall,
    as_features,
    as_given,
    as_tensor,
    hand_out,
)
from bitgnn.inference.own_code.calls import EDGE_INDEX, EDGE_WEIGHT, FloatCall
from bitgnn.inference.program import CALL, Program
from bitgnn.inference.sparse_features import PACKABLE, FirstBits

_READY_GRAPHS = (type(None), *get_args(Graph))
_PACKED = (BitTensor, FirstBits, BitFeatures, BitAdjacency, Int8Tensor, Int8Features)
_PACKABLE_ROWS = (torch.float32, torch.float16, torch.bfloat16)
"""What packing to 8-bit rows reads."""


Kind = Literal["program", "hetero", "images", "layers", "bwta"]
"""A program of nodes or other rows, of several types of nodes, or of images; or the user's own
forward, with packed layers."""


class CalledProgram(BoundProgram):
    """Base of :class:`~bitgnn.inference.FrozenModel`: its graph and its call.

    A program may keep the code that it was traced from, with packed layers in it, for methods and
    for other ways of the forward. That form is no submodule: it is not part of the state, of
    ``nbytes`` or of a file.
    """

    kind: Kind
    _own: tuple[nn.Module, ...] = ()
    _own_methods: frozenset[str] = frozenset()

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        graphs: Sequence[GraphSpec],
        calls: Sequence[FloatCall],
        features: FeatureForm,
        own_call: OwnCall = PLAIN_CALL,
    ) -> None:
        needs_parts = any(
            call.operator == CALL and call.graph is not None for call in program.calls
        )
        holds = [spec.holds for spec in graphs] + ["edges"] * needs_parts
        ends = [spec.ends for spec in graphs] + [Ends()] * needs_parts
        super().__init__(program, tensors, holds, calls, features, ends)
        self.graphs = tuple(graphs)
        self.own_call = own_call
        self._relations = [spec.ends.relations for spec in graphs]
        self._is_one_pattern = [spec.holds for spec in graphs] == ["pattern"]
        self._needs_parts = needs_parts
        self._needs_edges = any(call.parts & {EDGE_INDEX, EDGE_WEIGHT} for call in calls)
        self._graph_memory = TensorMemory()
        # Types of features that the first call reads as they are.
        self._ready_types: tuple[torch.dtype, ...] = (torch.float32,)
        if program.entry == 1:
            self._ready_types = PACKABLE if self._own_rows is None else _PACKABLE_ROWS

    @property
    def is_program(self) -> bool:
        """True if the model is a program, False if it runs the user's own forward."""
        return self.kind in ("program", "hetero", "images")

    @property
    def takes_graph(self) -> bool:
        """True if the model has layers that read a graph."""
        return self.is_program and (bool(self.graphs) or self._needs_edges)

    @property
    def takes_edge_weight(self) -> bool:
        """True if a layer was given edge weights, or the edges themselves."""
        return self._needs_edges or any(spec.weighted for spec in self.graphs)

    @tells_of_memory("FrozenModel.prepare_graph", LESS_OF_GRAPHS)
    def prepare_graph(
        self,
        edge_index: Any,
        num_nodes: int,
        edge_weight: Tensor | None = None,
        layout: GraphLayout = "auto",
        **inputs: Any,
    ) -> Graph:
        """Make the adjacencies once for many calls, as the trained layers did.

        Args:
            edge_index: ``[2, E]`` edge index or transposed sparse adjacency.
            num_nodes: nodes of the graph.
            edge_weight: ``[E]`` float weights beside an edge index.
            layout: how patterns are held. ``"csr"``, at four bytes an edge; ``"sliced"``, slices
                beside the CSR that a GPU gathers from its shared memory, faster on dense graphs;
                ``"auto"``, CSR, and on a GPU slices where the graph is dense enough for the width.
            **inputs: further arguments of the trained forward, such as ``batch``, to be held
                beside the graph; a call that names them as well replaces them.

        Returns:
            One adjacency where all layers share it, else a :class:`PreparedGraph`.

        Raises:
            TypeError: the forward has no such argument.
            torch.OutOfMemoryError: the bytes that are lacking, and a way out.
            ValueError: the graph does not fit ``num_nodes``, the model has no graph,
                ``edge_weight`` is given to a model whose layers take none, or there is no such
                layout.
        """
        if not self.takes_graph:
            raise ValueError("FrozenModel.prepare_graph: this model has no graph layers")
        if edge_weight is not None and not self.takes_edge_weight:
            raise ValueError(
                "FrozenModel.prepare_graph: edge_weight must be None, no layer of this model "
                "was given edge weights"
            )
        unknown = sorted(inputs.keys() - {a.name for a in self.own_call.inputs})
        if unknown:
            raise TypeError(
                f"FrozenModel.prepare_graph: {unknown} must be inputs of the trained forward"
            )
        check_layout("FrozenModel.prepare_graph", layout)
        # Tensors made in inference mode would not tell when they are written to.
        with torch.inference_mode(False), torch.no_grad():
            made = tuple(spec.build(edge_index, num_nodes, edge_weight) for spec in self.graphs)
            for number, adjacency in enumerate(made):
                lay_out(adjacency, layout, self._packed_widths(number))
        if len(made) == 1 and not self._needs_parts:
            return made[0]
        return PreparedGraph(made, edge_index, edge_weight, num_nodes, inputs)

    def _packed_widths(self, graph: int) -> list[int]:
        """Words of the packed rows that are aggregated with a graph."""
        calls = (call for call in self.program.calls if call.graph == graph and call.inputs)
        read = (self.registers[call.inputs[0]] for call in calls)
        sizes = {held.size for held in read if held.form == "bits" and held.size is not None}
        return sorted({words_for(size) for size in sizes})

    def _remembered(self, edge_index: Any, edge_weight: Any, num_nodes: int) -> Graph:
        """The graph of a call, made again only if its tensors are others or were written to."""
        return self._graph_memory.get(
            (edge_index, edge_weight),
            num_nodes,
            lambda: self.prepare_graph(edge_index, num_nodes, edge_weight, layout="csr"),
        )

    def keep_own_form(self, own: nn.Module, methods: Collection[str]) -> None:
        """Take the own code of the trained model, and the names of its methods."""
        self._own, self._own_methods = (own,), frozenset(methods)

    @property
    def own_form(self) -> nn.Module | None:
        """The own code of the trained model; None where the program is all there is of it."""
        return self._own[0] if self._own else None

    def _run_own_form(self, *args: Any, **kwargs: Any) -> Any:
        given = list(args)
        while given and given[-1] is None:  # what a call left out
            given.pop()
        return self._own[0](*given, **kwargs)

    def _run_nodes(
        self,
        x: Any = None,
        adjacency: Any = None,
        /,
        *args: Any,
        out: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Result of a call; one with features and a prepared graph runs at once."""
        if out is not None and any(given.name == "out" for given in self.own_call.inputs):
            kwargs["out"], out = out, None
        run = self._run_ready if out is None else partial(self._run_ready, out=out)
        # Calls that are recorded take as long as a few calls of Python.
        is_plain = x.__class__ is Tensor and x.layout is torch.strided
        read = x if is_plain else self._read_entries(x)
        if args or kwargs or not self._is_ready(read, adjacency):
            result = self._run_own_call(x, adjacency, args, kwargs, run)
        else:
            result = self._run_recorded(read, adjacency, run)
            if not is_plain or x.dtype is not torch.float32:
                result = as_given(x, result)
        return result if out is None or result is out else hand_out("FrozenModel", result, out)

    def _read_entries(self, x: Any) -> Any:
        """The bits of sparse features where the model reads nothing else, or of their product."""
        if self.features == "packed":
            return x
        return self._bits_of_entries("FrozenModel", x, multiplies=True)

    def _is_ready(self, x: Any, adjacency: Any) -> bool:
        """True if features and graph are in the form that steps read."""
        if adjacency.__class__ not in _READY_GRAPHS:
            return False
        if x.__class__ is not Tensor:
            return x.__class__ in _PACKED
        return x.dtype in self._ready_types and x.dim() == 2 and x.layout is torch.strided

    def _run_ready(
        self,
        x: Features,
        adjacency: Any,
        write: Write | None = None,
        out: Tensor | None = None,
    ) -> Any:
        num_nodes, *features = x.shape
        if self.in_channels:
            expected = self.packed_channels if isinstance(x, _PACKED) else self.in_channels
            if not features:
                raise ValueError(f"FrozenModel: x must be [N, {expected}], got [{num_nodes}]")
            if features[0] != expected:
                raise ValueError(f"FrozenModel: x must have {expected} features, got {features[0]}")
        # Programs are captured in inference mode, which leaves no trace in them.
        is_compiling = torch.compiler.is_compiling()
        with torch.inference_mode() if is_compiling else torch.no_grad():
            graphs = self._adjacencies(adjacency, num_nodes)
            executable, values, graphs = self._start(x, graphs)
            if not is_compiling and self._is_large(num_nodes):
                found = self._run_ranges(x, graphs, out)
                if found is not None:
                    return found
            return executable.run(values, graphs, write)

    def _run_own_call(
        self, x: Any, adjacency: Any, args: Any, kwargs: Any, run: Callable[..., Any]
    ) -> Any:
        """Run with the arguments of the trained forward."""
        is_ready = isinstance(adjacency, Graph)
        try:
            call = self.own_call.sort_call(x, adjacency, args, kwargs, is_ready)
        except OtherForm:
            if self.own_form is None or is_ready:
                raise
            return self._run_own_form(x, adjacency, *args, **kwargs)
        features = self._read_entries(call.x)
        features = as_features(features, self.in_channels, self._ready_types)
        num_nodes = features.shape[-2] if self.in_channels else features.shape[0]
        graph = self._graph_of(call, num_nodes)
        if not (self.in_channels and isinstance(features, Tensor) and features.dim() > 2):
            return as_given(call.x, self._run_recorded(features, graph, run))
        # One matrix after the other: each has its own row scales and thresholds in place.
        found = [self._run_ready(one, graph) for one in features.flatten(0, -3)]
        leading = features.shape[:-2]
        stacked = tree_map(lambda *parts: torch.stack(parts).unflatten(0, leading), *found)
        return as_given(call.x, stacked)

    def _graph_of(self, call: Call, num_nodes: int) -> Any:
        """The graph of a call with its further inputs."""
        graph, weight, inputs = call.graph, call.weight, call.inputs
        if not self.takes_graph:
            graph = None
        elif isinstance(graph, Graph):
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

    def _adjacencies(self, adjacency: Any, num_nodes: int) -> Sequence[Any]:
        """Graphs as calls read them, from any form of the graph."""
        if not self.graphs and not self._needs_parts:
            return ()
        if adjacency is None and not self.takes_graph:
            adjacency = PreparedGraph((), None, None, num_nodes)
        if adjacency is None:
            raise ValueError("FrozenModel: adjacency must be a graph, got None")
        if not isinstance(adjacency, Graph):
            adjacency = self._remembered(adjacency, None, num_nodes)
        is_prepared = isinstance(adjacency, PreparedGraph)
        if is_prepared and len(adjacency.adjacencies) != len(self.graphs):
            raise ValueError("FrozenModel: adjacency was prepared for another model")
        held = adjacency.adjacencies if is_prepared else (adjacency,)
        fits = adjacency.shape[0] == num_nodes
        for pattern, relations in zip(held, self._relations, strict=False):
            fits = fits and pattern.num_cols == num_nodes * relations
        if not fits:
            raise ValueError(
                f"FrozenModel: adjacency has {adjacency.num_cols} nodes, x has {num_nodes}"
            )
        for pattern in held:
            if isinstance(pattern, BitAdjacency):
                pattern.check_written()
        if isinstance(adjacency, PreparedGraph):
            if self.own_call.inputs:
                inputs = self.own_call.filled(adjacency.inputs, num_nodes, self._device)
                adjacency = replace(adjacency, inputs=inputs)
            return (*adjacency.adjacencies, adjacency)
        # Values are the same matrix for every layer; of factors some layers know but those of rows.
        if self._needs_parts or not (self._is_one_pattern or adjacency.values is not None):
            raise ValueError(
                "FrozenModel: adjacency must come from prepare_graph, a BitAdjacency is not all "
                "that the layers of this model need"
            )
        return (adjacency,) * len(self.graphs)
