"""binarize() and freeze() on module trees of all kinds."""

import copy
import warnings

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional

from bitgnn.convert import GraphConfig, binarize, freeze, report_of
from bitgnn.inference import FrozenLayers, FrozenModel
from bitgnn.models import GCN
from bitgnn.nn import GCNConv, LayerPrecision, Linear, SAGEConv

EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 4, 4]])
LETTERS = ["FBB+BBB", "BBB+BBB", "BBF+FBF"]
"""Of a chain of layers that hand bits to each other; the last gives floats."""


class Net(nn.Module):
    """A hand-written PyG model with a ReLU in its code."""

    def __init__(self):
        super().__init__()
        self.first = pyg.GCNConv(6, 8)
        self.second = pyg.GCNConv(8, 8, improved=True, bias=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x, edge_index):
        x = self.first(x, edge_index).relu()
        return self.head(self.second(x, edge_index))


@pytest.mark.parametrize(
    "layers", [{}, {"first": LETTERS[0], "second": LETTERS[2]}], ids=["by name", "letters"]
)
def test_layers_are_swapped_and_weights_kept(layers, recwarn):
    model = Net()
    binary = binarize(model, GraphConfig(dropout=0.25, layers=layers))
    # A ReLU changes none of the bits that layers look up.
    warned = [str(w.message) for w in recwarn if "feeds the sign of second" in str(w.message)]
    assert len(warned) == bool(layers)
    assert isinstance(binary.first, GCNConv)
    for name in ("first", "second"):
        assert getattr(binary, name).precision == layers.get(name, "bin")
    assert (binary.second.improved, binary.second.bias) == (True, None)
    assert binary.first.dropout == 0.25
    assert torch.equal(binary.first.lin.weight, model.first.lin.weight)
    assert type(model.first) is pyg.GCNConv
    assert set(report_of(binary).left) == {"head"}
    assert "head: left alone, Linear" in str(report_of(binary))
    assert binary(torch.randn(5, 6), EDGES).shape == (5, 3)


def test_layers_by_name_and_alone():
    config = GraphConfig(precision="full", skip=("first",), layers={"second": "FBB+BBF"})
    binary = binarize(Net(), config)
    assert type(binary.first) is pyg.GCNConv
    assert report_of(binary).left["first"] == "named in skip"
    assert report_of(binary).swapped == {"second": "FBB+BBF"}
    named = binarize(Net(), GraphConfig(precision="FBF+FBF", layers={"second": "bin"}))
    assert report_of(named).swapped == {"first": "FBF+FBF", "second": "bin"}
    assert binarize(Net(), GraphConfig("full", layers={"head": "BBF"})).head.precision == "BBF"
    assert isinstance(binarize(pyg.GCNConv(6, 3), "full"), GCNConv)


def test_own_model_changes_form_as_a_whole():
    model = GCN(6, 8, 3, precision="fp32").eval()
    binary = binarize(model, "bin")
    assert binary.precision == "bin"
    assert torch.equal(binary.convs[1].lin.weight, model.convs[1].lin.weight)
    assert report_of(binary).swapped == {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}
    with pytest.raises(ValueError, match=r"dropout and activation must keep .* got 0\.5 and"):
        binarize(model, GraphConfig(dropout=0.5))


@pytest.mark.parametrize("letters", [["bin"] * 3, LETTERS], ids=["by name", "letters"])
@pytest.mark.parametrize("activation", ["drop", "hardtanh"])
def test_activations_of_pyg_models_are_replaced(activation, letters, recwarn):
    model = pyg.GraphSAGE(6, 8, num_layers=3, out_channels=3, jk="cat")
    layers = {f"convs.{i}": precision for i, precision in enumerate(letters)}
    binary = binarize(model, GraphConfig("bin", layers, activation=activation, dropout=0.1))
    assert not [w for w in recwarn if "ReLU" in str(w.message)]
    assert isinstance(binary.act, nn.Identity if activation == "drop" else nn.Hardtanh)
    assert isinstance(model.act, nn.ReLU)
    assert report_of(binary).replaced == {"act": type(binary.act).__name__}
    assert [conv.precision for conv in binary.convs] == letters
    assert all(isinstance(conv, SAGEConv) for conv in binary.convs)
    assert binary(torch.randn(5, 6), EDGES).shape == (5, 3)
    assert "act: now" in str(report_of(binary))


def test_only_relu_modules_before_a_sign_are_replaced():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.BatchNorm1d(4))
    model.append(nn.ReLU()).append(nn.BatchNorm1d(4)).append(nn.Linear(4, 2)).append(nn.ReLU())
    binary = binarize(model, GraphConfig("full", linear=True, activation="drop"))
    names = "Linear Identity Linear BatchNorm1d ReLU BatchNorm1d Linear ReLU"
    assert [type(module).__name__ for module in binary] == names.split()
    assert [binary[i].precision for i in (0, 2, 6)] == ["full"] * 3


class Late(nn.Module):
    """A ReLU with a norm behind it, one in front of a sign, one behind the last layer."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = pyg.GraphConv(6, 8), nn.BatchNorm1d(8)
        self.second, self.third = pyg.SAGEConv(8, 8), pyg.GCNConv(8, 3)

    def forward(self, x, edge_index):
        x = self.norm(self.first(x, edge_index).relu())
        x = functional.dropout(torch.relu(self.second(x, edge_index)), 0.5, self.training)
        return self.third(x, edge_index).relu()


class Wild(Net):
    """Nothing is guessed of code that cannot be traced."""

    def forward(self, x, edge_index):
        if x.sum() > 0:
            x = x + 1
        return self.second(self.first(x, edge_index).relu(), edge_index)


def test_relu_is_found_by_tracing():
    layers = dict(zip(("first", "second", "third"), LETTERS, strict=True))
    with pytest.warns(UserWarning, match=r"ReLU \(relu_1\) feeds the sign of third:") as found:
        binarize(Late(), GraphConfig(layers=layers))
    assert len([w for w in found if "feeds the sign" in str(w.message)]) == 1
    ready_made = pyg.GCN(6, 8, num_layers=2, out_channels=3)
    with pytest.warns(UserWarning, match=r"ReLU \(act\)"):
        binarize(ready_made, "FBF+FBF")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert binarize(Late(), "bin").first.precision == "bin"
        for precision in ("full", "FBF+FBF"):
            binarize(Wild(), precision)
        quiet = binarize(ready_made, "full")
    assert [conv.precision for conv in quiet.convs] == ["full", "full"]


def test_options_of_every_layer_survive():
    class Many(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(
                [
                    pyg.SAGEConv(6, 8, aggr="sum", root_weight=False, bias=False),
                    pyg.SAGEConv((8, 8), 8, normalize=True, project=True),
                    pyg.GraphConv(8, 8, aggr="mean", bias=False, flow="target_to_source"),
                    pyg.GCNConv(8, 8, add_self_loops=False, normalize=False),
                ]
            )
            self.last = pyg.Linear(8, 3, bias=False)

        def forward(self, x, edge_index):
            for layer in self.layers:
                x = layer(x, edge_index)
            return self.last(x)

    model = Many()
    precision = LayerPrecision("FBF", "FBF", surrogate="approx", output_norm="batch")
    with pytest.warns(UserWarning, match="project=True feeds the sign through a ReLU"):
        binary = binarize(model, GraphConfig(precision, linear=True))
    first, second, third, fourth = binary.layers
    assert (first.root_weight, first.aggr) == (False, "sum")
    assert (second.project, second.normalize, fourth.normalize) == (True, True, False)
    assert third.flow == "target_to_source"
    assert all(layer.letters.output_norm == "batch" for layer in binary.layers)
    assert isinstance(binary.last, Linear)
    assert report_of(binary).swapped["last"] == "full"
    kept = model.state_dict()
    assert all(torch.equal(binary.state_dict()[name], kept[name]) for name in kept)


def _in_two_places():
    model = GCN(6, 8, 3, precision="bin")
    model.convs[1].to("meta")
    return model


def _bin():
    return GCN(6, 8, 3, precision="bin")


REFUSED = [
    (lambda: binarize(nn.ReLU()), "no GCNConv, SAGEConv or GraphConv to swap"),
    (
        lambda: binarize(Net(), GraphConfig(skip=("third",))),
        r"is named \['third'\], the model has \['first', 'head',",
    ),
    (lambda: binarize("model"), r"must be a torch.nn.Module, got str"),
    (lambda: GraphConfig(activation="swish"), r"activation must be one of .* got 'swish'"),
    (lambda: binarize(Net(), "binary"), "precision must be 'fp32', 'full', 'bin' or letters"),
    (lambda: binarize(Net(), "FBB+FBF"), r"'FBB\+FBF': the output of BMM \(B\) must be"),
    (lambda: report_of(nn.Linear(3, 3)), "model must have binary layers"),
    (
        lambda: freeze(GCN(6, 8, 3)),
        r"GCN has no binary layer; binarize.* its layers are convs.0: GCNConv",
    ),
    (lambda: freeze("model"), r"must be a torch.nn.Module, got str"),
    (lambda: freeze(_bin(), plan=["FBF+FBF"]), "1 precisions for 2 layers"),
    (
        lambda: freeze(_bin(), plan={"conv": "FBF+FBF"}),
        r"plan names \['conv'\], the model has the layers",
    ),
    (lambda: freeze(_bin(), plan=["BBB+FBF", "FBF+FBF"]), r"'BBB\+FBF': the output of BMM"),
    (lambda: freeze(GCNConv(-1, 3, precision="full")), r"layer 'GCNConv' has no weight yet"),
    (lambda: freeze(_in_two_places()), r"one device, got .*on cpu.* on meta"),
    (
        lambda: freeze(_Graphs(lambda s, x, e: s.head(s.conv(torch.cat([x, x], 1), e), e), last=4)),
        "layer 'head' takes 4 features, gets 3",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_cannot_be_done_is_said(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


class _Graphs(nn.Module):
    """Two layers with any forward."""

    def __init__(self, code, conv=None, last=3):
        super().__init__()
        self.conv = GCNConv(6, 3, precision="full") if conv is None else conv
        self.head = GCNConv(last, 3, precision="full")
        self.code = [code]

    def forward(self, x, edge_index):
        return self.code[0](self, x, edge_index)


class _TwoFeatures(_Graphs):
    def forward(self, x, y, edge_index):
        return self.conv(x + y, edge_index)


@pytest.mark.parametrize(
    ("code", "conv", "reason"),
    [
        (
            lambda s, x, e: s.conv(x if x.sum() > 0 else -x, e),
            None,
            r"line \d+, `.*`: it decides by values that are known in a call alone",
        ),
        (
            lambda s, x, e: s.conv(x, e.flip(0)),
            None,
            "layer 'conv' is given a graph that the forward computes",
        ),
        (
            lambda s, x, e: s.conv((x, x[:2]), e),
            SAGEConv((6, 6), 3, precision="full"),
            "layer 'conv' is given a bipartite pair",
        ),
    ],
)
def test_forwards_without_a_trace_keep_their_code(code, conv, reason):
    model, x = _Graphs(code, conv).eval(), torch.randn(5, 6)
    edges = EDGES if conv is None else torch.tensor([[0, 4, 2, 3], [1, 0, 1, 1]])
    with pytest.warns(UserWarning, match=reason):
        frozen = freeze(model, check=False)
    assert isinstance(frozen, FrozenLayers)
    assert set(frozen.report.letters) == {"conv", "head"}
    with torch.no_grad():
        torch.testing.assert_close(frozen(x, edges), model(x, edges))


def test_forwards_of_several_inputs_and_outputs():
    x, y = torch.randn(2, 5, 6)
    pair = _Graphs(lambda s, x, e: (s.conv(x, e), x))
    with torch.no_grad():
        for model, inputs in ((pair, (x, EDGES)), (_TwoFeatures(None), (x, y, EDGES))):
            frozen = freeze(model.eval(), check=False)
            assert type(frozen) is FrozenModel
            torch.testing.assert_close(frozen(*inputs), model(*inputs))


def test_freezing_leaves_the_model_as_it_was():
    model = GCN(6, 8, 3, precision="bin", dropout=0.5).train()
    model.norm.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    frozen = freeze(model)
    assert (model.training, model.norm.training) == (True, False)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
    copied = copy.deepcopy(frozen)
    x = torch.randn(5, 6)
    expected = frozen(x, EDGES)
    for buffer in frozen.buffers():
        buffer.zero_()
    assert torch.equal(copied(x, EDGES), expected)
