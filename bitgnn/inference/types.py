"""Types of nodes and of edges that a heterogeneous model takes, and the names of its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
