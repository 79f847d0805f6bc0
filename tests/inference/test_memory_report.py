"""Memory of forwards: what is counted agrees with what the allocator hands out."""

import json

import pytest
import torch
import torch_geometric.nn
from torch_geometric.data import Data

from bitgnn import models
from bitgnn.convert import freeze
from bitgnn.inference import memory_report

N, FEATURES, CLASSES = 6000, 300, 7
SMALL = 20_000
"""Bytes that the allocator rounds up to, and that small results take beside the large ones."""


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    # Enough edges for the copies and orders of rows that kernels make on dense graphs.
    edge_index = torch.randint(N, (2, 300_000), generator=generator)
    return Data(x=torch.randn(N, FEATURES, generator=generator), edge_index=edge_index)


def _frozen(kind, precision, device, hidden=160, classes=CLASSES, **options):
    torch.manual_seed(0)
    model = getattr(models, kind)(FEATURES, hidden, classes, precision=precision)
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


# Sums of many short rows are counts of a byte in front of the product that joins them on a GPU,
# those of wider or denser ones are not.
@pytest.mark.parametrize(("features", "edges"), [(256, 300_000), (300, 300_000), (256, 700_000)])
@pytest.mark.parametrize("kind", ["GraphSAGE", "GraphSAINT"])
def test_many_rows_of_few_neighbours(kind, features, edges, device):
    torch.manual_seed(0)
    model = getattr(models, kind)(features, 128, CLASSES, precision="bin").to(device).eval()
    assert_agrees(memory_report(freeze(model), _pair(33_000, features, edges, device)))


# Products of more than 48 columns are narrow integers on a GPU where they have 1023 features at
# most and the graph 16 edges a node, one of them the node's own loop.
@pytest.mark.parametrize(
    ("classes", "hidden", "edges"),
    [(48, 64, 0), (49, 64, 15 * N - 1), (49, 64, 15 * N), (49, 1023, 15 * N), (49, 1024, 15 * N)],
)
def test_limits_of_narrow_products(classes, hidden, edges, device):
    frozen = _frozen("GCN", "bin", device, hidden, classes)
    assert_agrees(memory_report(frozen, _pair(N, FEATURES, edges, device)))


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
    with pytest.raises(TypeError, match="model must be a module, got function"):
        memory_report(freeze, data)
    with pytest.raises(TypeError, match=r"data must be a Data with x, or a pair .*, got int"):
        memory_report(frozen, 3)
    with pytest.raises(ValueError, match=r"None or one of \['floats', 'packed'\], got 'bits'"):
        memory_report(frozen, data, features="bits")
    with pytest.raises(ValueError, match="must be given as floats, got packed ones"):
        memory_report(frozen, (frozen.pack_features(data.x), data.edge_index), features="floats")
    with pytest.raises(ValueError, match="packed features need a frozen model"):
        memory_report(torch_geometric.nn.GCN(FEATURES, 8, 2), data, features="packed")
