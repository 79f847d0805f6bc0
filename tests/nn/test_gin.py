"""GINConv and GINEConv: PyG's arithmetic in fp32, sums of bits and binary MLPs by name."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional

import bitgnn
from bitgnn import BitAdjacency
from bitgnn.inference.frozen_layers import FrozenLayer
from bitgnn.nn import GINConv, GINEConv, Linear
from bitgnn.nn.sum_linear import SumLinear

NODES, WIDTH, CLASSES = 60, 33, 4
EDGES = torch.randint(0, NODES - 1, (2, 240), generator=torch.Generator().manual_seed(0))
DENSE = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1))
FEATURES = {"dense": DENSE, "sparse": (DENSE > 1.5).float()}
MLPS = {
    "sequence": lambda a, b: nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b)),
    "normed": lambda a, b: nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()),
    "PyG": lambda a, b: pyg.MLP([a, b, b]),
    "map": nn.Linear,
}


class Net(nn.Module):
    def __init__(self, mlp, kind=pyg.GINConv, **options):
        super().__init__()
        self.first = kind(mlp(WIDTH, 40), **options)
        self.second = kind(mlp(40, WIDTH), **options)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, edge_index):
        x = functional.relu(self.first(x, edge_index))
        return self.head(functional.relu(self.second(x, edge_index)))


def trained(model, *inputs, steps=6):
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(*inputs).square().sum().backward()
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("train_eps", [False, True])
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("mlp", MLPS)
def test_frozen_is_trained(mlp, features, train_eps, tmp_path):
    x = FEATURES[features]
    torch.manual_seed(0)
    plain = Net(MLPS[mlp], eps=0.25, train_eps=train_eps)
    model = bitgnn.binarize(plain)
    assert type(model.first) is GINConv
    assert plain.state_dict().keys() <= model.state_dict().keys()
    if train_eps:
        model.first.eps.data.fill_(-0.5)
    trained(model, x, EDGES)
    assert model.first.first.role == "first"
    assert model.second.first.role == ("last" if mlp in ("normed", "map") else "inner")
    frozen = bitgnn.freeze(model, fold=False)
    with torch.no_grad():
        expected = model(x, EDGES)
    assert torch.equal(frozen(x, EDGES), expected)
    assert len(frozen.report.letters) >= 2
    read = bitgnn.load(bitgnn.save(frozen, tmp_path))
    assert torch.equal(read(x, EDGES), expected)


def test_the_sum_is_the_formula():
    torch.manual_seed(0)
    layer = SumLinear(WIDTH, 7, role="last").eval()
    x, eps = torch.randn(NODES, WIDTH), torch.tensor([0.5])
    bits = (x > 0).float() - 0.5
    adjacency = torch.zeros(NODES, NODES).index_put_(
        (EDGES[1], EDGES[0]), torch.ones(240), accumulate=True
    )
    sums = adjacency @ bits + 1.5 * bits
    product = sums @ torch.where(layer.weight >= 0, 1.0, -1.0).t()
    out = layer(x, EDGES, eps) - layer.bias
    factor = (out / product)[product != 0]
    assert torch.allclose(factor, factor.mean().expand_as(factor), rtol=1e-4)
    assert torch.allclose(layer(x, BitAdjacency.from_edge_index(EDGES, NODES), eps), out)
    with pytest.raises(ValueError, match="edge_index must be given outside"):
        layer(x)


def test_other_forms_of_the_graph_and_pairs():
    model = trained(GINConv(MLPS["PyG"](WIDTH, 8), train_eps=True, precision="bin"), DENSE, EDGES)
    simple = torch.unique(EDGES, dim=1)
    sparse = torch.sparse_coo_tensor(simple.flip(0), torch.ones(simple.size(1)), (NODES, NODES))
    expected = model(DENSE, simple)
    assert torch.equal(model(DENSE, sparse.to_sparse_csr()), expected)
    assert torch.equal(model((DENSE, DENSE), simple), expected)
    alone = model((DENSE, None), simple)
    assert not torch.equal(alone, expected)
    pairs = trained(bitgnn.binarize(Pairs()), DENSE, EDGES)
    holder = bitgnn.freeze(pairs, check=False)
    assert isinstance(holder.layers["conv"], FrozenLayer)
    with torch.no_grad():
        assert torch.equal(holder(DENSE, EDGES), pairs(DENSE, EDGES))


class Pairs(nn.Module):
    """Calls a layer on sources alone, which no trace of a whole model has."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.conv = pyg.GINConv(MLPS["PyG"](WIDTH, 8), eps=1.0)

    def forward(self, x, edge_index):
        for conv in [self.conv] if x.size(0) else []:
            x = conv((x, None), edge_index)
        return x


def test_static_graphs_and_empty_ones():
    layer = GINConv(MLPS["sequence"](WIDTH, 8), precision="bin")
    assert layer(torch.randn(3, NODES, WIDTH), EDGES).shape == (3, NODES, 8)
    none = torch.empty(2, 0, dtype=torch.long)
    assert layer(torch.randn(1, WIDTH), none).shape == (1, 8)
    assert layer.eval()(torch.randn(0, WIDTH), none).shape == (0, 8)


def test_what_has_no_binary_form_keeps_its_class():
    odd = pyg.GINConv(nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, WIDTH)))
    largest = pyg.GINConv(MLPS["sequence"](WIDTH, WIDTH), aggr="max")
    for layer in (odd, largest):
        model = bitgnn.binarize(pyg.Sequential("x, edge_index", [(layer, "x, edge_index -> x")]))
        assert type(model[0]) is pyg.GINConv
        assert isinstance(model[0].nn[-1], Linear)
        with pytest.raises(ValueError, match="GINConv: precision must be 'fp32', since"):
            GINConv(layer.nn, precision="bin", aggr=layer.aggr)
    with pytest.raises(ValueError, match="GINConv: precision must be 'fp32', 'full' or 'bin', got"):
        GINConv(nn.Linear(3, 3), precision="FBB+BBF")


def test_gine_has_a_binary_mlp(tmp_path):
    class Edges(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = GINEConv(MLPS["PyG"](WIDTH, 40), edge_dim=3, precision="bin")
            self.second = GINEConv(MLPS["PyG"](40, CLASSES), edge_dim=3, precision="full")

        def forward(self, x, edge_index, edge_attr):
            return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_attr)

    attributes = torch.randn(EDGES.size(1), 3)
    model = trained(Edges(), DENSE, EDGES, attributes)
    assert isinstance(model.first.nn.lins[0], Linear)
    frozen = bitgnn.freeze(model)
    assert {"first.nn.lins.0", "second.nn.lins.0"} <= frozen.report.letters.keys()
    with torch.no_grad():
        assert torch.equal(frozen(DENSE, EDGES, attributes), model(DENSE, EDGES, attributes))
    assert type(GINEConv(nn.Linear(3, 3), precision="fp32").nn) is nn.Linear
