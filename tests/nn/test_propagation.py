"""Layers of propagation: PyG's arithmetic in fp32, polynomials of binary products by name."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional

import bitgnn
from bitgnn import BitAdjacency, GraphConfig
from bitgnn.nn import ChebConv, Linear, SGConv, SSGConv, TAGConv, default_precision
from bitgnn.nn.propagation.base import Propagation

NODES, WIDTH, CLASSES = 60, 33, 4
EDGES = torch.randint(0, NODES - 1, (2, 240), generator=torch.Generator().manual_seed(0))
WEIGHTS = torch.rand(240, generator=torch.Generator().manual_seed(2))
DENSE = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1))
FEATURES = {"dense": DENSE, "sparse": (DENSE > 1.5).float()}
LAYERS = {
    "SGConv": lambda a, b: pyg.SGConv(a, b, K=2),
    "SGConv, 1": lambda a, b: pyg.SGConv(a, b, bias=False, add_self_loops=False),
    "SSGConv": lambda a, b: pyg.SSGConv(a, b, alpha=0.1, K=2),
    "TAGConv": lambda a, b: pyg.TAGConv(a, b, K=2),
    "TAGConv, sums": lambda a, b: pyg.TAGConv(a, b, K=1, normalize=False),
    "ChebConv": lambda a, b: pyg.ChebConv(a, b, K=4),
    "ChebConv, 1": lambda a, b: pyg.ChebConv(a, b, K=1, bias=False),
}


class Net(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.first, self.inner, self.last = make(WIDTH, 40), make(40, WIDTH), make(WIDTH, CLASSES)

    def forward(self, x, edge_index, edge_weight=None):
        x = functional.relu(self.first(x, edge_index, edge_weight))
        x = functional.relu(self.inner(x, edge_index, edge_weight))
        return self.last(x, edge_index, edge_weight)


def trained(model, *inputs, steps=5):
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(*inputs).square().sum().backward()
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("precision", ["bin", "full"])
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("layer", LAYERS)
def test_frozen_is_trained(layer, features, precision, weight, tmp_path):
    x = FEATURES[features]
    torch.manual_seed(0)
    plain = Net(LAYERS[layer])
    model = bitgnn.binarize(plain, GraphConfig(precision=precision))
    assert all(isinstance(part, Propagation) for part in model.children())
    assert plain.state_dict().keys() <= model.state_dict().keys()
    trained(model, x, EDGES, weight)
    assert [list(_maps(part))[-1].role for part in model.children()] == ["first", "inner", "last"]
    assert list(_maps(model.inner))[-1].gives_signs == (precision == "bin")
    frozen = bitgnn.freeze(model)
    assert not frozen.report.floats or weight is not None or precision == "full"
    with torch.no_grad():
        expected = model(x, EDGES, weight)
    assert torch.equal(frozen(x, EDGES, weight), expected)
    read = bitgnn.load(bitgnn.save(frozen, tmp_path))
    assert torch.equal(read(x, EDGES, weight), expected)


def _maps(layer):
    return (part for part in layer.modules() if isinstance(part, Linear))


@pytest.mark.parametrize("layer", LAYERS)
def test_the_polynomial_is_that_of_the_layer_in_floats(layer):
    """A binary layer is PyG's applied to each map's product, which an identity reads."""
    torch.manual_seed(0)
    binary = bitgnn.binarize(nn.ModuleDict({"layer": LAYERS[layer](WIDTH, 7)}))["layer"]
    trained(binary, DENSE, EDGES, WEIGHTS)
    expected = 0
    maps = list(_maps(binary))
    for place, linear in enumerate(maps):
        with torch.no_grad():
            product = linear(DENSE)
        plain = LAYERS[layer](7, 7)
        for parameter in plain.parameters():
            nn.init.zeros_(parameter)
        nn.init.eye_((plain.lins[place] if hasattr(plain, "lins") else plain.lin).weight)
        expected = expected + plain(product, EDGES, WEIGHTS)
    bias = maps[0].bias if getattr(binary, "bias", None) is None else binary.bias
    expected = expected if bias is None else expected + bias
    assert torch.allclose(binary(DENSE, EDGES, WEIGHTS), expected, atol=1e-5, rtol=1e-4)


class Scores(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.lin1, self.lin2, self.prop = nn.Linear(WIDTH, 40), nn.Linear(40, CLASSES), last

    def forward(self, x, edge_index, edge_weight=None):
        scores = self.lin2(functional.relu(self.lin1(x)))
        return self.prop(scores, edge_index, edge_weight)


@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    "layer",
    [pyg.APPNP(3, 0.2), pyg.APPNP(2, 0.2, 0.5, cached=True), pyg.LGConv(), pyg.LGConv(False)],
    ids=["APPNP", "APPNP, dropout", "LGConv", "LGConv, sums"],
)
def test_float_sums_are_those_of_frozen_models(layer, weight, tmp_path):
    torch.manual_seed(0)
    model = trained(bitgnn.binarize(Scores(copy.deepcopy(layer))), DENSE, EDGES, weight)
    assert type(model.prop) is getattr(bitgnn.nn, type(layer).__name__)
    frozen = bitgnn.freeze(model, fold=False)
    assert not any("own code" in why for why in frozen.report.floats.values())
    with torch.no_grad():
        expected = model(DENSE, EDGES, weight)
        scores = torch.randn(NODES, CLASSES)
        plain = copy.deepcopy(layer).eval()(scores, EDGES, weight)
        assert torch.allclose(model.prop(scores, EDGES, weight), plain, atol=1e-5)
    assert torch.equal(frozen(DENSE, EDGES, weight), expected)
    read = bitgnn.load(bitgnn.save(frozen, tmp_path))
    assert torch.equal(read(DENSE, EDGES, weight), expected)
    assert bitgnn.report_of(model).left["prop"]


def test_lambda_max_of_a_number_and_of_each_graph():
    torch.manual_seed(0)
    layer = trained(ChebConv(WIDTH, 7, K=3, precision="bin"), DENSE, EDGES)
    two = torch.tensor([2.0, 2.0])
    batch = (torch.arange(NODES) > 30).long()
    expected = layer(DENSE, EDGES)
    assert torch.allclose(layer(DENSE, EDGES, lambda_max=2.0), expected, atol=1e-5)
    assert torch.allclose(layer(DENSE, EDGES, None, batch, two), expected, atol=1e-5)
    assert not torch.allclose(layer(DENSE, EDGES, lambda_max=1.5), expected, atol=1e-2)


def test_other_graphs_and_inputs():
    torch.manual_seed(0)
    layer = trained(TAGConv(WIDTH, 7, normalize=False, precision="bin"), DENSE, EDGES)
    expected = layer(DENSE, EDGES)
    sparse = torch.sparse_coo_tensor(EDGES.flip(0), torch.ones(240), (NODES, NODES)).coalesce()
    assert torch.allclose(layer(DENSE, sparse), expected, atol=1e-4)
    adjacency = BitAdjacency.from_edge_index(EDGES, NODES)
    assert torch.equal(layer(DENSE, adjacency), expected)
    assert torch.allclose(layer(DENSE.expand(3, -1, -1), EDGES), expected.expand(3, -1, -1))
    none = torch.empty(2, 0, dtype=torch.long)
    assert layer(DENSE[:1], none).shape == (1, 7)
    assert layer(DENSE[:0], none).shape == (0, 7)
    with pytest.raises(ValueError, match="edge_index must be 60 x 60 like the nodes, got"):
        layer(DENSE, BitAdjacency.from_edge_index(EDGES, NODES + 1))
    with pytest.raises(ValueError, match=r"x must be \[N, 33\], got \[60, 8\]"):
        layer(DENSE[:, :8], EDGES)
    with pytest.raises(TypeError, match="x must hold floats, got"):
        layer(DENSE.long(), EDGES)
    layer.explain = True
    with pytest.raises(ValueError, match="TAGConv: precision must be 'fp32' for explain mode"):
        layer(DENSE, EDGES)
    with pytest.raises(ValueError, match="edge_index must be an edge index, got a sparse"):
        ChebConv(WIDTH, 7, K=2, precision="bin")(DENSE, sparse)


def test_what_has_no_binary_form_keeps_its_class():
    odd = [
        pyg.SGConv(WIDTH, 16, cached=True),
        pyg.TAGConv(WIDTH, 16, aggr="max"),
        pyg.ChebConv(WIDTH, 16, K=2, normalization="rw"),
    ]
    for layer in odd:
        model = bitgnn.binarize(pyg.Sequential("x, edge_index", [(layer, "x, edge_index -> x")]))
        assert type(model[0]) is type(layer)
        assert any(isinstance(part, Linear) for part in model[0].modules())
    for make in (
        lambda: SGConv(3, 3, cached=True, precision="bin"),
        lambda: TAGConv(3, 3, aggr="max", precision="bin"),
        lambda: ChebConv(3, 3, K=2, normalization=None, precision="bin"),
        lambda: SSGConv(3, 3, 0.1, node_dim=1, precision="full"),
    ):
        with pytest.raises(ValueError, match="precision must be 'fp32', since"):
            make()


def test_floats_are_pygs_and_copies_go_on():
    with default_precision("fp32"):
        for kind, options in ((SGConv, {}), (SSGConv, {"alpha": 0.2}), (TAGConv, {}),
                              (ChebConv, {"K": 2})):  # fmt: skip
            layer = kind(WIDTH, 7, **options)
            plain = getattr(pyg, kind.__name__)(WIDTH, 7, **options)
            plain.load_state_dict(layer.state_dict())
            assert torch.equal(layer(DENSE, EDGES), plain(DENSE, EDGES))
    layer = trained(SGConv(WIDTH, 7, K=2, precision="bin"), DENSE, EDGES)
    assert torch.equal(copy.deepcopy(layer)(DENSE, EDGES), layer(DENSE, EDGES))
    again = bitgnn.binarize(nn.ModuleDict({"layer": layer}))["layer"]
    assert torch.equal(again.lin.weight, layer.lin.weight)
