"""A bound program with the graph: how it is prepared, in which layout, and what steps find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency
from bitgnn.bits.tensor import words_for
from bitgnn.bits.tensor_version import TensorMemory
from bitgnn.inference.bound_program import BoundProgram, FeatureForm
from bitgnn.inference.graph import FloatAdjacency, GraphSpec, PreparedGraph
from bitgnn.inference.layout import GraphLayout, check_layout, laid_out
from bitgnn.inference.own_call import PLAIN_CALL, OwnCall
from bitgnn.inference.program import Program
from bitgnn.inference.steps.calls import EDGE_INDEX, EDGE_WEIGHT, FloatCall

Graph = BitAdjacency | FloatAdjacency | PreparedGraph
"""Result of :meth:`GraphProgram.prepare_graph`."""


class GraphProgram(BoundProgram):
    """Base of :class:`~bitgnn.inference.FrozenModel`: a bound program and what it needs of a graph.

    Arguments and errors are those of :class:`BoundProgram` and of the model itself.
    """

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        graphs: Sequence[GraphSpec],
        calls: Sequence[FloatCall],
        features: FeatureForm,
        own_call: OwnCall = PLAIN_CALL,
    ) -> None:
        needs_parts = any(step.kind == "call" and step.graph is not None for step in program.steps)
        holds = [spec.holds for spec in graphs]
        super().__init__(program, tensors, holds + ["edges"] * needs_parts, calls, features)
        self.graphs = tuple(graphs)
        self.own_call = own_call
        self._needs_parts = needs_parts
        self._needs_edges = any(call.parts & {EDGE_INDEX, EDGE_WEIGHT} for call in calls)
        self._graph_memory = TensorMemory()
        self._needs_pattern_alone = holds == ["pattern"] and not needs_parts

    @property
    def takes_graph(self) -> bool:
        """Whether the model has layers that read a graph."""
        return bool(self.graphs) or self._needs_edges

    @property
    def takes_edge_weight(self) -> bool:
        """Whether a layer was given edge weights, or the edges themselves."""
        return self._needs_edges or any(spec.weighted for spec in self.graphs)

    def prepare_graph(
        self,
        edge_index: Any,
        num_nodes: int,
        edge_weight: Tensor | None = None,
        layout: GraphLayout = "auto",
        method: str | None = None,
        **inputs: Any,
    ) -> Graph:
        """Make the adjacencies once for many calls, as the trained layers did.

        Args:
            edge_index: ``[2, E]`` edge index or transposed sparse adjacency.
            num_nodes: nodes of the graph.
            edge_weight: ``[E]`` float weights beside an edge index.
            layout: how patterns are held. ``"csr"``, at four bytes an edge; ``"sliced"``, slices
                beside the CSR that a GPU gathers from its shared memory, faster on dense graphs;
                ``"frdc"``, 4 x 4 bit tiles beside the CSR, where no edge occurs twice (else CSR
                alone, with a warning); ``"auto"``, CSR, and on a GPU slices where the graph is
                dense enough for the width.
            method: how 0/1 meets +-1 on tiles: ``"if_else"``, ``"and_andnot"`` or
                ``"and_degree"``; None, the last of them. All
                give the same bits.
            **inputs: further arguments of the trained forward, such as ``batch``, to be held
                beside the graph; a call that names them as well replaces them.

        Returns:
            One adjacency where all layers share it, else a :class:`PreparedGraph`.

        Raises:
            TypeError: the forward has no such argument.
            ValueError: the graph does not fit ``num_nodes``, the model has no graph,
                ``edge_weight`` is given to a model whose layers take none, or there is no such
                layout or method.
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
        check_layout("FrozenModel.prepare_graph", layout, method)
        is_open = layout == "auto"
        made: list[Any] = []
        # Tensors made in inference mode would not tell when they are written to.
        with torch.inference_mode(False), torch.no_grad():
            built = [spec.build(edge_index, num_nodes, edge_weight) for spec in self.graphs]
            for number, adjacency in enumerate(built):
                widths = self._packed_widths(number)
                made.append(laid_out(adjacency, layout, widths, method, must=not is_open))
        if len(made) == 1 and not self._needs_parts:
            return made[0]
        return PreparedGraph(tuple(made), edge_index, edge_weight, num_nodes, inputs)

    def _remembered(self, edge_index: Any, edge_weight: Any, num_nodes: int) -> Graph:
        """The graph of a call, made again only if its tensors are others or were written to."""
        return self._graph_memory.get(
            (edge_index, edge_weight),
            num_nodes,
            lambda: self.prepare_graph(edge_index, num_nodes, edge_weight, layout="csr"),
        )

    def _packed_widths(self, graph: int) -> list[int]:
        """Words of the packed rows that are aggregated with a graph."""
        steps = (step for step in self.program.steps if step.graph == graph and step.inputs)
        read = (self.registers[step.inputs[0]] for step in steps)
        sizes = {held.size for held in read if held.form == "bits" and held.size is not None}
        return sorted({words_for(size) for size in sizes})

    def _adjacencies(self, adjacency: Any, num_nodes: int) -> Sequence[Any]:
        """What steps find as graphs, from any form of the graph."""
        if not self.graphs and not self._needs_parts:
            return ()
        if adjacency is None and not self.takes_graph:
            adjacency = PreparedGraph((), None, None, num_nodes)
        if adjacency is None:
            raise ValueError("FrozenModel: adjacency must be a graph, got None")
        if not isinstance(adjacency, Graph):
            adjacency = self._remembered(adjacency, None, num_nodes)
        if adjacency.num_cols != num_nodes:
            raise ValueError(
                f"FrozenModel: adjacency has {adjacency.num_cols} nodes, x has {num_nodes}"
            )
        if isinstance(adjacency, PreparedGraph):
            if len(adjacency.adjacencies) != len(self.graphs):
                raise ValueError("FrozenModel: adjacency was prepared for another model")
            if self.own_call.inputs:
                inputs = self.own_call.filled(adjacency.inputs, num_nodes, self._device)
                adjacency = replace(adjacency, inputs=inputs)
            return (*adjacency.adjacencies, adjacency)
        holds = "values" if isinstance(adjacency, FloatAdjacency) else "pattern"
        if self._needs_parts or [spec.holds for spec in self.graphs] != [holds]:
            raise ValueError(
                f"FrozenModel: adjacency must come from prepare_graph, a "
                f"{type(adjacency).__name__} is not all that the layers of this model need"
            )
        return (adjacency,)
