"""Samplers of neighbourhoods: this package's, those PyG can use, and one in plain torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch_geometric.sampler
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

from bitgnn.data import NeighborSampler
from bitgnn.measure.timing import Clock, compare


@dataclass(frozen=True)
class SamplingCase:
    """One way of sampling a graph, by every sampler that has it.

    Attributes:
        name: of the way.
        graph: with ``edge_index`` and ``num_nodes``.
        seeds: nodes of a batch.
        fanouts: neighbours of a node in each hop.
        options: of the sampler, ``replace`` or ``disjoint``.
        threads: of torch, each number measured.
    """

    name: str
    graph: Data
    seeds: Tensor
    fanouts: Sequence[int]
    options: Mapping[str, Any] = field(default_factory=dict)
    threads: Sequence[int] = (1,)

    group = "sampling"

    def run(self, clock: Clock, repeats: int) -> dict[str, Any]:
        """Times all samplers with each number of threads, in the same rounds."""
        samplers = self.samplers()
        torch.manual_seed(0)
        edges = {name: call().numel() for name, call in samplers.items()}
        named = {
            f"{name}, {count} thread{'s' * (count > 1)}": (name, partial(_with, count, call))
            for name, call in samplers.items()
            for count in self.threads
        }
        before = torch.get_num_threads()
        try:
            timings = compare({title: call for title, (_, call) in named.items()}, repeats=repeats)
        finally:
            torch.set_num_threads(before)
        contenders = {}
        for title, (name, _) in named.items():
            rate = edges[name] / timings[title].median
            found = {"edges": edges[name], "edges_per_second": rate}
            contenders[title] = timings[title].to_dict() | found
        return {
            "fanouts": list(self.fanouts),
            "seeds": self.seeds.numel(),
            "nodes": self.graph.num_nodes,
            "graph_edges": self.graph.num_edges,
            "contenders": contenders,
        }

    def samplers(self) -> dict[str, Callable[[], Tensor]]:
        """Calls that sample a batch and return its edges."""
        ours = NeighborSampler(self.graph, list(self.fanouts), **self.options)
        seeds = NodeSamplerInput(None, self.seeds)
        calls: dict[str, Callable[[], Tensor]] = {
            "bitgnn": lambda: ours.sample_from_nodes(seeds).edge
        }
        if WITH_PYG_LIB:
            peer = torch_geometric.sampler.NeighborSampler(
                self.graph, list(self.fanouts), **self.options
            )
            calls["PyG with pyg-lib"] = lambda: peer.sample_from_nodes(seeds).edge
        if self.options.get("disjoint"):
            return calls
        if WITH_TORCH_SPARSE:
            sample = partial(
                torch.ops.torch_sparse.neighbor_sample, ours.colptr, ours.row, self.seeds,
                list(self.fanouts), self.options.get("replace", False), True,
            )  # fmt: skip
            calls["torch-sparse"] = lambda: sample()[3]
        calls["plain torch"] = partial(
            plain_sample, ours.colptr, ours.row, self.seeds, self.fanouts
        )
        return calls


def _with(threads: int, call: Callable[[], Tensor]) -> Tensor:
    """Result of a call with a number of threads; the same number again costs nothing."""
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    return call()


def plain_sample(colptr: Tensor, row: Tensor, seeds: Tensor, fanouts: Sequence[int]) -> Tensor:
    """Edges ``[e]`` of a sample in vector operations of torch.

    Neighbours are drawn with replacement and repeated draws dropped, so a node gets at most
    ``fanout`` of them.
    """
    places = torch.full((len(colptr) - 1,), -1)
    places[seeds] = torch.arange(len(seeds))
    frontier, edges, count = seeds, [], len(seeds)
    for fanout in fanouts:
        begin = colptr[frontier]
        degree = colptr[frontier + 1] - begin
        drawn = (torch.rand(len(frontier), fanout, dtype=torch.float64) * degree[:, None]).long()
        edges.append(torch.unique((begin[:, None] + drawn)[degree > 0]))
        found = row[edges[-1]]
        frontier = torch.unique(found[places[found] < 0])
        places[frontier] = torch.arange(count, count + len(frontier))
        count += len(frontier)
    return torch.cat(edges)
