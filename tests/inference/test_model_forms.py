"""Models of PyG, of the package and of the user freeze into what they decide."""

import pytest
import torch
import torch_geometric.nn
from chains import CLASSES, FEATURES, HIDDEN, Chain, N, assert_frozen_equals, shake

from bitgnn import BitTensor, models
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
    assert frozen.letters[0] == "FIB+BBF"  # a batch norm stands behind it


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
    if kind is not models.GCN or options.get("inductive"):
        # Rows are standardised in front of a sign, which is one step of packing.
        kinds = [step.kind for step in frozen.program.calls]
        assert kinds[0] == "pack_standardized"
        assert "standardize" not in kinds
        assert frozen.program.entry == 1
        assert isinstance(frozen.pack_features(x, layout="dense"), BitTensor)


def test_relu_between_standardised_layers_is_part_of_their_packing():
    torch.manual_seed(2)
    trained = models.GraphSAGE(FEATURES, 40, 7, precision="full", dropout=0.5).eval()
    steps = freeze(trained).program.calls
    packing = [step for step in steps if step.kind == "pack_standardized"]
    assert [step.named["relu"] for step in packing] == [False, True]
    assert "relu" not in [step.kind for step in steps]


def test_graphs_of_other_models_are_refused(x, edges):
    chain = freeze(Chain("gcn", ["full", "full"]), check=False)
    mixed = freeze(Chain("gcn", ["full", "FBF+FFF"]), check=False)
    graph, both = chain.prepare_graph(edges, N), mixed.prepare_graph(edges, N)
    assert both.to("cpu").nnz == graph.nnz
    assert both.nbytes > graph.nbytes
    for model, features, held, message in (
        (mixed, x, graph, "must come from prepare_graph, a BitAdjacency is not all"),
        (chain, x, both, "was prepared for another model"),
        (mixed, x, None, "must be a graph, got None"),
        (mixed, x[:-1], both, "adjacency has 90 nodes, x has 89"),
        (chain, x.to("meta"), graph, "x must be on cpu, got meta"),
    ):
        with pytest.raises(ValueError, match=message):
            model(features, held)
    sage = freeze(Chain("sage", ["full"]), check=False)
    with pytest.raises(ValueError, match="edge_weight must be None"):
        sage.prepare_graph(edges, N, torch.ones(edges.size(1)))
