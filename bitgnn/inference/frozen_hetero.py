"""FrozenHetero: a heterogeneous binary network as one list of operator calls on packed bits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from bitgnn.bits.tensor_version import TensorMemory
from bitgnn.inference.bound_program import FeatureForm
from bitgnn.inference.executable import Write
from bitgnn.inference.frozen import FreezeReport
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.graph import GraphLayout, GraphSpec, PreparedGraph, check_layout, lay_out
from bitgnn.inference.own_call import as_features, as_given, as_tensor
from bitgnn.inference.own_code.calls import FloatCall
from bitgnn.inference.program import Program

NAME = "FrozenHetero"


class _ManyRows:
    """In place of features where a program asks for their number: each type has its own."""

    shape = (math.inf,)


class FrozenHetero(FrozenModel):
    """Inference form of a heterogeneous binary network, such as one of ``HeteroConv``.

    All relations are one program, with an adjacency ``[destinations, sources]`` for each. Types
    of nodes and edges are those of the trained model; calls with others run its own code on packed
    layers where that is at hand, which is not part of a file.

    Args:
        program: the calls; these, the next ones and the errors are as those of
            :class:`FrozenModel`.
        tensors: what they read, by name.
        graphs: what becomes of the edges of each type.
        report: what freezing did.
        calls: modules and functions that no operator stands for.
        features: ``"floats"``.
        types: types of nodes and edges.
    """

    types: Types

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        graphs: Sequence[GraphSpec],
        report: FreezeReport,
        calls: Sequence[FloatCall] = (),
        features: FeatureForm = "floats",
        types: Types | None = None,
    ) -> None:
        if types is None or len(types.nodes) != program.inputs:
            raise ValueError(f"{NAME}: types must name {program.inputs} types of nodes")
        for spec in graphs:
            ends = max(spec.destinations, spec.sources)
            if ends >= program.inputs or spec.edge_type >= len(types.edges):
                raise ValueError(f"{NAME}: {spec} is of types that are not there")
        self.__dict__["types"] = types  # before there is a module
        super().__init__(program, tensors, graphs, report, calls, features)
        self.kind = "hetero"
        self._edge_memory = TensorMemory()

    def prepare_graph(  # type: ignore[override]
        self,
        edges: Mapping[Any, Any],
        num_nodes: Mapping[str, int],
        layout: GraphLayout = "auto",
    ) -> PreparedGraph:
        """Make the adjacencies once for many calls.

        Args:
            edges: an edge index or transposed sparse adjacency for each type of edges.
            num_nodes: nodes of each type.
            layout: as in :meth:`FrozenModel.prepare_graph`.

        Returns:
            The adjacencies, which :meth:`forward` takes in place of ``edges``.

        Raises:
            ValueError: types differ from those of the model, a graph does not fit ``num_nodes``,
                or there is no such layout.
        """
        check_layout(f"{NAME}.prepare_graph", layout)
        self._check_keys("num_nodes", num_nodes, self.types.nodes)
        self._check_keys(self.types.names[1], edges, self.types.edges)
        sizes = [int(num_nodes[name]) for name in self.types.nodes]
        return self._prepared([as_tensor(edges[t]) for t in self.types.edges], sizes, layout)

    def _prepared(
        self, edges: Sequence[Any], sizes: Sequence[int], layout: GraphLayout
    ) -> PreparedGraph:
        made = []
        # Tensors made in inference mode would not tell when they are written to.
        with torch.inference_mode(False), torch.no_grad():
            for number, spec in enumerate(self.graphs):
                ends = sizes[spec.destinations], sizes[spec.sources]
                try:
                    made.append(spec.build(edges[spec.edge_type], ends, None))
                except (TypeError, ValueError) as error:
                    name = self.types.edges[spec.edge_type]
                    raise type(error)(f"{NAME}: edges {name}: {error}") from error
                lay_out(made[-1], layout, self._packed_widths(number))
        inputs = {f"edges{number}": graph for number, graph in enumerate(edges)}
        return PreparedGraph(tuple(made), None, None, sum(sizes), inputs)

    def forward(self, x: Any = None, edges: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        """What the trained model returns; without gradients.

        Args:
            x: features ``[N, in_channels]`` of each type of nodes.
            edges: edge index or sparse adjacency of each type of edges, converted, which is
                remembered for as long as dense tensors are the same ones and not written to; or
                the result of :meth:`prepare_graph`.
            *args: further arguments of the trained forward; they run its own code.
            **kwargs: arguments of the trained forward by name.

        Returns:
            What the trained forward returns.

        Raises:
            TypeError: ``x`` or ``edges`` is no mapping, or an argument is unknown.
            ValueError: types differ from those of the model and its own code is not at hand,
                features or nodes do not fit, or devices differ.
        """
        first, second = self.types.names
        x = kwargs.pop(first, x) if x is None else x
        edges = kwargs.pop(second, edges) if edges is None else edges
        is_ready = isinstance(edges, PreparedGraph)
        differs = bool(args or kwargs) or self._differ(x, self.types.nodes)
        if differs or (not is_ready and self._differ(edges, self.types.edges)):
            if self.own_form is None or is_ready or not isinstance(x, Mapping):
                self._refuse(x, edges, args, kwargs)
            return self._run_own_form(x, edges, *args, **kwargs)
        given = [self._features(number, x[name]) for number, name in enumerate(self.types.nodes)]
        sizes = tuple(len(features) for features in given)
        graph: Any = edges
        if not is_ready:
            held = tuple(as_tensor(edges[name]) for name in self.types.edges)
            graph = self._edge_memory.get(held, sizes, lambda: self._prepared(held, sizes, "csr"))
        return as_given(x[self.types.nodes[0]], self._run_on(given, graph))

    @staticmethod
    def _differ(given: Any, types: Sequence[Any]) -> bool:
        """Whether a mapping has other keys than the trained model's."""
        return not isinstance(given, Mapping) or given.keys() != set(types)

    def _refuse(self, x: Any, edges: Any, args: Any, kwargs: Any) -> NoReturn:
        first, second = self.types.names
        if args or kwargs:
            raise TypeError(
                f"{NAME}: the call takes {first} and {second}, got {len(args)} arguments more and "
                f"{sorted(kwargs)}"
            )
        self._check_keys(first, x, self.types.nodes)
        self._check_keys(second, edges, self.types.edges)
        raise AssertionError("one of both differs")

    def _check_keys(self, name: str, given: Any, types: Sequence[Any]) -> None:
        """Refuse a mapping of other types than those of the trained model."""
        if not isinstance(given, Mapping):
            raise TypeError(f"{NAME}: {name} must be a mapping, got {type(given).__name__}")
        if self._differ(given, types):
            raise ValueError(
                f"{NAME}: {name} must have the keys {list(types)}, got {list(given)}; other types "
                "of nodes or edges need the trained model's own code, which a file does not hold"
            )

    def _features(self, number: int, x: Any) -> Tensor:
        """Features of one type as dense float32."""
        name, size = self.types.nodes[number], self.registers[number].size or 0
        try:
            found: Tensor = as_features(x, size, (torch.float32,))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error}, for nodes of type {name!r}") from error
        if size and list(found.shape) != [found.size(0), size]:
            raise ValueError(
                f"{NAME}: {self.types.names[0]}[{name!r}] must be [N, {size}], got "
                f"{list(found.shape)}"
            )
        if found.device != self._device:
            raise ValueError(
                f"{NAME}: {self.types.names[0]}[{name!r}] must be on {self._device}, got "
                f"{found.device}"
            )
        return found

    def _run_on(self, x: Sequence[Tensor], graph: PreparedGraph, write: Write | None = None) -> Any:
        if len(graph.adjacencies) != len(self.graphs):
            raise ValueError(f"{NAME}: the graph was prepared for another model")
        for spec, pattern in zip(self.graphs, graph.adjacencies, strict=True):
            pattern.check_written()
            ends = len(x[spec.destinations]), len(x[spec.sources])
            if pattern.shape != ends:
                raise ValueError(
                    f"{NAME}: the adjacency of {self.types.edges[spec.edge_type]} is "
                    f"{list(pattern.shape)}, features are of {list(ends)} nodes"
                )
        graphs = (*graph.adjacencies, graph)
        with torch.inference_mode() if torch.compiler.is_compiling() else torch.no_grad():
            if self._is_stale():
                self._bind()
            executable = self._from_floats.on(_ManyRows, graphs)
            return executable.run(executable.values(x), graphs, write)

    def _start(self, x: Any, graphs: Sequence[Any] = ()) -> NoReturn:
        raise ValueError(f"{NAME}: calls are not run one by one on features of several types")

    def recording_for(self, x: Any, graph: Any = None) -> None:
        """None: a recording has features of one type."""

    def pack_features(self, x: Any, check_finite: bool = False, layout: str = "auto") -> NoReturn:
        """Refused: features of several types are packed by each call."""
        raise ValueError(f"{NAME}.pack_features: this model takes floats of several types")

    def extra_repr(self) -> str:
        """The types, and the program."""
        edges = ", ".join("-".join(edge) for edge in self.types.edges)
        return f"{', '.join(self.types.nodes)}; {edges}\n{self.program}"


EdgeType = tuple[str, ...]


@dataclass(frozen=True)
class Types:
    """Keys of the two mappings that a heterogeneous model takes.

    Attributes:
        nodes: types of nodes; their features are the inputs, in this order.
        edges: types of edges.
        names: of the forward's arguments, features and graphs.
    """

    nodes: tuple[str, ...]
    edges: tuple[EdgeType, ...]
    names: tuple[str, str] = ("x_dict", "edge_index_dict")

    def description(self) -> dict[str, Any]:
        """Plain values that :meth:`from_description` reads."""
        edges = [list(edge) for edge in self.edges]
        return {"nodes": list(self.nodes), "edges": edges, "names": list(self.names)}

    @classmethod
    def from_description(cls, description: Any) -> Types:
        """Read what :meth:`description` gave; a ValueError says what is wrong with it."""
        fits = isinstance(description, Mapping) and set(description) == {"nodes", "edges", "names"}
        if fits:
            rows = [description["nodes"], description["names"], *description["edges"]]
            fits = all(isinstance(row, list) and row for row in rows)
            fits = fits and all(isinstance(name, str) for row in rows for name in row)
        if not fits:
            raise ValueError(f"types must have nodes, edges and names, got {description}")
        edges = tuple(map(tuple, description["edges"]))
        first, second = description["names"]
        return cls(tuple(description["nodes"]), edges, (first, second))
