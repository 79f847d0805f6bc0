"""Memory of forwards: measured bytes are the sizes worked out by hand."""

import json

import pytest
import torch
import torch_geometric.nn
from torch_geometric.data import Data

from bitgnn import BitAdjacency, models
from bitgnn.convert import freeze
from bitgnn.inference import measured_memory, memory_report
from bitgnn.inference.layouts import row_order_of
from bitgnn.measure.memory import stored_bytes

N, FEATURES, CLASSES = 6000, 300, 7


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    # Enough edges for the copies and orders of rows that kernels make on dense graphs.
    edge_index = torch.randint(N, (2, 300_000), generator=generator)
    return Data(x=torch.randn(N, FEATURES, generator=generator), edge_index=edge_index)


def _frozen(kind, precision, device, hidden=160, classes=CLASSES, features=FEATURES, **options):
    torch.manual_seed(0)
    model = getattr(models, kind)(features, hidden, classes, precision=precision)
    return freeze(model.to(device).eval(), **options)


@pytest.mark.parametrize("features", ["floats", "packed"])
@pytest.mark.parametrize("precision", ["bin", "full"])
@pytest.mark.parametrize("kind", ["GCN", "GraphSAGE", "GraphSAINT"])
def test_models(kind, precision, features, device, data):
    frozen = _frozen(kind, precision, device)
    x, edge_index = data.x.to(device), data.edge_index.to(device)
    report = memory_report(frozen, Data(x=x, edge_index=edge_index), features=features)
    found = report.measured
    given = x if features == "floats" else frozen.pack_features(x)
    assert found.features == stored_bytes(given) == given.nbytes
    assert found.weights == stored_bytes(list(frozen.buffers()), frozen.copies)
    graph = frozen.prepare_graph(edge_index, N)
    frozen(given, graph)  # makes the layouts and orders that it reads
    assert found.adjacency == stored_bytes(graph)
    hidden = 4 * N * (160 if precision == "full" else 160 // 32)
    assert found.forward > hidden + 4 * N * CLASSES
    assert found.peak == found.weights + found.features + found.adjacency + found.forward
    assert (report.features, report.num_nodes) == (features, N)


def test_table_and_json(data):
    report = memory_report(_frozen("GCN", "full", "cpu"), data)
    lines = str(report).splitlines()
    assert lines[0] == f"FrozenModel on cpu, {N} nodes, features as floats"
    assert [line.split()[0] for line in lines[1:]] == [
        "weights", "features", "adjacency", "forward", "peak",
    ]  # fmt: skip
    assert lines[2].split()[1:] == ["6.87", "MiB"]
    entry = json.loads(json.dumps(report.to_dict()))
    assert entry["measured"]["peak"] == report.measured.peak
    pyg = memory_report(torch_geometric.nn.GCN(FEATURES, 64, 2, CLASSES), data)
    assert pyg.measured.forward > report.measured.forward
    assert pyg.measured.adjacency == data.edge_index.nbytes  # PyG's layers keep nothing here
    assert len(str(pyg).splitlines()) == 6


def test_refusals(data):
    frozen = _frozen("GCN", "bin", "cpu")
    pyg = torch_geometric.nn.GCN(FEATURES, 8, 2)
    packed = frozen.pack_features(data.x), data.edge_index
    for error, message, arguments, options in (
        (TypeError, "model must be a module, got function", (freeze, data), {}),
        (TypeError, r"data must be a Data with x, or a pair .*, got int", (frozen, 3), {}),
        (ValueError, r"None or one of \['floats', 'packed'\], got 'bits'", (frozen, data), "bits"),
        (ValueError, "must be given as floats, got packed ones", (frozen, packed), "floats"),
        (ValueError, "packed features need a frozen model", (pyg, data), "packed"),
    ):
        with pytest.raises(error, match=message):
            memory_report(*arguments, features=options or None)


# Batches of sampled neighbours have many rows of hardly more than one edge: an order each would
# take longer than it saves.
@pytest.mark.parametrize(
    ("rows", "degree", "is_ordered"),
    [(1 << 15, 4, True), (1 << 15, 3, False), ((1 << 15) - 1, 9, False), (100, 90_000, True)],
)
def test_graphs_that_are_ordered(rows, degree, is_ordered):
    rowptr = torch.arange(rows + 1) * degree
    adjacency = BitAdjacency(rowptr, torch.zeros(rows * degree, dtype=torch.int32), rows)
    assert (row_order_of(adjacency) is not None) == is_ordered


def test_bytes_of_a_frozen_model_worked_out_by_hand(make_model, graph, features):
    nodes = 120
    model = freeze(make_model("bin"))
    adjacency = model.prepare_graph(graph, nodes)
    use = measured_memory(model, model.pack_features(features), adjacency)
    # words 40x3 and 5x2; x_threshold 75, threshold 40, weight_scale 5, bias 5
    assert use.weights == 4 * (40 * 3 + 5 * 2 + 75 + 40 + 5 + 5)
    assert use.features == 4 * 3 * nodes
    # Hidden words and scores; between them a row of 5 sums and a factor in 8 words.
    assert use.forward == 4 * nodes * (2 + 5 + 8)
    csr = 4 * (nodes + 1 + adjacency.nnz + nodes)
    assert csr <= use.adjacency == stored_bytes(adjacency) < csr + 64
    assert not model.training
