"""Neighbour sampling: equal to its reference, uniform by chi-square, the same for any threads."""

from collections import Counter
from itertools import combinations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._pytree import tree_leaves
from wrong_calls import check_wrong_calls

from bitgnn._library import library_info
from bitgnn.ops.reference.sampling import sample_neighbors as reference

compiled = pytest.mark.skipif(library_info().cpu_library is None, reason="no compiled library")
NODES, EDGES = 3000, 40000


def sample(*arguments, **keywords):
    return torch.ops.bitgnn.sample_neighbors(*arguments, **keywords)


def one_type(colptr, row, seeds, fanouts, random_seed=0, **options):
    """A sample of a graph with one type: nodes, batch, source, destination, edge and counts."""
    nodes = len(colptr) - 1
    graph = [torch.as_tensor(vector) for vector in (colptr, row, seeds)]
    result = sample(*([v] for v in graph), [nodes], [0], [0], fanouts, random_seed, **options)
    return [part[0] for part in result]


def star(degree):
    """Edges from nodes 1, 2, ... into node 0."""
    colptr = torch.full((degree + 2,), degree)
    colptr[0] = 0
    return colptr, torch.arange(1, degree + 1)


def chi_square(counts, probabilities, total):
    """The statistic in standard deviations above its mean, for expected counts that are large."""
    expected = [total * p for p in probabilities]
    value = sum((c - e) ** 2 / e for c, e in zip(counts, expected, strict=True))
    freedom = len(expected) - 1
    return (value - freedom) / (2 * freedom) ** 0.5


@given(
    n=st.integers(0, 20),
    k=st.integers(0, 60),
    m=st.integers(0, 9),
    seed=st.integers(0, 10**6),
    optional=st.sampled_from([False, True, None]),
)
def test_equals_the_reference(n, k, m, seed, optional, sampler):
    arguments = sampler(seed).arguments("sample_neighbors", n, k, m, optional)
    found, expected = tree_leaves(sample(**arguments)), tree_leaves(reference(**arguments))
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype == torch.int64
        assert torch.equal(mine, theirs)


@pytest.fixture(scope="module")
def graph():
    generator = torch.Generator().manual_seed(0)
    into = (torch.rand(EDGES, generator=generator) ** 3 * NODES).long()
    colptr = torch.zeros(NODES + 1, dtype=torch.int64)
    colptr[1:] = torch.bincount(into, minlength=NODES).cumsum(0)
    return colptr, torch.randint(NODES, (EDGES,), generator=generator)


OPTIONS = [
    {},
    {"replace": True},
    {"disjoint": True},
    {"induced": True},
    {"disjoint": True, "induced": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_structure(graph, options):
    colptr, row = graph
    seeds = torch.randperm(NODES)[:300]
    fanouts = [6, 4, -1]
    found = one_type(colptr, row, seeds, fanouts, 1, **options)
    node, batch, source, into, edge, node_counts, edge_counts = found
    disjoint, induced = options.get("disjoint", False), options.get("induced", False)
    assert torch.equal(node[:300], seeds)
    keys = torch.stack([batch, node]) if disjoint else node
    assert keys.unique(dim=-1).shape == keys.shape
    # Every edge is one of the graph and stays among the nodes of one seed.
    assert torch.equal(row[edge], node[source])
    assert bool(((colptr[node[into]] <= edge) & (edge < colptr[node[into] + 1])).all())
    if disjoint:
        assert torch.equal(batch[:300], torch.arange(300))
        assert torch.equal(batch[source], batch[into])
    pairs = torch.stack([into, edge])
    assert options.get("replace") or pairs.unique(dim=1).shape == pairs.shape
    ends = node_counts.cumsum(0).tolist()
    assert ends[-1] == len(node)
    if induced:  # every edge whose ends are there
        alone = torch.zeros(NODES, dtype=torch.bool).index_fill_(0, node, True)
        inside = torch.repeat_interleave(alone, colptr.diff()) & alone[row]
        assert disjoint or len(edge) == int(inside.sum())
        return
    assert edge_counts.sum() == len(edge)
    drawn, degree = torch.bincount(into, minlength=len(node)), colptr.diff()[node]
    for hop, fanout in enumerate(fanouts):
        part = slice(ends[hop] - int(node_counts[hop]), ends[hop])
        wanted = degree[part]
        if fanout >= 0:
            few = torch.full_like(wanted, fanout) * (wanted > 0)
            wanted = few if options.get("replace") else few.minimum(wanted)
        assert torch.equal(drawn[part], wanted)
        # The nodes of a hop come from edges into those of the hop before.
        later = torch.arange(ends[hop], ends[hop + 1])
        assert bool(torch.isin(later, source[(into >= part.start) & (into < part.stop)]).all())


def test_repeated_seeds_keep_their_places_and_draw_on_their_own():
    colptr, row = star(1000)
    node, _, source, into, edge, *_ = one_type(colptr, row, [0, 5, 0], [3])
    assert node[:3].tolist() == [0, 5, 0]
    assert len(node) == len(node[1:].unique()) + 1
    assert into.tolist() == [0] * 3 + [2] * 3
    assert set(edge[:3].tolist()) != set(edge[3:].tolist())
    assert torch.equal(row[edge], node[source])
    # A neighbour that is a repeated seed is its first place.
    node, _, source, *_ = one_type([0, 0, 1], [0], [0, 0, 1], [-1])
    assert (node.tolist(), source.tolist()) == ([0, 0, 1], [0])


@compiled
@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_threads_do_not_matter(graph, options):
    seeds, before = torch.arange(2000), torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(one_type(*graph, seeds, [5, 3], 7, **options))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize(("degree", "fanout"), [(7, 3), (9, 1), (6, 5), (70, 2)])
def test_sets_without_replacement_are_equally_likely(degree, fanout):
    sets = [frozenset(found) for found in combinations(range(degree), fanout)]
    draws, counts = 60 * len(sets), Counter()
    edge = one_type(*star(degree), torch.zeros(draws, dtype=torch.int64), [fanout], 3)[4]
    counts.update(frozenset(found) for found in edge.view(-1, fanout).tolist())
    probabilities = [1 / len(sets)] * len(sets)
    assert abs(chi_square([counts[s] for s in sets], probabilities, draws)) < 4
    # From one random seed to the next, too.
    few = [one_type(*star(degree), [0], [fanout], i)[4].tolist() for i in range(4000)]
    singles = Counter(edge for found in few for edge in found)
    counts_of_edges = [singles[i] for i in range(degree)]
    assert abs(chi_square(counts_of_edges, [1 / degree] * degree, 4000 * fanout)) < 4


def test_draws_with_replacement_are_independent():
    degree, fanout = 5, 3
    draws = 60 * degree**fanout
    zeros = torch.zeros(draws, dtype=torch.int64)
    edge = one_type(*star(degree), zeros, [fanout], 3, replace=True)[4].view(-1, fanout)
    neighbours = torch.stack([edge[:, 0], edge[:, 0].roll(1)], dim=1)  # of one node and the next
    for tuples in (edge, neighbours):
        outcomes = list(product(range(degree), repeat=tuples.size(1)))
        counts = Counter(map(tuple, tuples.tolist()))
        found = [counts[outcome] for outcome in outcomes]
        assert abs(chi_square(found, [1 / len(outcomes)] * len(outcomes), draws)) < 4


def test_nodes_and_hops_are_independent():
    # A complete graph of four nodes: both hops of one path are uniform, whatever the first was.
    nodes = 4
    colptr = torch.arange(nodes + 1) * nodes
    row = torch.arange(nodes).repeat(nodes)
    counts = Counter()
    for seed in range(1500):
        zeros = torch.zeros(8, dtype=torch.int64)
        node, batch, source, into, *_ = one_type(
            colptr, row, zeros, [1, 1], seed, replace=True, disjoint=True
        )
        pairs = {}
        for start, end in zip(source.tolist(), into.tolist(), strict=True):
            pairs.setdefault(int(batch[end]), []).append(int(node[start]))
        # Where the first draw is the seed itself, there is no second.
        counts.update(tuple(found) for found in pairs.values())
    outcomes = [(0,), *product(range(1, nodes), range(nodes))]
    probabilities = [1 / nodes if len(o) == 1 else 1 / nodes**2 for o in outcomes]
    assert abs(chi_square([counts[o] for o in outcomes], probabilities, 12000)) < 4


def test_nothing_to_sample():
    for seeds in ([], [0]):
        found = one_type([0, 0], torch.zeros(0, dtype=torch.int64), torch.tensor(seeds).long(), [3])
        assert found[0].tolist() == seeds
        assert found[4].numel() == 0
        assert found[5].tolist() == [len(seeds), 0]
    node, *_, counts, edges = one_type([0, 1], [0], [0], [])
    assert (node.tolist(), counts.tolist(), edges.tolist()) == ([0], [1], [])


GOOD = {
    "colptrs": [torch.tensor([0, 2, 2, 3])],
    "rows": [torch.tensor([1, 2, 0])],
    "seeds": [torch.tensor([0, 2])],
    "num_nodes": [3],
    "sources": [0],
    "destinations": [0],
    "fanouts": [2],
    "random_seed": 0,
}


T = torch.tensor
WRONG = r"""
wrong(seeds=T([3])) -> Exception: seeds\[0\] must .* got 3
wrong(seeds=T([-1])) -> Exception: seeds\[0\] must .* got -1
wrong(seeds=T([0.0])) -> Exception: seeds\[0\] must be
wrong(seeds=T(0)) -> Exception: seeds\[0\] must
wrong(seeds=[]) -> Exception: the number of seeds must be 1, got 0
wrong(rows=T([1, 3, 0])) -> Exception: rows\[0\] must .* got 3
wrong(rows=T([1, -1, 0])) -> Exception: rows\[0\] must .* got -1
wrong(rows=T([1, 2, 0]).int()) -> Exception: rows\[0\] must be
wrong(rows=[]) -> Exception: the number of rows must be 1, got 0
wrong(colptrs=[]) -> Exception: the number of colptrs must be 1, got 0
wrong(colptrs=T([0, 2, 3])) -> Exception: colptrs\[0\] must have 4 entries, got 3
wrong(colptrs=T([0, 4, 2, 3])) -> Exception: colptrs\[0\] must ascend within \[0, 3\]
wrong(colptrs=T([-1, 2, 2, 3])) -> Exception: got -1 and 2 at 0
wrong(colptrs=T([2, 1, 2, 3])) -> Exception: got 2 and 1 at 0
wrong(num_nodes=[]) -> Exception: num_nodes must have an entry
wrong(num_nodes=-1) -> Exception: num_nodes must be from 0
wrong(sources=1) -> Exception: sources must be from 0 to 0, got 1
wrong(destinations=-1) -> Exception: destinations must be from 0 to 0, got -1
wrong(destinations=[]) -> Exception: the number of destinations must be 1, got 0
wrong(fanouts=[2, -2]) -> Exception: fanouts must be from -1 to .*, got -2
wrong(fanouts=2**25, replace=True) -> Exception: fanouts must be from -1 to 16777216, got
wrong(sources=[0, 0], destinations=[0, 0], rows=GOOD["rows"] * 2, colptrs=GOOD["colptrs"] * 2)
    -> Exception: fanouts must have one entry a relation and hop
"""


@pytest.mark.parametrize("call", [pytest.param(sample, marks=compiled), reference])
def test_refusals(call):
    """The operator and its reference refuse a call in the same words."""

    def wrong(**changes):
        changes = {k: v if isinstance(v, list | bool) else [v] for k, v in changes.items()}
        with pytest.raises((RuntimeError, ValueError, TypeError), match=r"^sample_n") as refused:
            call(**GOOD | changes)
        raise refused.value

    check_wrong_calls(WRONG, globals() | {"wrong": wrong})


def test_other_devices_are_refused():
    on_meta = {**GOOD, "rows": [GOOD["rows"][0].to("meta")]}
    with pytest.raises(RuntimeError, match="sample_neighbors: tensors must be on one device"):
        sample(**on_meta)
    with pytest.raises(TypeError, match=r"int64 vector on the CPU, got .* on meta"):
        reference(**on_meta)
