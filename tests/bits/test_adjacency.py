"""BitAdjacency: input forms, PyG's normalisation, self loops, duplicates, factors and errors."""

import numpy as np
import pytest
import scipy.sparse
import torch
from torch.utils import _pytree as pytree
from torch_geometric import EdgeIndex
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, to_dense_adj
from wrong_calls import check_wrong_calls

from bitgnn import BitAdjacency, BitTensor, capture, freeze
from bitgnn.models import GCN
from bitgnn.nn import GCNConv
from bitgnn.ops import bspmm

# Duplicates (0, 1), a self loop on 2 (twice), node 5 isolated, node 4 without edges into it.
GRAPH = torch.tensor([[0, 0, 1, 2, 2, 3, 4, 4], [1, 1, 0, 2, 2, 1, 3, 0]])
NODES = 6
WEIGHT = torch.tensor([0.5, 1.5, 2.0, 0.25, 0.75, 1.0, 3.0, 0.125])


def dense(edge_index, weight=None, num_nodes=NODES):
    """Dense adjacency with destinations as rows."""
    if weight is None:
        weight = torch.ones(edge_index.size(1))
    return to_dense_adj(edge_index, edge_attr=weight, max_num_nodes=num_nodes)[0].t()


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_sym_is_gcn_norm(loops, duplicates, seed):
    edge_index, num_nodes = GRAPH, NODES
    if seed is not None:
        num_nodes = 50
        edge_index = torch.randint(50, (2, 120), generator=torch.Generator().manual_seed(seed))
    if not duplicates:
        edge_index = torch.unique(edge_index, dim=1)
    expected = gcn_norm(edge_index, None, num_nodes, add_self_loops=loops, dtype=torch.float32)
    adjacency = BitAdjacency.from_edge_index(
        edge_index, num_nodes, normalize="sym", add_self_loops=loops
    )
    torch.testing.assert_close(adjacency.to_dense(), dense(*expected, num_nodes))
    assert adjacency.nnz == expected[0].size(1)
    # Factors are PyG's own numbers, not merely near them.
    degree = torch.zeros(num_nodes).index_add_(0, expected[0][1], torch.ones(adjacency.nnz))
    factor = degree.pow(-0.5).masked_fill(degree == 0, 0)
    assert torch.equal(adjacency.row_scale, factor)
    assert torch.equal(adjacency.col_scale, factor)


@pytest.mark.parametrize("loops", [False, True])
def test_sym_with_rank_one_weights_is_gcn_norm(loops):
    # Loops of weight 1 keep rank one, as left[i] / left[i] is 1.
    left = torch.tensor([1.0, 2.0, 0.5, 3.0, 5.0, 6.0])
    loopless = GRAPH[:, GRAPH[0] != GRAPH[1]]
    weight = left[loopless[1]] / left[loopless[0]]
    expected = gcn_norm(loopless, weight, NODES, add_self_loops=loops)
    adjacency = BitAdjacency.from_edge_index(
        loopless, NODES, weight, normalize="sym", add_self_loops=loops
    )
    torch.testing.assert_close(adjacency.to_dense(), dense(*expected))


def test_mean(device):
    adjacency = BitAdjacency.from_edge_index(GRAPH.to(device), NODES, normalize="mean")
    pattern = dense(GRAPH)
    degree = pattern.sum(1, keepdim=True)
    expected = torch.where(degree > 0, pattern / degree, 0)
    torch.testing.assert_close(adjacency.to_dense().cpu(), expected)
    assert adjacency.col_scale is None
    assert adjacency.row_scale[5] == 0


def test_self_loops_are_the_remaining_ones():
    adjacency = BitAdjacency.from_edge_index(GRAPH, NODES, add_self_loops=True)
    expected, _ = add_remaining_self_loops(GRAPH, None, num_nodes=NODES)
    assert torch.equal(adjacency.to_dense(), dense(expected))
    # The last loop's weight is kept, as PyG's indexed assignment does.
    weight = torch.ones(8)
    weight[4] = 7
    adjacency = BitAdjacency.from_edge_index(GRAPH, NODES, weight, add_self_loops=True)
    expected = dense(*add_remaining_self_loops(GRAPH, weight, num_nodes=NODES))
    assert expected[2, 2] == 7
    assert torch.equal(adjacency.to_dense(), expected)


def test_duplicates_count_unless_coalesced():
    assert torch.equal(BitAdjacency.from_edge_index(GRAPH, NODES).to_dense(), dense(GRAPH))
    coalesced = BitAdjacency.from_edge_index(GRAPH, NODES, coalesce=True)
    assert torch.equal(coalesced.to_dense(), (dense(GRAPH) > 0).float())
    assert coalesced.row_scale is None
    ones = torch.ones(8)
    weighted = BitAdjacency.from_edge_index(GRAPH[:, :3], 2, ones[:3], coalesce=True)
    assert weighted.to_dense().tolist() == [[0, 1], [2, 0]]
    source = torch.sparse_coo_tensor(GRAPH.flip(0), ones, (NODES, NODES))  # not coalesced
    adjacency = BitAdjacency.from_edge_index(source)
    assert adjacency.row_scale is None
    assert torch.equal(adjacency.to_dense(), dense(GRAPH))


SCIPY = ["coo_array", "csr_array", "csr_matrix", "lil_array"]
FORMS = pytest.mark.parametrize(
    "form", ["int32", "EdgeIndex", "csr", "csr of int32", "coo", "csc", "SparseTensor", *SCIPY]
)


def in_form(form, matrix):
    """A matrix, destinations as rows, in one of the forms that graphs come in."""
    if form == "SparseTensor":
        reason = "torch_sparse (extra 'sparse') is not installed"
        return pytest.importorskip("torch_sparse", reason=reason).SparseTensor.from_dense(matrix)
    if form in SCIPY:
        return getattr(scipy.sparse, form)(matrix.numpy())
    if form in ("int32", "EdgeIndex"):
        edges = matrix.t().nonzero().t().contiguous()
        return edges.int() if form == "int32" else EdgeIndex(edges, sparse_size=matrix.t().shape)
    if form == "csr of int32":
        csr = matrix.to_sparse_csr()
        parts = csr.crow_indices().int(), csr.col_indices().int(), csr.values()
        return torch.sparse_csr_tensor(*parts, csr.shape)
    return getattr(matrix, f"to_sparse_{form}")()


@FORMS
def test_input_forms(form):
    edge_index = torch.unique(GRAPH, dim=1)
    expected = BitAdjacency.from_edge_index(edge_index, NODES)
    source = in_form(form, dense(edge_index))
    found = BitAdjacency.from_edge_index(source, NODES if form == "int32" else None)
    assert found.shape == (NODES, NODES)
    assert torch.equal(found.rowptr, expected.rowptr)
    assert torch.equal(found.indices, expected.indices)
    assert found.row_scale is None
    assert found.rowptr.dtype == found.indices.dtype == torch.int32
    if form in ("int32", "EdgeIndex"):
        return
    matrix = torch.tensor([[1.0], [2.0], [4.0]]) * torch.tensor([3.0, 0.5])  # weights
    adjacency = BitAdjacency.from_edge_index(in_form(form, matrix))
    assert adjacency.shape == (3, 2)
    torch.testing.assert_close(adjacency.to_dense(), matrix)


def test_matrices_of_scipy_in_and_out():
    edge_index, weight = torch.tensor([[0, 1, 1, 1], [2, 0, 0, 2]]), torch.ones(4)
    for normalize in (None, "sym"):
        held = BitAdjacency.from_edge_index(edge_index, 3, weight, normalize=normalize)
        matrix = held.to_scipy()
        assert matrix.nnz == 4  # duplicates stay apart
        assert torch.equal(torch.from_numpy(matrix.toarray()), held.to_dense())
    integers = BitAdjacency.from_edge_index(scipy.sparse.csr_array(np.eye(3, dtype=np.int8)))
    assert integers.row_scale is None
    for wrong, error, message in (
        (scipy.sparse.csr_array(np.eye(3) * 1j), TypeError, "must hold real numbers, got complex"),
        (scipy.sparse.coo_array(np.ones(3)), ValueError, r"must be a matrix, got \[3\]"),
        (np.eye(3), TypeError, "SparseTensor or a sparse matrix of scipy, got"),
    ):
        with pytest.raises(error, match=message):
            BitAdjacency.from_edge_index(wrong)
    with pytest.raises(ValueError, match="num_nodes must be None or"):
        BitAdjacency.from_edge_index(matrix, 4)


def test_bipartite_and_inferred_sizes():
    edge_index = torch.tensor([[0, 4, 2], [1, 0, 1]])
    adjacency = BitAdjacency.from_edge_index(edge_index, (2, 7), normalize="mean")
    assert adjacency.shape == (2, 7)
    assert adjacency.rowptr.tolist() == [0, 1, 3]
    assert adjacency.indices.tolist() == [4, 0, 2]
    assert adjacency.row_scale.tolist() == [1.0, 0.5]
    assert BitAdjacency.from_edge_index(edge_index).shape == (5, 5)
    source = EdgeIndex(edge_index.contiguous(), sparse_size=(7, 2))
    assert BitAdjacency.from_edge_index(source).shape == (2, 7)
    assert BitAdjacency.from_edge_index(torch.zeros(2, 0, dtype=torch.long)).shape == (0, 0)


def test_exports(device):
    adjacency = BitAdjacency.from_edge_index(
        GRAPH.to(device), NODES, normalize="sym", add_self_loops=True
    )
    expected = adjacency.to_dense()
    torch.testing.assert_close(adjacency.to_torch_csr() @ torch.eye(NODES, device=device), expected)
    edge_index = adjacency.to_edge_index()
    again = BitAdjacency.from_edge_index(edge_index, NODES, normalize="sym")
    assert torch.equal(again.to_dense(), expected)
    parts = (adjacency.rowptr, adjacency.indices, adjacency.row_scale, adjacency.col_scale)
    assert adjacency.nbytes == sum(part.nbytes for part in parts)
    assert adjacency.device.type == device.type
    assert torch.equal(adjacency.to("cpu").to_dense(), expected.cpu())
    leaves, spec = pytree.tree_flatten(adjacency)
    assert torch.equal(pytree.tree_unflatten(leaves, spec).to_dense(), expected)
    assert repr(adjacency).startswith("BitAdjacency(6 x 6, nnz=12, factors=row_scale+col_scale")


POINTER, INDICES = torch.tensor([0, 1, 3]), torch.tensor([0, 2, 1], dtype=torch.int32)
EYE, ONES = torch.eye(3).to_sparse_coo(), torch.ones(3)
make = BitAdjacency.from_edge_index
WRONG = r"""
BitAdjacency(POINTER.float(), INDICES, 3)
    -> TypeError: BitAdjacency: rowptr must be a tensor of torch.int32 or
BitAdjacency(POINTER, INDICES.long(), 3) -> TypeError: indices must be .*int32, got torch.int64
BitAdjacency(POINTER[:0], INDICES, 3) -> ValueError: rowptr must have shape \[M \+ 1\]
BitAdjacency(POINTER + 1, INDICES, 3) -> ValueError: rowptr must start at 0, got 1
BitAdjacency(POINTER[:2], INDICES, 3)
    -> ValueError: rowptr must end at the number of edges 3, got 1
BitAdjacency(torch.tensor([0, 4, 3]), INDICES, 3) -> ValueError: rowptr must never fall
BitAdjacency(POINTER, INDICES, 2)
    -> ValueError: indices must lie in \[0, 2\).*smallest 0, largest 2
BitAdjacency(POINTER, -INDICES, 3)
    -> ValueError: indices must lie .* got smallest -2, largest 0
BitAdjacency(POINTER, INDICES, 3, ONES) -> ValueError: row_scale must .* of 2, got shape \[3\]
BitAdjacency(POINTER, INDICES, 3, None, ONES[:2]) -> ValueError: col_scale must .* of 3
BitAdjacency(POINTER, INDICES, 3, ONES[:2].half()) -> TypeError: row_scale must be .*float32
BitAdjacency(POINTER, INDICES.to("meta"), 3)
    -> ValueError: BitAdjacency: indices must be on cpu like rowptr
make([[0], [1]]) -> TypeError: from_edge_index: edge_index must be a tensor, .* got list
make(GRAPH.float()) -> TypeError: edge_index must be int64 or int32, got torch.float32
make(GRAPH.t()) -> ValueError: edge_index must have shape \[2, E\], got \[8, 2\]
make(GRAPH, 4) -> ValueError: edge_index\[0\] .*num_nodes \(sources\) 4, .*largest 4
make(GRAPH, (2, 6)) -> ValueError: edge_index\[1\] .*\(destinations\) 2, .*largest 3
make(GRAPH - 1, 6) -> ValueError: smallest -1, largest 3
make(GRAPH, -1) -> ValueError: num_nodes must lie in
make(GRAPH, 6, WEIGHT[:3]) -> ValueError: edge_weight must have shape \[8\].*got \[3\]
make(GRAPH, 6, WEIGHT.int()) -> TypeError: edge_weight must be a float tensor
make(GRAPH, 6, WEIGHT.to("meta")) -> ValueError: edge_weight must be on cpu, got meta
make(GRAPH, 6, None, "both") -> ValueError: normalize must be None, 'sym' or 'mean', got
make(GRAPH, (5, 6), None, "sym") -> ValueError: as many sources as destinations, got 6 and 5
make(GRAPH, (5, 6), None, None, True) -> ValueError: as many sources as destinations
make(EYE, None, ONES) -> ValueError: edge_weight must be None with a sparse
make(EYE, 4) -> ValueError: num_nodes must be None or \(3, 3\).*got 4
make(torch.ones(2, 2, 2).to_sparse_coo()) -> ValueError: must be a matrix
"""


def test_wrong_calls():
    check_wrong_calls(WRONG, globals())


def test_transposed_pattern_is_left_out_of_graphs(monkeypatch):
    adjacency = BitAdjacency.from_edge_index(GRAPH, NODES)
    expected = adjacency.transposed()
    compiled = torch.compile(lambda pattern: pattern.transposed()[1] + 1, backend="eager")
    assert torch.equal(compiled(adjacency), expected[1] + 1)
    monkeypatch.setattr(
        torch.compiler, "is_compiling", lambda: True
    )  # as while a model is exported
    assert all(map(torch.equal, adjacency.transposed(), expected))


WRITES = {
    "written": lambda a: a.indices.fill_(2**30),
    "replaced": lambda a: setattr(a, "indices", torch.full_like(a.indices, -1)),
    "fallen": lambda a: a.rowptr[1].fill_(2**20),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_patterns_that_were_damaged_later_reach_no_kernel(write, device):
    x, edges = torch.randn(NODES, 40, device=device), GRAPH.to(device)
    frozen = freeze(GCN(40, 16, 5, precision="bin").eval()).to(device)
    layer = GCNConv(40, 8).to(device)
    message = "indices must lie in|rowptr must"
    for use in (
        lambda a: bspmm.bbf(BitTensor.from_float(x), a),
        lambda a: bspmm.fbf(x, a),
        lambda a: frozen(x, a),
        lambda a: layer(x, a),
    ):
        adjacency = frozen.prepare_graph(edges, NODES)
        for _ in range(3):  # the third call of a model is recorded
            use(adjacency)
        write(adjacency)
        with pytest.raises(ValueError, match=message):
            use(adjacency)
    run = capture(frozen, x, adjacency := frozen.prepare_graph(edges, NODES))
    run()
    write(adjacency)
    with pytest.raises(ValueError, match=message):
        run()
