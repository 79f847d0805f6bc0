"""Random arguments of neighbour sampling: hubs, isolated nodes, repeated edges and seeds."""

from typing import Any

import torch
from draws import Draws
from torch import Tensor

RELATIONS = ((0, 1), (1, 0), (0, 0))
"""Types of source and destination."""
FANOUTS = (-1, 0, 1, 2, 3, 1000)


class SamplingArguments(Draws):
    """Arguments of sample_neighbors."""

    def _sampling_arguments(
        self, n: int, k: int, m: int, optional: bool | None = None
    ) -> dict[str, Any]:
        """Nodes of two types, n and m, and about k edges in each of three relations."""
        sizes = [n, m]
        pairs = [
            self.csc(k if sizes[a] and sizes[b] else 0, sizes[a], sizes[b]) for a, b in RELATIONS
        ]
        given: dict[str, Any] = {
            "colptrs": [colptr for colptr, _ in pairs],
            "rows": [row for _, row in pairs],
            "seeds": [self.nodes(self.integer(4) if size else 0, size) for size in sizes],
            "num_nodes": sizes,
            "sources": [a for a, _ in RELATIONS],
            "destinations": [b for _, b in RELATIONS],
            "fanouts": [
                FANOUTS[self.integer(len(FANOUTS))] for _ in range(len(RELATIONS) * self.integer(4))
            ],
            "random_seed": self.integer(2**62),
        }
        for name in ("replace", "disjoint", "induced"):
            if optional is not False:
                given[name] = bool(optional and name == "disjoint") or bool(self.integer(2))
        return given

    def nodes(self, count: int, size: int) -> Tensor:
        """Nodes below size, with repetitions."""
        return torch.randint(max(1, size), (count,), generator=self.generator)

    def csc(self, edges: int, sources: int, destinations: int) -> tuple[Tensor, Tensor]:
        """Column pointers and rows of random edges, a quarter of them into one node."""
        into = self.nodes(edges, destinations)
        into[: edges // 4] = destinations // 2
        colptr = torch.zeros(destinations + 1, dtype=torch.int64)
        colptr[1:] = torch.bincount(into, minlength=destinations).cumsum(0)
        return colptr, self.nodes(edges, sources)
