"""Models of PyG, of the package and of the user freeze into what they decide."""

import pytest
import torch
import torch_geometric.nn
from chains import CLASSES, FEATURES, HIDDEN, Chain, N, assert_frozen_equals, shake

from bitgnn import models
from bitgnn.convert import GraphConfig, binarize, freeze
from bitgnn.inference import load, save


@pytest.mark.parametrize("jk", [None, "cat", "max", "last"])
@pytest.mark.parametrize("name", ["GCN", "GraphSAGE"])
def test_models_of_pyg(name, jk, x, edges, tmp_path):
    torch.manual_seed(0)
    model = getattr(torch_geometric.nn.models, name)(
        FEATURES, HIDDEN, 3, CLASSES, dropout=0.2, act="hardtanh", norm="batch_norm", jk=jk
    )
    binary = shake(binarize(model, GraphConfig("bin")), x, edges)
    frozen = assert_frozen_equals(binary, x, edges)
    copied = load(save(frozen, tmp_path))
    assert torch.equal(copied(x, edges), frozen(x, edges))
    assert frozen.letters[0] == "FBB+BBF"  # a batch norm stands behind it


@pytest.mark.parametrize("precision", ["full", "bin"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (models.GCN, {}),
        (models.GCN, {"num_layers": 3, "output_norm": "batch", "hidden_norm": "batch"}),
        (models.GCN, {"inductive": True}),
        (models.GraphSAGE, {}),
        (models.GraphSAGE, {"num_layers": 3, "output_norm": "batch"}),
        (models.GraphSAINT, {}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_models_of_the_package(kind, options, precision, x, edges, tmp_path):
    torch.manual_seed(0)
    model = kind(FEATURES, HIDDEN, CLASSES, precision=precision, dropout=0.3, **options)
    frozen = assert_frozen_equals(shake(model, x, edges), x, edges)
    read = load(save(frozen, tmp_path))
    assert torch.equal(read(x, edges), frozen(x, edges))


def test_graphs_of_other_models_are_refused(x, edges):
    chain = freeze(Chain("gcn", ["full", "full"]), check=False)
    mixed = freeze(Chain("gcn", ["full", "FBF+FFF"]), check=False)
    graph, both = chain.prepare_graph(edges, N), mixed.prepare_graph(edges, N)
    assert both.to("cpu").nnz == graph.nnz
    assert both.nbytes > graph.nbytes
    with pytest.raises(ValueError, match="must come from prepare_graph, a BitAdjacency is not all"):
        mixed(x, graph)
    with pytest.raises(ValueError, match="was prepared for another model"):
        chain(x, both)
    with pytest.raises(ValueError, match="must be a graph, got None"):
        mixed(x)
    with pytest.raises(ValueError, match="adjacency has 90 nodes, x has 89"):
        mixed(x[:-1], both)
    with pytest.raises(ValueError, match="x must be on cpu, got meta"):
        chain(x.to("meta"), graph)
    sage = freeze(Chain("sage", ["full"]), check=False)
    with pytest.raises(ValueError, match="edge_weight must be None"):
        sage.prepare_graph(edges, N, torch.ones(edges.size(1)))
