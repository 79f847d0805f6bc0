"""Sparse matrices as graphs: torch CSR, CSC and COO, and torch_sparse's SparseTensor, as in PyG."""

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor
from torch_geometric.utils import (
    to_edge_index,
    to_torch_coo_tensor,
    to_torch_csc_tensor,
    to_torch_csr_tensor,
)

from bitgnn import BitAdjacency
from bitgnn.nn import GCNConv, GraphConv, SAGEConv
from bitgnn.nn.adjacencies import gcn_adjacency

N, IN, OUT = 30, 40, 12
needs_torch_sparse = pytest.mark.skipif(not WITH_TORCH_SPARSE, reason="torch_sparse is missing")


def _torch_sparse(edges, weight=None, size=(N, N)):
    return SparseTensor.from_edge_index(edges, weight, size)


FORMS = [
    pytest.param(lambda e, w=None: to_torch_csr_tensor(e, w, size=N), id="csr"),
    pytest.param(lambda e, w=None: to_torch_csc_tensor(e, w, size=N), id="csc"),
    pytest.param(lambda e, w=None: to_torch_coo_tensor(e, w, size=N), id="coo"),
    pytest.param(_torch_sparse, id="SparseTensor", marks=needs_torch_sparse),
]


def _dense(normalized):
    """The matrix that PyG's normalisation makes of a sparse form, rows being destinations."""
    matrix = normalized[0] if isinstance(normalized, tuple) else normalized
    index, weight = to_edge_index(matrix)
    return torch.zeros(N, N).index_put_((index[0], index[1]), weight, accumulate=True)


@pytest.mark.parametrize("improved", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_gcn_normalises_every_form_as_pyg_does(graph, form, weighted, improved):
    # With loops and, where the form can hold them apart, double edges.
    edges = torch.unique(graph, dim=1)
    r = torch.rand(N) + 0.5
    weight = r[edges[1]] if weighted else None
    matrix = form(edges.flip(0), weight)
    if isinstance(matrix, torch.Tensor) and matrix.layout == torch.sparse_csc:
        with pytest.raises(NotImplementedError):
            gcn_norm(matrix, None, N)
        expected = _dense(gcn_norm(matrix.to_sparse_csr(), None, N, improved))
    else:
        expected = _dense(gcn_norm(matrix, None, N, improved))
    found = gcn_adjacency(matrix, N, improved=improved)
    assert torch.allclose(found.to_dense(), expected, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("precision", ["fp32", "full", "bin", "FBF+FBF", "FBB+BBF", "FBF+FFF"])
@pytest.mark.parametrize("layer", [GCNConv, SAGEConv, GraphConv])
def test_layers_take_every_form(simple, x, layer, precision, form):
    torch.manual_seed(0)  # statistics of training move on from call to call, some signs with them
    conv = layer(IN, OUT, precision=precision)
    matrix = form(simple.flip(0))
    is_csc = isinstance(matrix, torch.Tensor) and matrix.layout == torch.sparse_csc
    if precision in ("fp32", "FBF+FFF") and layer is GCNConv and is_csc:
        with pytest.raises(NotImplementedError, match="CSC"):  # PyG's own gcn_norm says so.
            conv(x, matrix)
        return
    expected = conv(x, simple)
    assert torch.allclose(conv(x, matrix), expected, atol=1e-5)
    index = EdgeIndex(simple.contiguous(), sparse_size=(N, N))
    assert torch.allclose(conv(x, index), expected, atol=1e-5)
    if precision != "FBF+FFF":
        options = {GCNConv: {"normalize": "sym", "add_self_loops": True}}
        options[SAGEConv] = {"normalize": "mean"}
        ready = BitAdjacency.from_edge_index(simple, N, **options.get(layer, {}))
        assert torch.allclose(conv(x, ready), expected, atol=1e-5)


def test_forms_do_not_depend_on_the_first_layer_of_a_class(simple, x):
    class Fresh(GraphConv):
        """A class of which no object was made before."""

    Fresh(IN, OUT, precision="fp32", aggr="softmax")  # which cannot fuse
    conv = Fresh(IN, OUT, precision="fp32")
    matrix = to_torch_csr_tensor(simple.flip(0), size=N)
    assert torch.allclose(conv(x, matrix), conv(x, simple), atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loops", [False, True])
def test_csr_of_int32_is_normalised_as_it_is(loops, weighted):
    edges = torch.unique(
        torch.randint(N, (2, 200), generator=torch.Generator().manual_seed(0)), dim=1
    )
    edges = edges if loops else edges[:, edges[0] != edges[1]]
    weight = torch.rand(edges.size(1)) if weighted else None
    expected = gcn_adjacency(to_torch_coo_tensor(edges, weight, size=N), N)
    csr = to_torch_csr_tensor(edges, weight, size=N)
    parts = csr.crow_indices().int(), csr.col_indices().int(), csr.values()
    for form in (csr, torch.sparse_csr_tensor(*parts, (N, N))):
        found = gcn_adjacency(form, N)
        for one, other in zip(found.tensors, expected.tensors, strict=True):
            assert (one is None) == (other is None)
            assert one is None or torch.equal(one, other)
