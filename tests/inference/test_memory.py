"""Memory counts against sizes worked out by hand."""

import pytest

from bitgnn.convert import freeze
from bitgnn.inference import frozen_memory, pyg_memory
from bitgnn.measure.pyg import PyGGCN

N, E = 120, 302


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


def test_pyg(make_model, features):
    model = make_model("fp32", input_norm=False)
    pyg = _pyg_model(model)
    csr = pyg_memory(pyg, features, E, "csr")
    assert csr.weights == 4 * (75 * 40 + 40 + 40 * 5 + 5)
    assert csr.activations == 4 * N * max(80, 40 + 5 + 5)
    assert csr.adjacency == 8 * (N + 1 + E) + 4 * E
    edges = pyg_memory(pyg, features, E, "edge_index")
    assert edges.activations == 4 * (N * 80 + E * 40)
    with pytest.raises(ValueError, match="'edge_index' or 'csr', got 'coo'"):
        pyg_memory(pyg, features, E, "coo")
