"""Writes that no version of a tensor counts: frozen models read graph and weights as they are."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional

import bitgnn
from bitgnn import freeze
from bitgnn.models import GCN, GraphSAGE
from bitgnn.ops import bspmm

WRITES = {
    "numpy": lambda held: held.detach().numpy(),
    "data": lambda held: held.data,
    "dlpack": lambda held: torch.from_dlpack(held.detach()),
}
each_write = pytest.mark.parametrize("write", WRITES)


class Looped(nn.Module):
    """A forward that no trace follows, of layers with an edge weight."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.GraphConv(75, 16), pyg.GraphConv(16, 5)])

    def forward(self, x, edge_index, edge_weight):
        for conv in self.convs:
            x = functional.elu(conv(x, edge_index, edge_weight))
            if bool((x > 1e9).any()):
                x = x * 0
        return x


def check_follows(run, x, *graph, write):
    """Results are those of the graph's values at every call."""
    for held in graph:
        for _ in range(3):
            before = run(x, *graph)
        WRITES[write](held)[..., :40] = 0
        for _ in range(3):
            after = run(x, *graph)
            assert torch.equal(after, run(x, *(part.clone() for part in graph)))
        assert not torch.equal(after, before)


@each_write
@pytest.mark.parametrize("precision", ["bin", "full"])
def test_graphs_of_models(write, precision, graph, features):
    model = GCN(75, 16, 5, precision=precision).eval()
    frozen = freeze(model)
    check_follows(frozen, features, graph.clone(), write=write)


@each_write
def test_graphs_of_layers_in_the_users_own_forward(write, graph, features):
    weight = torch.ones(graph.size(1))
    model = bitgnn.binarize(Looped(), example=(features, graph, weight)).eval()
    frozen = freeze(model)
    assert frozen.kind == "layers"
    check_follows(frozen, features, graph.clone(), weight, write=write)


@each_write
@pytest.mark.parametrize("precision", ["bin", "full"])
def test_weights_that_others_are_derived_from(write, precision, graph, features):
    frozen = freeze(GraphSAGE(75, 64, 5, precision=precision).eval())
    adjacency = frozen.prepare_graph(graph, len(features))
    for x in (features, frozen.pack_features(features)):
        for name in frozen.state_dict():
            for _ in range(3):
                frozen(x, adjacency)
            held = WRITES[write](frozen.get_buffer(name))
            held[:] = held[::-1].copy() if write == "numpy" else held.flip(0)
            fresh = freeze(GraphSAGE(75, 64, 5, precision=precision).eval())
            fresh.load_state_dict(frozen.state_dict())
            assert torch.equal(frozen(x, adjacency), fresh(x, adjacency)), name


@each_write
def test_float_matrices_are_looked_at_again(write):
    matrix = torch.eye(6).to_sparse_csr()
    bits = bitgnn.BitTensor.from_float(torch.randn(6, 9))
    for _ in range(2):
        bspmm.bff(bits, matrix)
    WRITES[write](matrix.col_indices())[2] = 7
    with pytest.raises(ValueError, match="column indices in"):
        bspmm.bff(bits, matrix)
