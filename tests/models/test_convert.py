"""binarize() and freeze() on module trees of all kinds."""

import copy
import warnings

import pytest
import torch
import torch_geometric.nn
from torch import nn
from torch.nn import functional

from bitgnn.convert import GraphConfig, binarize, freeze, report_of
from bitgnn.inference import FrozenLayers, FrozenModel
from bitgnn.models import GCN
from bitgnn.nn import GCNConv, LayerPrecision, Linear, SAGEConv

EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 4, 4]])


class Net(nn.Module):
    """A hand-written PyG model with a ReLU in its code."""

    def __init__(self):
        super().__init__()
        self.first = torch_geometric.nn.GCNConv(6, 8)
        self.second = torch_geometric.nn.GCNConv(8, 8, improved=True, bias=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x, edge_index):
        x = self.first(x, edge_index).relu()
        return self.head(self.second(x, edge_index))


LETTERS = ["FBB+BBB", "BBB+BBB", "BBF+FBF"]
"""Of a chain of layers that hand bits to each other; the last gives floats."""


@pytest.mark.parametrize(
    "layers",
    [{}, {"first": LETTERS[0], "second": LETTERS[2]}],
    ids=["by name", "letters"],
)
def test_layers_are_swapped_and_weights_kept(layers, recwarn):
    model = Net()
    binary = binarize(model, GraphConfig(dropout=0.25, layers=layers))
    # A ReLU changes none of the bits that layers look up.
    warned = [str(w.message) for w in recwarn if "feeds the sign of second" in str(w.message)]
    assert len(warned) == bool(layers)
    assert isinstance(binary.first, GCNConv)
    assert binary.first.precision == layers.get("first", "bin")
    assert binary.second.precision == layers.get("second", "bin")
    assert binary.second.improved
    assert binary.second.bias is None
    assert binary.first.dropout == 0.25
    assert torch.equal(binary.first.lin.weight, model.first.lin.weight)
    assert type(model.first) is torch_geometric.nn.GCNConv
    report = report_of(binary)
    assert set(report.left) == {"head"}
    assert "head: left alone, Linear" in str(report)
    assert binary(torch.randn(5, 6), EDGES).shape == (5, 3)


def test_pyg_model_with_relu_warns_and_without_does_not(recwarn):
    quiet = torch_geometric.nn.GCN(6, 8, num_layers=2, out_channels=3, act=None)
    binary = binarize(quiet, "full")
    assert not [w for w in recwarn if "ReLU" in str(w.message)]
    assert [conv.precision for conv in binary.convs] == ["full", "full"]
    assert binary(torch.randn(5, 6), EDGES).shape == (5, 3)
    loud = torch_geometric.nn.GCN(6, 8, num_layers=2, out_channels=3)
    binarize(loud, "full")
    assert not [w for w in recwarn if "ReLU" in str(w.message)]
    with pytest.warns(UserWarning, match=r"ReLU \(act\)"):
        binarize(loud, "FBF+FBF")


def test_skip_and_single_layers():
    config = GraphConfig(precision="full", skip=("first",), layers={"second": "FBB+BBF"})
    model = Net()
    binary = binarize(model, config)
    assert type(binary.first) is torch_geometric.nn.GCNConv
    assert binary.second.precision == "FBB+BBF"
    assert report_of(binary).left["first"] == "named in skip"
    named = binarize(model, GraphConfig(precision="FBF+FBF", layers={"second": "bin"}))
    assert report_of(named).swapped == {"first": "FBF+FBF", "second": "bin"}


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
    model = torch_geometric.nn.GraphSAGE(6, 8, num_layers=3, out_channels=3, jk="cat")
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
    config = GraphConfig("full", linear=True, activation="drop")
    binary = binarize(model, config)
    assert [type(module).__name__ for module in binary] == [
        "Linear", "Identity", "Linear", "BatchNorm1d", "ReLU", "BatchNorm1d", "Linear", "ReLU",
    ]  # fmt: skip
    assert [binary[i].precision for i in (0, 2, 6)] == ["full"] * 3


def test_relu_is_found_by_tracing():
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch_geometric.nn.GraphConv(6, 8)
            self.norm = nn.BatchNorm1d(8)
            self.second = torch_geometric.nn.SAGEConv(8, 8)
            self.third = torch_geometric.nn.GCNConv(8, 3)

        def forward(self, x, edge_index):
            x = self.norm(self.first(x, edge_index).relu())  # a norm behind it: half of the bits
            x = functional.dropout(torch.relu(self.second(x, edge_index)), 0.5, self.training)
            return self.third(x, edge_index).relu()

    layers = {"first": "FBB+BBB", "second": "BBB+BBB", "third": "BBF+FBF"}
    with pytest.warns(UserWarning, match=r"ReLU \(relu_1\) feeds the sign of third:") as found:
        binary = binarize(Late(), GraphConfig(layers=layers))
    assert len([w for w in found if "feeds the sign" in str(w.message)]) == 1
    assert binary.first.precision == "FBB+BBB"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert binarize(Late(), "bin").first.precision == "bin"


def test_nothing_is_guessed_of_code_that_cannot_be_traced():
    class Wild(Net):
        def forward(self, x, edge_index):
            if x.sum() > 0:
                x = x + 1
            return self.second(self.first(x, edge_index).relu(), edge_index)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        binarize(Wild(), "full")
        binarize(Wild(), "FBF+FBF")


def test_options_of_every_layer_survive():
    class Many(nn.Module):
        def __init__(self):
            super().__init__()
            nn_ = torch_geometric.nn
            self.layers = nn.ModuleList(
                [
                    nn_.SAGEConv(6, 8, aggr="sum", root_weight=False, bias=False),
                    nn_.SAGEConv((8, 8), 8, normalize=True, project=True),
                    nn_.GraphConv(8, 8, aggr="mean", bias=False, flow="target_to_source"),
                    nn_.GCNConv(8, 8, add_self_loops=False, normalize=False),
                ]
            )
            self.last = nn_.Linear(8, 3, bias=False)

        def forward(self, x, edge_index):
            for layer in self.layers:
                x = layer(x, edge_index)
            return self.last(x)

    model = Many()
    precision = LayerPrecision("FBF", "FBF", surrogate="approx", output_norm="batch")
    config = GraphConfig(precision, linear=True)
    with pytest.warns(UserWarning, match="project=True feeds the sign through a ReLU"):
        binary = binarize(model, config)
    assert binary.layers[0].root_weight is False
    assert binary.layers[0].aggr == "sum"
    assert binary.layers[1].project
    assert binary.layers[1].normalize
    assert binary.layers[2].flow == "target_to_source"
    assert not binary.layers[3].normalize
    assert all(layer.letters.output_norm == "batch" for layer in binary.layers)
    assert isinstance(binary.last, Linear)
    assert report_of(binary).swapped["last"] == "full"
    kept = model.state_dict()
    assert all(torch.equal(binary.state_dict()[name], kept[name]) for name in kept)


def test_a_layer_alone_and_a_layer_by_name():
    assert isinstance(binarize(torch_geometric.nn.GCNConv(6, 3), "full"), GCNConv)
    binary = binarize(Net(), GraphConfig("full", layers={"head": "BBF"}))
    assert binary.head.precision == "BBF"


def test_what_cannot_be_done_is_said():
    with pytest.raises(ValueError, match="no GCNConv, SAGEConv or GraphConv to swap"):
        binarize(nn.ReLU())
    with pytest.raises(ValueError, match=r"is named \['third'\], the model has \['first', 'head',"):
        binarize(Net(), GraphConfig(skip=("third",)))
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module, got str"):
        binarize("model")
    with pytest.raises(ValueError, match=r"activation must be one of .* got 'swish'"):
        GraphConfig(activation="swish")
    with pytest.raises(ValueError, match="precision must be 'fp32', 'full', 'bin' or letters"):
        binarize(Net(), "binary")
    with pytest.raises(ValueError, match=r"'FBB\+FBF': the output of BMM \(B\) must be"):
        binarize(Net(), "FBB+FBF")
    with pytest.raises(ValueError, match="model must have binary layers"):
        report_of(nn.Linear(3, 3))


def test_what_cannot_be_frozen_is_said():
    with pytest.raises(
        ValueError, match=r"GCN has no binary layer; binarize.* its layers are convs.0: GCNConv"
    ):
        freeze(GCN(6, 8, 3))
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module, got str"):
        freeze("model")
    with pytest.raises(ValueError, match="1 precisions for 2 layers"):
        freeze(GCN(6, 8, 3, precision="bin"), plan=["FBF+FBF"])
    with pytest.raises(ValueError, match=r"plan names \['conv'\], the model has the layers"):
        freeze(GCN(6, 8, 3, precision="bin"), plan={"conv": "FBF+FBF"})
    with pytest.raises(ValueError, match=r"'BBB\+FBF': the output of BMM"):
        freeze(GCN(6, 8, 3, precision="bin"), plan=["BBB+FBF", "FBF+FBF"])
    with pytest.raises(ValueError, match=r"layer 'GCNConv' has no weight yet"):
        freeze(GCNConv(-1, 3, precision="full"))
    two_places = GCN(6, 8, 3, precision="bin")
    two_places.convs[1].to("meta")
    with pytest.raises(ValueError, match=r"one device, got .*on cpu.* on meta"):
        freeze(two_places)


class _Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(6, 3, precision="full")
        self.head = GCNConv(3, 3, precision="full")


class _Branches(_Base):
    def forward(self, x, edge_index):
        return self.conv(x if x.sum() > 0 else -x, edge_index)


class _Pair(_Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index), x


class _TwoGraphs(_Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index.flip(0))


class _TwoFeatures(_Base):
    def forward(self, x, y, edge_index):
        return self.conv(x + y, edge_index)


class _Bipartite(_Base):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv((6, 6), 3, precision="full")

    def forward(self, x, edge_index):
        return self.conv((x, x[:2]), edge_index)


class _WrongWidth(_Base):
    def forward(self, x, edge_index):
        return self.head(self.conv(torch.cat([x, x], dim=1), edge_index), edge_index)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (_Branches, r"line \d+, `.*`: it decides by values that are known in a call alone"),
        (_TwoGraphs, "layer 'conv' is given a graph that the forward computes"),
    ],
)
def test_forwards_without_a_trace_keep_their_code(kind, reason):
    model = kind().eval()
    with pytest.warns(UserWarning, match=reason):
        frozen = freeze(model, check=False)
    assert isinstance(frozen, FrozenLayers)
    assert set(frozen.report.letters) == {"conv", "head"}
    x = torch.randn(5, 6)
    with torch.no_grad():
        torch.testing.assert_close(frozen(x, EDGES), model(x, EDGES))


def test_forwards_of_several_inputs_and_outputs():
    x, y = torch.randn(2, 5, 6)
    with torch.no_grad():
        for model, inputs in ((_Pair(), (x, EDGES)), (_TwoFeatures(), (x, y, EDGES))):
            frozen = freeze(model.eval(), check=False)
            assert type(frozen) is FrozenModel
            torch.testing.assert_close(frozen(*inputs), model(*inputs))


def test_bipartite_pairs_keep_the_code_of_the_forward():
    model, x = _Bipartite().eval(), torch.randn(5, 6)
    edges = torch.tensor([[0, 4, 2, 3], [1, 0, 1, 1]])
    with pytest.warns(UserWarning, match="layer 'conv' is given a bipartite pair"):
        frozen = freeze(model, check=False)
    with torch.no_grad():
        torch.testing.assert_close(frozen(x, edges), model(x, edges))


def test_mismatched_width_is_named():
    model = _WrongWidth()
    model.head = GCNConv(4, 3, precision="full")
    with pytest.raises(ValueError, match="layer 'head' takes 4 features, gets 3"):
        freeze(model)


def test_freezing_leaves_the_model_as_it_was():
    model = GCN(6, 8, 3, precision="bin", dropout=0.5).train()
    model.norm.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    frozen = freeze(model)
    assert model.training
    assert not model.norm.training
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
    copied = copy.deepcopy(frozen)
    x = torch.randn(5, 6)
    expected = frozen(x, EDGES)
    for buffer in frozen.buffers():
        buffer.zero_()
    assert torch.equal(copied(x, EDGES), expected)
