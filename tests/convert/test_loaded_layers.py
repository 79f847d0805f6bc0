"""A model read from a file returns the bits of the frozen one, whatever layers run their own code.

A frozen model has no part in common with the trained one.
"""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional

import bitgnn
from bitgnn.inference.descriptions import describe
from bitgnn.inference.own_code.calls import needs_model

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
N, WIDTH, CLASSES = 40, 16, 3
RANDOM = torch.Generator().manual_seed(0)
X = torch.randn(N, WIDTH, generator=RANDOM)
EDGES = torch.randint(0, N, (2, 160), generator=RANDOM)
EDGES = EDGES[:, EDGES[1].argsort()]
KINDS = torch.randint(0, 3, (160,), generator=RANDOM)
ATTRIBUTES = torch.rand(160, 2, generator=RANDOM)
DEGREES = torch.bincount(torch.bincount(EDGES[1], minlength=N))
PLACES = torch.randn(N, 3, generator=RANDOM)


def mlp(size, out):
    return nn.Sequential(nn.Linear(size, out), nn.BatchNorm1d(out), nn.ReLU(), nn.Linear(out, out))


class Between(nn.Module):
    """Two layers between linear maps; a forward that decides by sizes where it is ``dynamic``."""

    def __init__(self, make, call, dynamic=False):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.layers = nn.ModuleList([make(), make()])
        self.call, self.dynamic = call, dynamic

    def forward(self, x, edge_index):
        if self.dynamic and x.size(0) == 0:
            return x
        x = functional.relu(self.first(x))
        for layer in self.layers:
            x = functional.relu(self.call(layer, x, edge_index))
        return self.last(x)


def trained(model):
    binary = bitgnn.binarize(model)
    optimizer = torch.optim.Adam(binary.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        binary(X, EDGES).square().mean().backward()
        optimizer.step()
    return binary.eval()


def plain(layer, x, edges):
    return layer(x, edges)


def of_kinds(layer, x, edges):
    return layer(x, edges, KINDS)


def of_attributes(layer, x, edges):
    return layer(x, edges, ATTRIBUTES)


def of_places(layer, x, edges):
    return layer(x, PLACES, edges)


def of_history(layer, x, edges):
    return layer(torch.stack([x, x.tanh(), x.sin()], 1), edges)


def twice(layer, x, edges):
    return layer(x, x.sin(), edges)


def of_pairs(layer, x, edges):
    return layer((x, x.sin()), edges)


LAYERS = {
    "DNAConv": (lambda: pyg.DNAConv(WIDTH, 4), of_history),
    "DNAConv in groups": (lambda: pyg.DNAConv(WIDTH, 4, 2, 0.5, bias=False), of_history),
    "SAGEConv lstm": (lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr="lstm"), plain),
    "GatedGraphConv": (lambda: pyg.GatedGraphConv(WIDTH, 2), plain),
    "ARMAConv": (lambda: pyg.ARMAConv(WIDTH, WIDTH, 2, 2), plain),
    "MFConv": (lambda: pyg.MFConv(WIDTH, WIDTH, 3), plain),
    "RGCNConv": (lambda: pyg.RGCNConv(WIDTH, WIDTH, 3, num_bases=2), of_kinds),
    "FastRGCNConv": (lambda: pyg.FastRGCNConv(WIDTH, WIDTH, 3, num_blocks=4), of_kinds),
    "RGATConv": (lambda: pyg.RGATConv(WIDTH, WIDTH, 3), of_kinds),
    "FiLMConv": (lambda: pyg.FiLMConv(WIDTH, WIDTH), plain),
    "SuperGATConv": (lambda: pyg.SuperGATConv(WIDTH, WIDTH, attention_type="SD"), plain),
    "EGConv": (lambda: pyg.EGConv(WIDTH, WIDTH, ["mean", "std"], 4, 2), plain),
    "GeneralConv": (lambda: pyg.GeneralConv(WIDTH, WIDTH, attention=True, heads=2), plain),
    "FeaStConv": (lambda: pyg.FeaStConv(WIDTH, WIDTH, 2), plain),
    "HypergraphConv": (lambda: pyg.HypergraphConv(WIDTH, WIDTH), plain),
    "PDNConv": (lambda: pyg.PDNConv(WIDTH, WIDTH, 2, 8), of_attributes),
    "GMMConv": (lambda: pyg.GMMConv(WIDTH, WIDTH, 2, 3), of_attributes),
    "NNConv": (lambda: pyg.NNConv(WIDTH, WIDTH, nn.Linear(2, WIDTH * WIDTH)), of_attributes),
    "CGConv": (lambda: pyg.CGConv(WIDTH, 2, batch_norm=True), of_attributes),
    "AGNNConv": (pyg.AGNNConv, plain),
    "GCN2Conv": (lambda: pyg.GCN2Conv(WIDTH, 0.1, 0.5, 2), twice),
    "FAConv": (lambda: pyg.FAConv(WIDTH), twice),
    "GENConv": (lambda: pyg.GENConv(WIDTH, WIDTH, "powermean", learn_p=True), plain),
    "PNAConv": (
        lambda: pyg.PNAConv(WIDTH, WIDTH, ["mean", "std"], ["linear"], DEGREES, train_norm=True),
        plain,
    ),
    "EdgeConv": (lambda: pyg.EdgeConv(mlp(2 * WIDTH, WIDTH)), plain),
    "PointTransformerConv": (lambda: pyg.PointTransformerConv(WIDTH, WIDTH), of_places),
    "GPSConv": (lambda: pyg.GPSConv(WIDTH, pyg.GINConv(mlp(WIDTH, WIDTH)), 2), plain),
    "AntiSymmetricConv": (lambda: pyg.AntiSymmetricConv(WIDTH), plain),
    "ClusterGCNConv": (lambda: pyg.ClusterGCNConv(WIDTH, WIDTH), plain),
    "LEConv": (lambda: pyg.LEConv(WIDTH, WIDTH), plain),
    "GATConv of pairs": (
        lambda: pyg.GATConv((WIDTH, WIDTH), WIDTH, add_self_loops=False),
        of_pairs,
    ),
    "GATv2Conv of pairs": (
        lambda: pyg.GATv2Conv((WIDTH, WIDTH), WIDTH, add_self_loops=False),
        of_pairs,
    ),
    "SAGEConv of pairs": (lambda: pyg.SAGEConv((WIDTH, WIDTH), WIDTH, "lstm"), of_pairs),
}
AGGREGATIONS = {
    "lstm": lambda: pyg.aggr.LSTMAggregation(WIDTH, WIDTH),
    "softmax": lambda: pyg.SoftmaxAggregation(t=0.5, learn=True),
    "power": lambda: pyg.PowerMeanAggregation(p=2.0, learn=True),
    "quantile": lambda: pyg.aggr.QuantileAggregation(0.3),
    "several": lambda: ["mean", pyg.SoftmaxAggregation(learn=True), "max"],
    "max": lambda: "max",
}


def read_again(frozen, folder, make):
    """The frozen model read from a file, with a model to take its own code from if it needs one."""
    bitgnn.save(frozen, folder)
    calls = [] if frozen.kind == "layers" else describe(frozen)["calls"]
    needs = frozen.kind == "layers" or needs_model(calls)
    return bitgnn.load(folder, make() if needs else None)


FORWARDS = pytest.mark.parametrize("dynamic", [False, True], ids=["traced", "own forward"])


@FORWARDS
@pytest.mark.parametrize("name", LAYERS)
def test_loaded_is_frozen(name, dynamic, tmp_path):
    model = trained(Between(*LAYERS[name], dynamic))
    frozen = bitgnn.freeze(model, check=False)
    torch.testing.assert_close(frozen(X, EDGES), model(X, EDGES), rtol=1e-5, atol=1e-5)
    read = read_again(frozen, tmp_path, lambda: Between(*LAYERS[name], dynamic))
    assert frozen(X, EDGES).isfinite().all()
    assert torch.equal(read(X, EDGES), frozen(X, EDGES))
    assert not any(p.requires_grad for m in (read, frozen) for p in m.parameters())


@FORWARDS
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in (pyg.SAGEConv, pyg.GraphConv, pyg.GCNConv)
        for name in AGGREGATIONS
        if (kind, name) != (pyg.GCNConv, "lstm")  # its loops leave the edges unsorted
    ],
)
def test_aggregations_with_arguments(kind, name, dynamic, tmp_path):
    def make():
        options = {"aggr_kwargs": {"mode": "sum"}} if name == "several" else {}
        return kind(WIDTH, WIDTH, aggr=AGGREGATIONS[name](), **options)

    frozen = bitgnn.freeze(trained(Between(make, plain, dynamic)), check=False)
    assert frozen.kind == ("layers" if dynamic else "program")
    read = read_again(frozen, tmp_path, lambda: Between(make, plain, dynamic))
    assert torch.equal(read(X, EDGES), frozen(X, EDGES))
    if not dynamic:
        assert torch.equal(bitgnn.load(tmp_path)(X, EDGES), frozen(X, EDGES))


@FORWARDS
def test_trained_goes_on_training(dynamic):
    model = trained(Between(*LAYERS["DNAConv"], dynamic)).train()
    frozen = bitgnn.freeze(model, check=False)
    expected = frozen(X, EDGES)
    assert model.layers[0].training
    assert all(p.requires_grad for p in model.layers.parameters())
    own = {t.untyped_storage().data_ptr() for t in model.state_dict().values()}
    assert not own & {t.untyped_storage().data_ptr() for t in frozen.state_dict().values()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert torch.equal(frozen(X, EDGES), expected)


def test_frozen_in_inference_mode_takes_another_state():
    model = trained(Between(*LAYERS["DNAConv"]))
    with torch.inference_mode():
        frozen = bitgnn.freeze(model, check=False)
    expected = frozen(X, EDGES)
    frozen.load_state_dict(bitgnn.freeze(model, check=False).state_dict())
    assert torch.equal(frozen(X, EDGES), expected)
