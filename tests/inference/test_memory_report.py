"""Memory of forwards: what is counted agrees with what the allocator hands out."""

import json

import pytest
import torch
import torch_geometric.nn
from torch import nn
from torch_geometric.data import Data

import bitgnn
from bitgnn import memory_report, models
from bitgnn.convert import freeze
from bitgnn.nn import GCNConv

N, FEATURES, CLASSES = 6000, 300, 7
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.cuda,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
        ],
    ),
]
SMALL = 20_000
"""Bytes that the allocator rounds up to, and that small results take beside the large ones."""


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    # Enough edges for the copies and orders of rows that kernels make on dense graphs.
    edge_index = torch.randint(N, (2, 300_000), generator=generator)
    return Data(x=torch.randn(N, FEATURES, generator=generator), edge_index=edge_index)


def _frozen(kind, precision, device, hidden=160, **options):
    torch.manual_seed(0)
    model = getattr(models, kind)(FEATURES, hidden, CLASSES, precision=precision, **options)
    return freeze(model.to(device).eval())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("features", ["floats", "packed"])
@pytest.mark.parametrize("precision", ["bin", "full"])
@pytest.mark.parametrize("kind", ["GCN", "GraphSAGE", "GraphSAINT"])
def test_counted_is_what_the_allocator_hands_out(kind, precision, features, device, data):
    frozen = _frozen(kind, precision, device)
    report = memory_report(frozen, data.clone().to(device), features=features)
    use, found = report.predicted, report.measured
    assert (use.weights, use.features) == (found.weights, found.features)
    assert use.adjacency == pytest.approx(found.adjacency, rel=0.001)
    forward = use.activations + use.workspace
    assert forward == pytest.approx(found.forward, rel=0.03, abs=SMALL)
    assert abs(report.difference) < 3
    assert found.forward > 1_000_000 or precision == "bin"
    assert report.features == features
    assert report.num_nodes == N


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("hidden", [32, 96, 256, 1100])
def test_widths_with_and_without_copies(hidden, device, data):
    for precision in ("bin", "full"):
        report = memory_report(_frozen("GCN", precision, device, hidden), data.clone().to(device))
        forward = report.predicted.activations + report.predicted.workspace
        assert forward == pytest.approx(report.measured.forward, rel=0.03, abs=SMALL)


# Sums of many short rows are counts of a byte in front of the product that joins them on a GPU,
# those of wider or denser ones are not.
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("features", "edges"), [(256, 300_000), (300, 300_000), (256, 700_000)])
@pytest.mark.parametrize("kind", ["GraphSAGE", "GraphSAINT"])
def test_many_rows_of_few_neighbours(kind, features, edges, device):
    nodes, generator = 33_000, torch.Generator().manual_seed(0)
    edge_index = torch.randint(nodes, (2, edges), generator=generator).to(device)
    x = torch.randn(nodes, features, generator=generator).to(device)
    torch.manual_seed(0)
    model = getattr(models, kind)(features, 128, CLASSES, precision="bin")
    report = memory_report(freeze(model.to(device).eval()), (x, edge_index))
    forward = report.predicted.activations + report.predicted.workspace
    assert forward == pytest.approx(report.measured.forward, rel=0.03, abs=SMALL)


# Products of more than 48 columns are narrow integers on a GPU where they have 1023 features at
# most and the graph 16 edges a node, one of them the node's own loop.
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("classes", "hidden", "edges"),
    [(48, 64, 0), (49, 64, 15 * N - 1), (49, 64, 15 * N), (49, 1023, 15 * N), (49, 1024, 15 * N)],
)
def test_limits_of_narrow_products(classes, hidden, edges, device):
    generator = torch.Generator().manual_seed(0)
    sources = torch.randint(N, (edges,), generator=generator)
    destinations = (sources + torch.randint(1, N, (edges,), generator=generator)) % N
    x = torch.randn(N, FEATURES, generator=generator)
    data = Data(x=x, edge_index=torch.stack([sources, destinations])).to(device)
    model = models.GCN(FEATURES, hidden, classes, precision="bin").to(device).eval()
    report = memory_report(freeze(model), data)
    forward = report.predicted.activations + report.predicted.workspace
    assert forward == pytest.approx(report.measured.forward, rel=0.03, abs=SMALL)


def test_packed_features_and_classes_take_less(data):
    floats = memory_report(_frozen("GCN", "bin", "cpu"), data)
    packed = memory_report(_frozen("GCN", "bin", "cpu"), data, features="packed")
    assert packed.measured.features == N * -(-FEATURES // 32) * 4
    assert packed.measured.peak < 0.5 * floats.measured.peak
    model = models.GCN(FEATURES, 32, 200, precision="bin").eval()
    scores, classes = (memory_report(freeze(model, output=o), data) for o in (None, "classes"))
    # No scores are held.
    assert classes.measured.forward < scores.measured.forward
    assert classes.difference == pytest.approx(0, abs=3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("output", ["classes", "softmax"])
@pytest.mark.parametrize("classes", [7, 200])
def test_heads_are_counted(classes, output, device, data):
    torch.manual_seed(0)
    model = models.GCN(FEATURES, 32, classes, precision="bin").to(device).eval()
    report = memory_report(freeze(model, output=output), data.clone().to(device))
    forward = report.predicted.activations + report.predicted.workspace
    assert forward == pytest.approx(report.measured.forward, rel=0.03, abs=SMALL)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", ["csr", "sliced"])
@pytest.mark.parametrize("hidden", [96, 256])
def test_sums_of_ternary_values_are_counted(hidden, layout, device, data):
    torch.manual_seed(0)
    model = models.GCN(FEATURES, hidden, CLASSES, precision="TBF+TBB, BBF+TBF")
    with torch.no_grad():
        model(data.x, data.edge_index)  # starts the scales
    frozen = freeze(model.eval()).to(device)
    adjacency = frozen.prepare_graph(data.edge_index.to(device), N, layout=layout)
    report = memory_report(frozen, (data.x.to(device), adjacency))
    forward = report.predicted.activations + report.predicted.workspace
    assert forward == pytest.approx(report.measured.forward, rel=0.03, abs=SMALL)


def test_a_model_frozen_for_packed_features_gets_them(data):
    model = models.GCN(FEATURES, 32, CLASSES, precision="bin").eval()
    report = memory_report(freeze(model, features="packed"), data)
    assert report.features == "packed"
    with pytest.raises(ValueError, match="x must be the result of pack_features"):
        memory_report(freeze(model, features="packed"), data, features="floats")


def test_features_as_the_pattern_of_set_bits():
    generator = torch.Generator().manual_seed(1)
    x = (torch.rand(N, 1400, generator=generator) < 0.01).float()
    edges = torch.randint(N, (2, 30_000), generator=generator)
    torch.manual_seed(0)
    model = models.GCN(1400, 64, CLASSES, precision="bin", input_norm=False)
    frozen = freeze(model.eval())
    report = memory_report(frozen, (frozen.pack_features(x - 0.5, layout="sparse"), edges))
    assert report.features == "pattern"
    assert report.difference == pytest.approx(0, abs=3)


def test_prepared_graphs_and_layouts(data):
    frozen = _frozen("GCN", "bin", "cpu")
    graph = frozen.prepare_graph(data.edge_index, N)
    first = memory_report(frozen, (data.x, graph))
    assert first.measured.adjacency == memory_report(frozen, data).measured.adjacency
    # One factor serves rows and columns.
    assert first.predicted.adjacency == 4 * (N + 1 + graph.nnz + N)


@pytest.mark.parametrize("device", DEVICES)
def test_float_models_are_measured_for_comparison(device, data):
    torch.manual_seed(0)
    held = data.clone().to(device)
    pyg = torch_geometric.nn.GCN(FEATURES, 64, 2, CLASSES).to(device)
    report = memory_report(pyg, held)
    assert report.predicted is None
    assert report.difference is None
    assert report.measured.weights == sum(p.nbytes for p in pyg.parameters())
    assert report.measured.adjacency == held.edge_index.nbytes
    # A message an edge, gathered and weighted.
    assert report.measured.forward > 300_000 * 64 * 4
    assert pyg.training
    cached = torch_geometric.nn.GCNConv(FEATURES, 8, cached=True).to(device)
    assert memory_report(cached, held).measured.adjacency > 2 * held.edge_index.nbytes
    trained = models.GCN(FEATURES, 64, CLASSES, precision="bin").to(device)
    whole = memory_report(trained, held).measured
    assert whole.forward > 2 * memory_report(freeze(trained.eval()), held).measured.forward


def test_models_with_code_of_the_users_own_are_measured_alone(data):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(FEATURES, CLASSES, precision="full")

        def forward(self, x, edge_index):
            return torch.special.erf(self.conv(x, edge_index))

    with pytest.warns(UserWarning, match="full precision"):
        frozen = freeze(Odd().eval(), check=False)
    report = memory_report(frozen, data)
    assert report.predicted is None
    assert report.measured.forward >= 2 * N * CLASSES * 4


def test_table_and_json(data):
    report = memory_report(_frozen("GCN", "full", "cpu"), data)
    lines = str(report).splitlines()
    assert lines[0] == f"FrozenModel on cpu, {N} nodes, features as floats"
    assert [line.split()[0] for line in lines[2:]] == [
        "weights", "features", "adjacency", "activations", "workspace", "forward,", "peak",
    ]  # fmt: skip
    assert lines[3].split()[1:5] == ["7.20", "MB", "7.20", "MB"]
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


def test_it_is_exported():
    assert bitgnn.memory_report is memory_report
