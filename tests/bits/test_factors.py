"""Weights of an adjacency: factors rounded the same everywhere, and values of single edges."""

import math

import pytest
import torch
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from bitgnn import BitAdjacency
from bitgnn.bits import layouts
from bitgnn.bits.factors import symmetric_factor

N = 40


@pytest.fixture
def edges():
    """Edges with duplicates and loops in no order; node 7 has none."""
    found = torch.randint(N, (2, 300), generator=torch.Generator().manual_seed(3))
    return found[:, (found != 7).all(0)]


@pytest.fixture
def weight(edges):
    return torch.randn(edges.size(1), generator=torch.Generator().manual_seed(4))


def summed(edges, weight):
    """Dense matrix of the edges, destinations as rows."""
    return torch.zeros(N, N).index_put_((edges[1], edges[0]), weight, accumulate=True)


def test_roots_are_rounded_correctly():
    degree = torch.arange(1, 5001)
    # torch's own float32 root is an ulp off for many of these on a CPU.
    root = torch.tensor([math.sqrt(d) for d in degree.tolist()], dtype=torch.float64).float()
    assert torch.equal(symmetric_factor(degree), (1 / root.double()).float())
    assert torch.equal(symmetric_factor(torch.tensor([0, 4])), torch.tensor([0.0, 0.5]))


def test_weights_of_edges_are_values_in_the_order_of_rows(edges, weight):
    adjacency = BitAdjacency.from_edge_index(edges, N, weight)
    assert adjacency.row_scale is None
    assert adjacency.col_scale is None
    order = torch.argsort(edges[1] * N + edges[0], stable=True)
    assert torch.equal(adjacency.to_edge_index(), edges[:, order])
    assert torch.equal(adjacency.values, weight[order])  # duplicates as they were given
    torch.testing.assert_close(adjacency.to_dense(), summed(edges, weight))
    mean = BitAdjacency.from_edge_index(edges, N, weight, normalize="mean")
    count = summed(edges, torch.ones_like(weight)).sum(1).clamp(min=1)
    torch.testing.assert_close(mean.to_dense(), summed(edges, weight) / count[:, None])


@pytest.mark.parametrize("loops", [False, True])
def test_normalised_values_are_those_of_pyg(edges, weight, loops):
    weight = weight.abs()
    adjacency = BitAdjacency.from_edge_index(
        edges, N, weight, normalize="sym", add_self_loops=loops
    )
    expected = summed(*gcn_norm(edges, weight, N, add_self_loops=loops))
    torch.testing.assert_close(adjacency.to_dense(), expected)


def test_weights_that_the_edges_of_a_row_share_are_its_factor(edges):
    shared = torch.rand(N) + 0.1
    adjacency = BitAdjacency.from_edge_index(edges, N, shared[edges[1]])
    assert adjacency.values is None
    assert adjacency.col_scale is None
    held = adjacency.rowptr.diff() > 0
    assert torch.equal(adjacency.row_scale, torch.where(held, shared, 0))
    mean = BitAdjacency.from_edge_index(edges, N, shared[edges[1]], normalize="mean")
    torch.testing.assert_close(mean.row_scale[held], (shared / adjacency.rowptr.diff())[held])
    # Those of a column are not: on bits a column factor could not act.
    of_columns = BitAdjacency.from_edge_index(edges, N, shared[edges[0]])
    assert torch.equal(of_columns.values, shared[of_columns.indices.long()])


@pytest.mark.parametrize("normalize", [None, "sym", "mean"])
def test_gradients_reach_the_weights(edges, weight, normalize):
    weight = weight.abs()
    weight[:3] = 0  # no entries, but for a gradient
    found, own = weight.clone().requires_grad_(), weight.clone().requires_grad_()
    adjacency = BitAdjacency.from_edge_index(edges, N, found, normalize=normalize)
    assert adjacency.nnz == edges.size(1)
    expected = summed(edges, own)
    if normalize == "mean":
        expected = expected / summed(edges, torch.ones_like(own)).sum(1).clamp(min=1)[:, None]
    if normalize == "sym":
        expected = summed(*gcn_norm(edges, own, N, add_self_loops=False))
    slope = torch.randn(N, N)
    rows, columns = adjacency.to_edge_index().flip(0)
    (adjacency.values * slope[rows, columns]).sum().backward()
    (expected * slope).sum().backward()
    held = (weight > 0) & own.grad.isfinite()  # gcn_norm has no slope at a degree of 0
    torch.testing.assert_close(found.grad[held], own.grad[held])
    assert found.grad.isfinite().all()
    with torch.no_grad():
        assert BitAdjacency.from_edge_index(edges, N, found).nnz == edges.size(1) - 3


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_weights_must_be_finite(edges, weight, wrong):
    weight[5] = wrong
    with pytest.raises(ValueError, match=r"edge_weight must be finite, got .* at place 5"):
        BitAdjacency.from_edge_index(edges, N, weight)
    matrix = torch.sparse_coo_tensor(edges[:, 5:6], weight[5:6], (N, N))
    with pytest.raises(ValueError, match="values of a sparse adjacency must be finite"):
        BitAdjacency.from_edge_index(matrix)


def test_a_negative_degree_has_no_root(edges, weight):
    with pytest.raises(ValueError, match=r"root of a negative degree; .* into node \d+ add up to"):
        BitAdjacency.from_edge_index(edges, N, -weight.abs(), normalize="sym")


def test_values_exclude_column_factors_and_have_one_entry_an_edge(edges, weight):
    held = BitAdjacency.from_edge_index(edges, N, weight)
    csr = (held.rowptr, held.indices, N)
    assert torch.equal(BitAdjacency(*csr, values=held.values).to_dense(), held.to_dense())
    with pytest.raises(ValueError, match="must be None beside values"):
        BitAdjacency(*csr, None, torch.ones(N), held.values)
    with pytest.raises(ValueError, match="values must have one dimension of"):
        BitAdjacency(*csr, values=held.values[1:])
    with pytest.raises(TypeError, match=r"values must be a tensor of torch.float32"):
        BitAdjacency(*csr, values=held.values.double())
    assert "values" in repr(held)
    assert held.nbytes == sum(part.nbytes for part in (held.rowptr, held.indices, held.values))


def test_pointers_grow_to_int64():
    assert layouts.pointer_dtype(2**31 - 1) == torch.int32
    assert layouts.pointer_dtype(2**31) == torch.int64
