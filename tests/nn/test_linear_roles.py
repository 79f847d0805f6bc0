"""Linear by name: the form of its input, its place in a model, binarize()'s choice, freezing."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional
from wrong_calls import check_wrong_calls

import bitgnn
from bitgnn import GraphConfig, report_of
from bitgnn.nn import Linear
from bitgnn.nn.linear import with_binary_maps

NODES, WIDTH, HIDDEN, CLASSES = 60, 40, 33, 5
EDGES = torch.randint(0, NODES, (2, 240), generator=torch.Generator().manual_seed(0))
ACTIVATIONS = {
    "relu": (functional.relu, "activation"),
    "tanh": (torch.tanh, "activation"),
    "plain": (lambda x: x, "activation"),
    "sigmoid": (torch.sigmoid, "rows"),
    "softplus": (functional.softplus, "rows"),
    "squares": (torch.square, "rows"),
}


class Net(nn.Module):
    def __init__(self, act=functional.relu):
        super().__init__()
        self.conv = pyg.GCNConv(WIDTH, HIDDEN)
        self.lin, self.head = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.mlp = pyg.MLP([HIDDEN, HIDDEN, HIDDEN], norm=None)
        self.gate, self.act = nn.Linear(HIDDEN, 1), act

    def forward(self, x, edge_index):
        x = self.act(self.conv(x, edge_index))
        x = self.act(self.mlp(self.act(self.lin(x))))
        return self.head(x) * torch.sigmoid(self.gate(x))


def trained(model, *inputs, steps=6):
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(*inputs).square().sum().backward()
        optimizer.step()
    return model.eval()


def features(seed=1):
    return torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("act", ACTIVATIONS)
@pytest.mark.filterwarnings("ignore:freeze")
def test_inputs_of_any_activation_have_a_form_that_varies(act):
    function, kind = ACTIVATIONS[act]
    torch.manual_seed(0)
    model = trained(bitgnn.binarize(Net(function)), features(), EDGES)
    forms = {layer.name: (layer.role, layer.inputs) for layer in report_of(model).layers}
    assert forms["lin"][1] == forms["mlp.lins.0"][1] == kind
    assert forms["head"][1] == "floats"
    assert type(model.gate) is nn.Linear
    frozen = bitgnn.freeze(model, fold=False)
    with torch.no_grad():
        assert torch.equal(frozen(features(), EDGES), model(features(), EDGES))
    assert {"lin", "mlp.lins.0", "mlp.lins.1"} <= frozen.report.letters.keys()
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    "kind", [pyg.SGConv, pyg.TAGConv, pyg.TransformerConv, pyg.ClusterGCNConv, pyg.LEConv]
)
def test_maps_inside_of_other_graph_layers(kind, tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = kind(WIDTH, HIDDEN), kind(HIDDEN, CLASSES)

        def forward(self, x, edge_index):
            return self.last(functional.relu(self.first(x, edge_index)), edge_index)

    torch.manual_seed(0)
    model = bitgnn.binarize(Two())
    maps = [n for n, m in model.named_modules() if isinstance(m, Linear)]
    assert {name.split(".")[0] for name in maps} == {"first", "last"}
    assert all(parameter.requires_grad for parameter in model.parameters())
    before = [model.get_submodule(name).weight.clone() for name in maps]
    trained(model, features(), EDGES)
    after = [model.get_submodule(name).weight for name in maps]
    assert not any(map(torch.equal, before, after))
    frozen = bitgnn.freeze(model, check=False)
    with torch.no_grad():
        expected = model(features(), EDGES)
    assert torch.equal(frozen(features(), EDGES), expected)
    assert frozen.report.letters
    assert torch.equal(bitgnn.load(bitgnn.save(frozen, tmp_path))(features(), EDGES), expected)


def test_config_says_which_linear_layers_are_binary():
    every = bitgnn.binarize(Net(), GraphConfig(linear=True))
    names = {"conv", "lin", "head", "mlp.lins.0", "mlp.lins.1", "gate"}
    assert set(report_of(every).swapped) == names
    assert report_of(bitgnn.binarize(Net(), GraphConfig(linear=False))).swapped == {"conv": "bin"}
    assert set(report_of(bitgnn.binarize(Net(), "full")).swapped) == names - {"gate"}
    model = trained(every, features(), EDGES)
    assert model.head.letters.bmm == "FBF"
    with pytest.raises(ValueError, match="linear must be one of"):
        GraphConfig(linear="some")


def test_state_is_that_of_pyg_and_more():
    theirs = pyg.Linear(WIDTH, HIDDEN)
    ours = Linear(WIDTH, HIDDEN, precision="bin")
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours.weight, theirs.weight)
    other = Linear(WIDTH, HIDDEN, precision="bin")
    trained(nn.Sequential(ours, Linear(HIDDEN, 3, precision="bin")), features())
    other.load_state_dict(ours.state_dict())
    assert other.role == ours.role == "first"
    assert torch.equal(other.eval()(features()), ours(features()))
    with pytest.raises(RuntimeError, match="feeds"):
        other.load_state_dict({k: v for k, v in ours.state_dict().items() if k != "feeds"})


@pytest.mark.parametrize("rows", [0, 1, 31, 33])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_batches_of_any_size(rows, shape):
    model = nn.Sequential(*(Linear(WIDTH, WIDTH, precision="bin") for _ in range(3)))
    x = torch.randn(*shape, rows, WIDTH)
    out = model(x)
    assert out.shape == x.shape
    out.sum().backward()
    trained(model, features())
    assert torch.equal(model(features())[:rows], model(features()[:rows]))


def test_a_map_whose_weight_alone_is_read_stays_in_floats():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.lin = pyg.GCNConv(WIDTH, HIDDEN), nn.Linear(HIDDEN, HIDDEN)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index) @ self.lin.weight

    model = trained(bitgnn.binarize(Reads()), features(), EDGES)
    assert isinstance(model.lin, Linear)
    assert model.lin.stays_float
    frozen = bitgnn.freeze(model)
    assert list(frozen.report.letters) == ["conv"]
    torch.testing.assert_close(frozen(features(), EDGES), model(features(), EDGES).detach())


def test_maps_of_a_module_are_made_binary_in_place():
    module = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), pyg.Linear(4, 2, bias=False)))
    kept = module.state_dict()
    made = with_binary_maps(module, "bin")
    assert made is module
    assert [type(made[0]), type(made[1][1])] == [Linear, Linear]
    assert all(torch.equal(made.state_dict()[name], kept[name]) for name in kept)
    assert (made[0].in_features, made[0].out_features) == (3, 4)
    assert type(with_binary_maps(pyg.Linear(-1, 3), "bin")) is pyg.Linear


def test_wrong_calls():
    check_wrong_calls(
        r"""
layer(torch.ones(2, 5)) -> ValueError: Linear: x must be \[N, 4\], got \[2, 5\]
layer(torch.ones(2, 4).long()) -> TypeError: Linear: x must hold floats, got torch.int64
Linear(4, 3, precision="FBF", role="last") -> ValueError: Linear: role must be None where letters
Linear(4, 3, precision="binary") -> ValueError: precision must be 'fp32', 'full', 'bin' or three
""",
        {"Linear": Linear, "layer": Linear(4, 3, precision="bin"), "torch": torch},
    )
