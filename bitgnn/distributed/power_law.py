"""Made-up graphs of any size whose degrees follow a power law, drawn block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitgnn.bits import BitTensor
from bitgnn.bits.tensor import WORD_BITS, words_for

SIZES = {
    "arxiv": (169_343, 1_166_243, 128),
    "products": (2_449_029, 61_859_140, 100),
    "papers100M": (111_059_956, 1_615_685_872, 128),
}
"""Nodes, edges in one direction and features of OGB's graphs."""
EDGES_AT_ONCE = 1 << 20
ROWS_AT_ONCE = 1 << 18
EXPONENT = 2.5
SCRAMBLE = 0x9E3779B1
"""About 2**32 over the golden ratio: spreads neighbouring ranks over all nodes."""


class PowerLawGraph:
    r"""A made-up graph of a true size, drawn block by block: no real data set.

    Both ends of each edge are drawn on their own: the node of rank :math:`r` with a probability
    proportional to :math:`(r + 1)^{-1/(\gamma - 1)}` for the exponent :math:`\gamma` of the power
    law (Chung and Lu 2002). Loops and duplicates occur. Features are random bits. Blocks have a
    fixed size and a seed each, so that the same arguments give the same graph.

    Args:
        size: nodes, or one of the names ``"arxiv"``, ``"products"``, ``"papers100M"``, which set
            the sizes that are None to those of OGB's graph.
        num_edges: edges, one direction each.
        num_features: features of a node; 0 for none.
        exponent: of the power law, above 2.
        seed: of everything random.

    Raises:
        ValueError: an unknown name, a size below 0, edges without nodes, or an exponent of 2 or
            less.
    """

    def __init__(
        self,
        size: int | str,
        num_edges: int | None = None,
        num_features: int | None = None,
        *,
        exponent: float = EXPONENT,
        seed: int = 0,
    ) -> None:
        if isinstance(size, str):
            if size not in SIZES:
                raise ValueError(f"PowerLawGraph: size must be one of {[*SIZES]}, got {size!r}")
            named = SIZES[size]
        else:
            named = (size, 0, 0)
        self.num_nodes = named[0]
        self.num_edges = named[1] if num_edges is None else num_edges
        self.num_features = named[2] if num_features is None else num_features
        sizes = (self.num_nodes, self.num_edges, self.num_features)
        if min(sizes) < 0 or self.num_nodes > 2**31 or (self.num_edges > 0 and not self.num_nodes):
            raise ValueError(
                "PowerLawGraph: nodes, at most 2**31, edges and features must be 0 or more, and "
                f"edges need nodes, got {sizes}"
            )
        if not (math.isfinite(exponent) and exponent > 2):
            raise ValueError(f"PowerLawGraph: exponent must be above 2, got {exponent}")
        self.exponent, self.seed = exponent, seed
        self._factor = SCRAMBLE % max(1, self.num_nodes)
        while math.gcd(self._factor, self.num_nodes) > 1:
            self._factor += 1

    def __repr__(self) -> str:
        return (
            f"PowerLawGraph({self.num_nodes}, {self.num_edges}, {self.num_features}, "
            f"exponent={self.exponent}, seed={self.seed})"
        )

    def blocks(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Sources and destinations, int64, block by block."""
        for number, begin in enumerate(range(0, self.num_edges, EDGES_AT_ONCE)):
            count = min(EDGES_AT_ONCE, self.num_edges - begin)
            drawn = self._generator(0, number).random((2, count))
            yield self._node(drawn[0]), self._node(drawn[1])

    def features(self) -> Iterator[BitTensor]:
        """Random bits of the nodes, block by block."""
        words, rest = words_for(self.num_features), self.num_features % WORD_BITS
        for number, begin in enumerate(range(0, self.num_nodes, ROWS_AT_ONCE)):
            shape = min(ROWS_AT_ONCE, self.num_nodes - begin), words
            drawn = self._generator(1, number).integers(-(2**31), 2**31, shape, dtype=np.int32)
            if rest:
                drawn[:, -1] &= (1 << rest) - 1
            yield BitTensor(torch.from_numpy(drawn), self.num_features)

    def _generator(self, kind: int, number: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, kind, number))

    def _node(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self.nodes_at(torch.from_numpy(uniform)).numpy()
        return found

    def nodes_at(self, uniform: Tensor) -> Tensor:
        """Ends of edges, int64, by inverse transform of uniform float64 numbers in [0, 1).

        Ranks of the power law are spread over all nodes.
        """
        power, total = self._law
        rank = ((uniform * total + 1) ** (1 / power) - 1).long()
        # Rounding may reach the end. Factors are below 2**31 each.
        return rank.clamp_(max=self.num_nodes - 1) * self._factor % self.num_nodes

    def probability(self, nodes: Tensor) -> Tensor:
        """Probability, float64, that an end of an edge is one of these nodes, int64."""
        power, total = self._law
        rank = nodes * pow(self._factor, -1, self.num_nodes) % self.num_nodes
        return ((rank + 2.0) ** power - (rank + 1.0) ** power) / total

    @property
    def _law(self) -> tuple[float, float]:
        """Exponent and total of the ranks' distribution."""
        power = 1 - 1 / (self.exponent - 1)
        return power, (self.num_nodes + 1.0) ** power - 1
