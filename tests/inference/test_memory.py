"""Memory of forwards: counts agree with sizes worked out by hand and with the allocator's."""

import json

import pytest
import torch
import torch_geometric.nn
from torch_geometric.data import Data

from bitgnn import BitAdjacency, models
from bitgnn.convert import freeze
from bitgnn.inference import frozen_memory, memory_report, pyg_memory
from bitgnn.inference.fusions.products import is_wide, row_order_of
from bitgnn.measure.pyg import PyGGCN

N, FEATURES, CLASSES = 6000, 300, 7
SMALL = 20_000
"""Bytes that the allocator rounds up to, and that small results take beside the large ones."""


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


def _pair(nodes, features, edges, device):
    """Features and edges without loops."""
    generator = torch.Generator().manual_seed(0)
    sources = torch.randint(nodes, (edges,), generator=generator)
    destinations = (sources + torch.randint(1, nodes, (edges,), generator=generator)) % nodes
    x = torch.randn(nodes, features, generator=generator)
    return x.to(device), torch.stack([sources, destinations]).to(device)


def assert_agrees(report):
    """What is counted is what the allocator hands out."""
    predicted, measured = report.predicted, report.measured
    forward = predicted.activations + predicted.workspace
    assert forward == pytest.approx(measured.forward, rel=0.03, abs=SMALL)


@pytest.mark.parametrize("features", ["floats", "packed"])
@pytest.mark.parametrize("precision", ["bin", "full"])
@pytest.mark.parametrize("kind", ["GCN", "GraphSAGE", "GraphSAINT"])
def test_models(kind, precision, features, device, data):
    report = memory_report(
        _frozen(kind, precision, device), data.clone().to(device), features=features
    )
    assert_agrees(report)
    predicted, measured = report.predicted, report.measured
    assert (predicted.weights, predicted.features) == (measured.weights, measured.features)
    assert predicted.adjacency == pytest.approx(measured.adjacency, rel=0.001)
    assert abs(report.difference) < 3
    assert (report.features, report.num_nodes) == (features, N)


@pytest.mark.parametrize(
    ("kind", "features", "hidden", "classes", "nodes", "edges"),
    [
        # Sums of many short rows are counts of a byte in front of the product that joins them on a
        # GPU, those of wider or denser ones are not.
        *(
            (kind, features, 128, CLASSES, 33_000, edges)
            for kind in ("GraphSAGE", "GraphSAINT")
            for features, edges in ((256, 300_000), (300, 300_000), (256, 700_000))
        ),
        # Products of more than 48 columns are narrow integers on a GPU where they have 1023
        # features at most and the graph 16 edges a node, one of them the node's own loop.
        ("GCN", FEATURES, 64, 48, N, 0),
        ("GCN", FEATURES, 64, 49, N, 15 * N - 1),
        *(("GCN", FEATURES, hidden, 49, N, 15 * N) for hidden in (64, 1023, 1024)),
    ],
)
def test_limits_of_short_rows_and_narrow_products(
    kind, features, hidden, classes, nodes, edges, device
):
    frozen = _frozen(kind, "bin", device, hidden, classes, features)
    assert_agrees(memory_report(frozen, _pair(nodes, features, edges, device)))


@pytest.mark.parametrize("output", ["classes", "softmax"])
@pytest.mark.parametrize("classes", [7, 200])
def test_heads(classes, output, device, data):
    frozen = _frozen("GCN", "bin", device, 32, classes, output=output)
    assert_agrees(memory_report(frozen, data.clone().to(device)))


@pytest.mark.parametrize("layout", ["csr", "sliced"])
def test_layouts(layout, device):
    x, edge_index = _pair(N, FEATURES, 50 * N, device)
    torch.manual_seed(0)
    model = models.GCN(FEATURES, 96, CLASSES, precision="TBF+TBB, BBF+TBF")
    with torch.no_grad():
        model(x.cpu(), edge_index.cpu())  # starts the scales of ternary values
    frozen = freeze(model.eval()).to(device)
    assert_agrees(memory_report(frozen, (x, frozen.prepare_graph(edge_index, N, layout=layout))))


def test_table_and_json(data):
    report = memory_report(_frozen("GCN", "full", "cpu"), data)
    lines = str(report).splitlines()
    assert lines[0] == f"FrozenModel on cpu, {N} nodes, features as floats"
    assert [line.split()[0] for line in lines[2:]] == [
        "weights", "features", "adjacency", "activations", "workspace", "forward,", "peak",
    ]  # fmt: skip
    assert lines[3].split()[1:5] == ["6.87", "MiB", "6.87", "MiB"]
    assert lines[-1].endswith("%")
    entry = json.loads(json.dumps(report.to_dict()))
    assert entry["measured"]["peak"] == report.measured.peak
    assert entry["predicted"]["peak"] == report.predicted.peak
    assert entry["difference_percent"] == report.difference
    pyg = memory_report(torch_geometric.nn.GCN(FEATURES, 64, 2, CLASSES), data)
    assert len(str(pyg).splitlines()) == 7


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


@pytest.mark.cuda
def test_order_of_many_edges_is_counted():
    torch.manual_seed(0)
    edge_index = torch.randint(20_000, (2, 9_000_000), device="cuda")
    x = torch.randn(20_000, 64, device="cuda")
    model = models.GCN(64, 40, 7, precision="full").cuda().eval()
    assert_agrees(memory_report(freeze(model), (x, edge_index)))


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


@pytest.mark.parametrize(
    ("columns", "size", "often", "expected"),
    [
        (48, 2000, False, False),
        (49, 64, False, True),
        (49, 1023, True, False),
        (49, 1024, True, True),
    ],
)
def test_rows_that_are_wide(columns, size, often, expected):
    assert is_wide(columns, size, often) == expected


NODES, EDGES = 120, 302


def test_frozen_bin(make_model, graph, features):
    model = freeze(make_model("bin"))
    adjacency = model.prepare_graph(graph, NODES)
    packed = model.pack_features(features)
    use = frozen_memory(model, packed, adjacency)
    # words 40x3 and 5x2; x_threshold 75, threshold 40, weight_scale 5, bias 5
    assert use.weights == 4 * (40 * 3 + 5 * 2 + 75 + 40 + 5 + 5)
    assert use.features == 4 * 3 * NODES
    # Hidden words and scores; between them a row of 5 sums and a factor in 8 words.
    assert use.activations == 4 * NODES * (2 + 5)
    assert use.workspace == 4 * NODES * 8
    assert use.adjacency == 4 * (NODES + 1 + adjacency.nnz + NODES)
    assert use.peak == sum(
        (use.weights, use.features, use.adjacency, use.activations, use.workspace)
    )


def test_pyg(make_model, features):
    model = make_model("fp32", input_norm=False)
    pyg = PyGGCN([75, 40, 5])
    pyg.load_state_dict(model.state_dict())
    csr = pyg_memory(pyg, features, EDGES, "csr")
    assert csr.weights == 4 * (75 * 40 + 40 + 40 * 5 + 5)
    assert csr.activations == 4 * NODES * max(80, 40 + 5 + 5)
    assert csr.adjacency == 8 * (NODES + 1 + EDGES) + 4 * EDGES
    edges = pyg_memory(pyg, features, EDGES, "edge_index")
    assert edges.activations == 4 * (NODES * 80 + EDGES * 40)
    with pytest.raises(ValueError, match="'edge_index' or 'csr', got 'coo'"):
        pyg_memory(pyg, features, EDGES, "coo")
