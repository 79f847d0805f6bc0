"""Reference of neighbour sampling: the random streams, the draws and the order of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bitgnn.ops.reference.table import Arguments, operator

WORD = 2**64
STEP = 0x9E3779B97F4A7C15
"""Distance between successive states of SplitMix64."""
MOST_DRAWS = 1 << 24
"""Of a node, with replacement."""

Key = tuple[int, int]
"""A node of a sample: the number of its seed, 0 unless disjoint, and its own number."""


def _unknown_sizes(a: Arguments) -> tuple[list[Tensor] | Tensor, ...]:
    """Empty results of unknown sizes."""
    relations = len(a.colptrs)
    hops = len(a.fanouts) // relations if relations else 0

    def empty(*shape: int | torch.SymInt) -> Tensor:
        return a.seeds[0].new_empty(shape, dtype=torch.int64)

    context = torch.library.get_ctx()
    nodes = [context.new_dynamic_size() for _ in a.seeds]
    edges = [context.new_dynamic_size() for _ in a.colptrs]
    batches = nodes if a.disjoint else [0] * len(nodes)
    vectors = ([empty(size) for size in sizes] for sizes in (nodes, batches, edges, edges, edges))
    return (*vectors, empty(len(a.seeds), hops + 1), empty(relations, hops))


@operator(
    "colptrs:tensors rows:tensors seeds:tensors num_nodes:ints sources:ints destinations:ints "
    "fanouts:ints random_seed:int replace=False disjoint=False induced=False",
    _unknown_sizes,
    on_host=True,
)
def sample_neighbors(
    a: Arguments,
) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor], list[Tensor], Tensor, Tensor]:
    """Neighbourhoods that are sampled uniformly, hop by hop.

    A node is a destination in the hop after the one that found it. Results depend on
    ``random_seed`` and the arguments, not on the number of threads.

    ``colptrs`` are column pointers int64 ``[num_nodes[d] + 1]`` and ``rows`` sources int64 ``[E]``
    of each relation in CSC, whose node types ``sources`` and ``destinations`` tell; ``seeds`` the
    nodes int64 ``[S]`` of each type that sampling starts from, repeated ones staying. ``fanouts``
    are of each relation in each hop, relation by relation, -1 for all neighbours. ``replace`` draws
    with replacement, ``disjoint`` gives each seed nodes of its own, ``induced`` returns all edges
    between the nodes in place of those drawn.

    Returns:
        Nodes ``[n]`` of each type, seeds first; the number of the seed that each of them belongs
        to, counted through all types (empty unless ``disjoint``); for each relation, source and
        destination ``[e]`` as places among these nodes and the edge ``[e]`` in its CSC; the
        numbers of nodes ``[types, hops + 1]`` and edges ``[relations, hops]`` found in each hop.
        All are int64.

    Raises:
        TypeError: a tensor is not an int64 vector on the CPU.
        ValueError: sizes do not fit, or a pointer, node, type or fan-out is out of range.
    """
    colptrs, rows, seeds, num_nodes = a.colptrs, a.rows, a.seeds, a.num_nodes
    sources, destinations, fanouts = a.sources, a.destinations, a.fanouts
    _check_sizes(a)
    _check_range("fanouts", fanouts, -1, MOST_DRAWS if a.replace else 2**63 - 2)
    hops = len(fanouts) // len(rows) if rows else 0
    _require(
        len(fanouts) == hops * len(rows),
        f"fanouts must have one entry a relation and hop, got {len(fanouts)} for {len(rows)} "
        "relations",
    )
    total = sum(map(len, seeds))
    _require(
        not a.disjoint or total * max(num_nodes) < 2**63,
        "num_nodes and seeds must have products below 2^63",
    )
    relations = [
        _Relation(r, colptr.tolist(), row.tolist(), num_nodes[sources[r]])
        for r, (colptr, row) in enumerate(zip(colptrs, rows, strict=True))
    ]
    nodes = [_Nodes() for _ in seeds]
    count = 0
    for i, (found, vector) in enumerate(zip(nodes, seeds, strict=True)):
        for seed in vector.tolist():
            _check_range(f"seeds[{i}]", [seed], 0, num_nodes[i] - 1)
            found.append((count if a.disjoint else 0, seed))
            count += 1
    node_counts = [[len(found.keys)] for found in nodes]
    edges: list[list[tuple[int, int, int]]] = [[] for _ in rows]
    edge_counts: list[list[int]] = [[] for _ in rows]
    for hop in range(hops):
        ends = [len(found.keys) for found in nodes]
        for r, relation in enumerate(relations):
            fanout, end = fanouts[r * hops + hop], ends[destinations[r]]
            targets = nodes[destinations[r]].keys
            drawn = [
                ((targets[i][0], relation.source(edge)), i, edge)
                for i in range(end - node_counts[destinations[r]][hop], end)
                for edge in relation.drawn(i, targets[i][1], fanout, a.replace, a.random_seed)
            ]
            edges[r] += [(nodes[sources[r]].number(key), i, edge) for key, i, edge in drawn]
            edge_counts[r].append(len(drawn))
        for found, counts in zip(nodes, node_counts, strict=True):
            counts.append(len(found.keys) - sum(counts))
    for r, relation in enumerate(relations if a.induced else ()):
        known = nodes[sources[r]].numbers
        edges[r] = [
            (known[key], i, edge)
            for i, (batch, node) in enumerate(nodes[destinations[r]].keys)
            for edge in relation.edges(node)
            if (key := (batch, relation.source(edge))) in known
        ]
    return (
        [_vector([node for _, node in found.keys]) for found in nodes],
        [_vector([batch for batch, _ in found.keys if a.disjoint]) for found in nodes],
        [_vector([source for source, _, _ in found]) for found in edges],
        [_vector([into for _, into, _ in found]) for found in edges],
        [_vector([edge for _, _, edge in found]) for found in edges],
        _vector(node_counts),
        _vector(edge_counts).view(len(rows), hops),
    )


class _Nodes:
    """Nodes of a type, numbered in the order in which they were found."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        # Place of each key, of repeated ones the first.
        self.numbers: dict[Key, int] = {}

    def append(self, key: Key) -> None:
        """Add a key even if it is there."""
        self.numbers.setdefault(key, len(self.keys))
        self.keys.append(key)

    def number(self, key: Key) -> int:
        """The number of a key, a new one if it is not there."""
        if key not in self.numbers:
            self.append(key)
        return self.numbers[key]


@dataclass(frozen=True)
class _Relation:
    """Edges from nodes of one type to nodes of another, in CSC."""

    place: int
    colptr: list[int]
    row: list[int]
    num_sources: int

    def edges(self, node: int) -> range:
        """Edges into a node."""
        begin, end = self.colptr[node : node + 2]
        _require(
            0 <= begin <= end <= len(self.row),
            f"colptrs[{self.place}] must ascend within [0, {len(self.row)}], "
            f"got {begin} and {end} at {node}",
        )
        return range(begin, end)

    def source(self, edge: int) -> int:
        """Source of an edge."""
        _check_range(f"rows[{self.place}]", [self.row[edge]], 0, self.num_sources - 1)
        return self.row[edge]

    def drawn(self, number: int, node: int, fanout: int, replace: bool, seed: int) -> list[int]:
        """Edges that are drawn of those into a node, the ``number``-th of its type in the sample.

        A set without replacement is drawn by Robert Floyd's algorithm.
        """
        if fanout == 0:
            return []
        edges = self.edges(node)
        words = _stream(seed, self.place, number)
        degree = len(edges)
        if fanout < 0 or degree == 0 or (not replace and degree <= fanout):
            return list(edges)
        if replace:
            return [edges[next(words) * degree // WORD] for _ in range(fanout)]
        chosen: list[int] = []
        for last in range(degree - fanout, degree):
            place = next(words) * (last + 1) // WORD
            chosen.append(last if place in chosen else place)
        return [edges[place] for place in chosen]


def _mixed(word: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % WORD
    return word ^ (word >> 31)


def _stream(seed: int, relation: int, number: int) -> Iterator[int]:
    """Random words of a node in a relation."""
    state = _mixed((_mixed((seed + STEP * relation) % WORD) + number) % WORD)
    while True:
        state = (state + STEP) % WORD
        yield _mixed(state)


def _check_sizes(a: Arguments) -> None:
    types, relations = len(a.num_nodes), len(a.sources)
    _require(types > 0, "num_nodes must have an entry for each node type, got none")
    _require(len(a.seeds) == types, f"the number of seeds must be {types}, got {len(a.seeds)}")
    for name, found in (("colptrs", a.colptrs), ("rows", a.rows), ("destinations", a.destinations)):
        _require(
            len(found) == relations, f"the number of {name} must be {relations}, got {len(found)}"
        )
    _check_range("num_nodes", a.num_nodes, 0, 2**63 - 2)
    _check_range("sources", a.sources, 0, types - 1)
    _check_range("destinations", a.destinations, 0, types - 1)
    for name, vectors in (("seeds", a.seeds), ("colptrs", a.colptrs), ("rows", a.rows)):
        for i, vector in enumerate(vectors):
            if vector.dtype != torch.int64 or vector.dim() != 1 or vector.device.type != "cpu":
                raise TypeError(
                    f"sample_neighbors: {name}[{i}] must be an int64 vector on the CPU, got "
                    f"{vector.dtype} {list(vector.shape)} on {vector.device}"
                )
    for r, colptr in enumerate(a.colptrs):
        expected = a.num_nodes[a.destinations[r]] + 1
        _require(
            len(colptr) == expected,
            f"colptrs[{r}] must have {expected} entries, got {len(colptr)}",
        )


def _check_range(name: str, numbers: Sequence[int], least: int, most: int) -> None:
    for number in numbers:
        _require(least <= number <= most, f"{name} must be from {least} to {most}, got {number}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(f"sample_neighbors: {message}")


def _vector(numbers: list[int] | list[list[int]]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64)
