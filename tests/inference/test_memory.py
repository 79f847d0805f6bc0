"""Memory counts against sizes worked out by hand and against the tensors themselves."""

import pytest
import torch

from bitgnn.convert import freeze
from bitgnn.inference import frozen_memory, pyg_memory
from bitgnn.measure.memory import peak_allocation
from bitgnn.measure.pyg import PyGGCN
from bitgnn.nn import GraphConv, SAGEConv

N, E = 120, 302
WEIGHT_TABLES = 1000
"""Bytes of weights that kernels of these small products lay out anew, at most."""


def _pyg_model(model):
    """PyG's layers with the weights of a float GCN."""
    pyg = PyGGCN([75, 40, 5])
    pyg.load_state_dict(model.state_dict())
    return pyg


def test_frozen_bin(make_model, graph, features):
    model = freeze(make_model("bin"))
    adjacency = model.prepare_graph(graph, N)
    packed = model.pack_features(features)
    use = frozen_memory(model, packed, adjacency)
    # words 40x3 and 5x2; x_threshold 75, threshold 40, weight_scale 5, bias 5
    assert use.weights == 4 * (40 * 3 + 5 * 2 + 75 + 40 + 5 + 5)
    assert use.features == 4 * 3 * N
    # Hidden words and scores; between them a row of 5 sums and a factor in 8 words.
    assert use.activations == 4 * N * (2 + 5)
    assert use.workspace == 4 * N * 8
    assert use.adjacency == 4 * (N + 1 + adjacency.nnz + N)
    assert use.peak == sum(
        (use.weights, use.features, use.adjacency, use.activations, use.workspace)
    )


@pytest.mark.parametrize("precision", ["full", "bin"])
def test_activations_are_what_the_allocator_hands_out(make_model, graph, features, precision):
    model = freeze(make_model(precision))
    adjacency = model.prepare_graph(graph, N)
    packed = model.pack_features(features)
    model(packed, adjacency)
    use = frozen_memory(model, packed, adjacency)
    counted = use.activations + use.workspace
    found = peak_allocation(lambda: model(packed, adjacency))
    assert counted <= found <= counted + WEIGHT_TABLES


@pytest.mark.parametrize("precision", ["full", "bin"])
@pytest.mark.parametrize("kind", [SAGEConv, GraphConv])
def test_layers_with_a_root_free_their_values(kind, precision, graph, features):
    letters = {"full": ["full"] * 3, "bin": ["FBB+BBB", "BBB+BBB", "BBF+FBF"]}[precision]
    sizes = [75, 160, 160, 32]

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = torch.nn.ModuleList(
                kind(a, b, precision=p) for a, b, p in zip(sizes, sizes[1:], letters, strict=False)
            )

        def forward(self, x, edge_index):
            for conv in self.convs:
                x = conv(x, edge_index)
            return x

    model = freeze(Net(), check=False)
    adjacency = model.prepare_graph(graph, N)
    packed = model.pack_features(features, layout="dense")
    model(packed, adjacency)
    use = frozen_memory(model, packed, adjacency)
    counted = use.activations + use.workspace
    # The product turns a layer's weights round in memory of its own.
    weights = max(buffer.nbytes for buffer in model.buffers())
    assert counted <= peak_allocation(lambda: model(packed, adjacency)) <= counted + weights


def test_pyg(make_model, features):
    model = make_model("fp32", input_norm=False)
    pyg = _pyg_model(model)
    csr = pyg_memory(pyg, features, E, "csr")
    assert csr.weights == 4 * (75 * 40 + 40 + 40 * 5 + 5)
    assert csr.activations == 4 * N * max(80, 40 + 5 + 5)
    edges = pyg_memory(pyg, features, E, "edge_index")
    assert edges.activations == 4 * (N * 80 + E * 40)
    with pytest.raises(ValueError, match="'edge_index' or 'csr', got 'coo'"):
        pyg_memory(pyg, features, E, "coo")


def test_pyg_activations_are_what_the_allocator_hands_out(make_model, graph, features):
    pyg = _pyg_model(make_model("fp32", input_norm=False))

    @torch.inference_mode()
    def forward():
        return pyg(features, graph)

    forward()
    num_edges = pyg.convs[0]._cached_edge_index[0].size(1)
    counted = pyg_memory(pyg, features, num_edges, "edge_index").activations
    # PyG also spreads the edge weights and indices over the features.
    assert peak_allocation(forward) >= 0.98 * counted
