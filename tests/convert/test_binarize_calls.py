"""binarize() on module trees of all kinds, and one clear sentence for what cannot be."""

import subprocess
import sys
import warnings

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional

import bitgnn
from bitgnn import BWTAConfig, GraphConfig, ImageConfig, binarize, freeze, report_of
from bitgnn.models import GCN
from bitgnn.nn import GCNConv, LayerPrecision, Linear, SAGEConv

EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 4, 4]])
LETTERS = ["FBB+BBB", "BBB+BBB", "BBF+FBF"]
"""Of a chain of layers that hand bits to each other; the last gives floats."""


class Net(nn.Module):
    """A hand-written PyG model, with any function between its layers."""

    def __init__(self, act=lambda x: x):
        super().__init__()
        self.c1 = pyg.GCNConv(6, 8)
        self.c2 = pyg.GCNConv(8, 8, improved=True, bias=False)
        self.head, self.act = nn.Linear(8, 3), act

    def forward(self, x, edge_index, count=None):
        return self.head(self.c2(self.act(self.c1(x, edge_index)), edge_index))


class Wild(Net):
    """No trace follows this one, of which nothing is guessed."""

    def forward(self, x, edge_index):
        return super().forward(x if x.sum() > 0 else -x, edge_index)


CHAIN = {"c1": LETTERS[0], "c2": LETTERS[2]}
SWAPS = [
    ("bin", {"c1": "bin", "c2": "bin"}),
    (GraphConfig(layers=CHAIN), CHAIN),
    ("full", {"c1": "full", "c2": "full"}),
    (GraphConfig("full", linear=True, skip="c1"), {"c2": "full", "head": "full"}),
    (GraphConfig("full", linear=True, skip=["c1", "c2"]), {"head": "full"}),
    (GraphConfig("full", {"c2": "FBB+BBF"}, skip=("c1",)), {"c2": "FBB+BBF"}),
    (GraphConfig("fp32", layers={"c2": "full"}), {"c1": "fp32", "c2": "full"}),
    (GraphConfig("FBF+FBF", layers={"c2": "bin"}), {"c1": "FBF+FBF", "c2": "bin"}),
    (GraphConfig("full", layers={"head": "BBF"}), {"c1": "full", "c2": "full", "head": "BBF"}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "swapped"), SWAPS)
def test_layers_are_swapped_and_weights_kept(config, swapped):
    model = Net()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        binary = binarize(model, config)
    assert report_of(binary).swapped == swapped
    assert set(report_of(binary).left) == {"c1", "c2", "head"} - swapped.keys()
    for name in ("c1", "c2", "head"):
        layer, before = binary.get_submodule(name), model.get_submodule(name)
        assert getattr(layer, "precision", None) == swapped.get(name)
        assert isinstance(layer, GCNConv | Linear) == (name in swapped)
        assert not isinstance(before, GCNConv | Linear)
        assert before is not layer
    assert torch.equal(binary.c1.lin.weight, model.c1.lin.weight)
    assert (binary.c2.improved, binary.c2.bias) == (True, None)
    assert binary(torch.randn(5, 6), EDGES).shape == (5, 3)


def test_a_layer_or_a_model_of_this_package_alone():
    layer = binarize(pyg.GCNConv(6, 3), GraphConfig("full", dropout=0.25))
    assert (type(layer), layer.dropout) == (GCNConv, 0.25)
    model = GCN(6, 8, 3, precision="fp32").eval()
    binary = binarize(model, "bin")
    assert binary.precision == "bin"
    assert torch.equal(binary.convs[1].lin.weight, model.convs[1].lin.weight)
    assert report_of(binary).swapped == {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}
    left = report_of(binarize(Net(), GraphConfig("full", skip="c1")))
    assert left.left["c1"] == "named in skip"
    assert "head: left alone, Linear" in str(left)


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
    binary = binarize(model, GraphConfig("FBF+FBF", linear=True, activation="drop"))
    names = "Linear Identity Linear BatchNorm1d ReLU BatchNorm1d Linear ReLU"
    assert [type(module).__name__ for module in binary] == names.split()
    assert [binary[i].precision for i in (0, 2, 6)] == ["FBF"] * 3


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


def test_relus_are_found_by_tracing_and_the_cure_works():
    config = GraphConfig(layers=dict(zip(("first", "second", "third"), LETTERS, strict=True)))
    drop = GraphConfig("FBF+FBF", activation="drop")
    cure = r"ReLU \(relu\) feeds the sign of c2: .*; remove the call, make it an nn.ReLU, which"
    named = r"ReLU \(act\) .*; remove it, set activation='drop'"
    for model, given, message in (
        (Late(), config, r"ReLU \(relu_1\) feeds the sign of third:"),
        (Net(torch.relu), "FBF+FBF", cure),
        (Net(torch.relu), drop, cure),
        (Net(nn.ReLU()), "FBF+FBF", named),
        (pyg.GCN(6, 8, 2, 3), "FBF+FBF", r"ReLU \(act\)"),
    ):
        with pytest.warns(UserWarning, match=message) as warned:
            binarize(model, given)
        assert len([w for w in warned if "feeds the sign" in str(w.message)]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Layers of named precision read no signs, or look bits up that a ReLU does not change.
        for model in (Late(), Net(torch.relu), Wild(torch.relu), pyg.GCN(6, 8, 2, 3)):
            for precision in ("bin", "full"):
                binarize(model, precision)
        binarize(Wild(torch.relu), "FBF+FBF")
        assert isinstance(binarize(Net(nn.ReLU()), drop).act, nn.Identity)


def test_options_of_every_layer_survive():
    layers = [
        pyg.SAGEConv(6, 8, aggr="sum", root_weight=False, bias=False),
        pyg.SAGEConv((8, 8), 8, normalize=True, project=True),
        pyg.GraphConv(8, 8, aggr="mean", bias=False, flow="target_to_source"),
        pyg.GCNConv(8, 8, add_self_loops=False, normalize=False),
    ]
    calls = [(layer, "x, edge_index -> x") for layer in layers]
    model = pyg.Sequential("x, edge_index", [*calls, (pyg.Linear(8, 3, bias=False), "x -> x")])
    precision = LayerPrecision("FBF", "FBF", surrogate="approx", output_norm="batch")
    with pytest.warns(UserWarning, match="project=True feeds the sign through a ReLU"):
        binary = binarize(model, GraphConfig(precision, linear=True))
    first, second, third, fourth, last = binary
    assert (first.root_weight, first.aggr) == (False, "sum")
    assert (second.project, second.normalize, fourth.normalize) == (True, True, False)
    assert third.flow == "target_to_source"
    assert all(layer.letters.output_norm == "batch" for layer in list(binary)[:4])
    assert isinstance(last, Linear)
    assert report_of(binary).swapped["module_4"] == "FBF"
    kept = model.state_dict()
    assert all(torch.equal(binary.state_dict()[name], kept[name]) for name in kept)


def _own(device="cpu"):
    model = GCN(6, 8, 3, precision="bin")
    model.convs[1].to(device)
    return model


def _compiled_inside():
    model = Net()
    model.c1 = torch.compile(model.c1)
    return model


def _frozen():
    return freeze(binarize(Net(), "full"), check=False)


def _export(model, path):
    bitgnn.exchange.export_parameters(model, path)


REFUSED = [
    (lambda: GraphConfig(skpi="c1"), TypeError,
     "GraphConfig: fields are precision, layers, skip, .* got skpi$"),
    (lambda: GraphConfig(calibration=torch.ones(1)), TypeError,
     r"got calibration \(a field of BWTAConfig\)$"),
    (lambda: BWTAConfig(linear=True), TypeError,
     r"BWTAConfig: fields are layers, .* got linear \(a field of GraphConfig\)$"),
    (lambda: binarize(Net(), ImageConfig()), ValueError,
     "must be of type GraphConfig for a model with graph layers, got ImageConfig$"),
    (lambda: binarize(Net(), "bin", precision="full"), TypeError,
     "precision must be given once, got 'bin' and precision='full'$"),
    (lambda: GraphConfig(precision="fp32"), ValueError,
     "precision must be a binary one where layers names none, got 'fp32'"),
    (lambda: GraphConfig(layers={"c1": "full"}, skip="c1"), ValueError,
     r"\['c1'\] must be in layers or in skip, not in both$"),
    (lambda: GraphConfig(layers="c1"), TypeError, "layers must map precisions by"),
    (lambda: GraphConfig(skip=3), TypeError, "skip must be module names, got 3$"),
    (lambda: GraphConfig(dropout=1.5), ValueError, r"must be in \[0, 1\), got 1.5$"),
    (lambda: binarize(Net), TypeError, "Module, got the class Net$"),
    (lambda: binarize(_frozen()), TypeError,
     "binarize: model is frozen already, a FrozenModel; pass the model that was frozen$"),
    (lambda: binarize(_compiled_inside()), TypeError,
     r"model\.c1 must not be compiled yet, .*\(model\.c1\._orig_mod\)"),
    (lambda: _export(binarize(Net(), "full"), "nowhere"), ValueError,
     r"must be a network of images, .* got Net, which has none \(a model of graph layers is"),
    (lambda: binarize(Net(), GraphConfig(skip=("third",))), ValueError,
     r"is named \['third'\], the model has \['c1', 'c2', 'head'\]"),
    (lambda: binarize("model"), TypeError, r"must be a torch.nn.Module, got str"),
    (lambda: binarize(GCN(6, 8, 3), GraphConfig(dropout=0.5)), ValueError,
     r"dropout and activation must keep .* got 0\.5 and"),
    (lambda: GraphConfig(activation="swish"), ValueError,
     r"activation must be one of .* got 'swish'"),
    (lambda: binarize(Net(), "binary"), ValueError,
     "precision must be 'fp32', 'full', 'bin' or letters"),
    (lambda: binarize(Net(), "FBB+FBF"), ValueError,
     r"'FBB\+FBF': the output of BMM \(B\) must be"),
    (lambda: report_of(nn.Linear(3, 3)), ValueError, "model must have binary layers"),
    (lambda: freeze(GCN(6, 8, 3)), ValueError,
     r"GCN has no binary layer; binarize.* its layers are convs.0: GCNConv"),
    (lambda: freeze("model"), TypeError, r"must be a torch.nn.Module, got str"),
    (lambda: freeze(_own(), plan=["FBF+FBF"]), ValueError, "1 precisions for 2 layers"),
    (lambda: freeze(_own(), plan={"conv": "FBF+FBF"}), ValueError,
     r"plan names \['conv'\], the model has the layers"),
    (lambda: freeze(_own(), plan=["BBB+FBF", "FBF+FBF"]), ValueError,
     r"'BBB\+FBF': the output of BMM"),
    (lambda: freeze(GCNConv(-1, 3, precision="full")), ValueError,
     r"layer 'GCNConv' has no weight yet"),
    (lambda: freeze(_own("meta")), ValueError, r"one device, got .*on cpu.* on meta"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED)
def test_what_cannot_be_is_said_in_one_sentence(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


UNCHANGED = [
    (Net, GraphConfig(skip=("c1", "c2")), {"c1", "c2", "head"},
     r"c1 stays in floats, named in skip; .* GraphConfig\(linear=True\) swaps its .* \(head\)$"),
    (lambda: pyg.MFConv(6, 8, 1), None, {"", "lins_l.0", "lins_l.1", "lins_r.0", "lins_r.1"},
     r"MFConv \(the model itself\) has no binary form; GraphConfig\(linear=True\) sw"),
    (lambda: pyg.GINConv(nn.Sequential(nn.ReLU(), nn.Linear(6, 8))), None, {"", "nn.1"},
     r"GINConv \(the model itself\) has no binary form; GraphConfig\(linear=True.* \(nn\.1\)$"),
    (lambda: pyg.RGATConv(6, 8, 2), "full", {""},
     r"RGATConv \(the model itself\) has no binary form$"),
    (lambda: nn.Sequential(nn.BatchNorm1d(3)), None, {"0"}, "it has BatchNorm1d$"),
    (lambda: pyg.GraphSAGE(6, 8, 1, aggr=["mean", "max"]), None, {"convs.0"},
     r"convs\.0 stays in floats, its aggregation hands on another width than the features"),
    (nn.ReLU, None, set(), "no GCNConv, SAGEConv or GraphConv to swap"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "config", "left", "message"), UNCHANGED)
def test_a_model_without_a_layer_to_swap_stays_as_it_is(make, config, left, message):
    model = make()
    with pytest.warns(UserWarning, match=f"binarize: the model stays as it is: .*{message}"):
        binary = binarize(model, config)
    assert binary is not model
    assert str(binary) == str(model)
    assert all(torch.equal(t, model.state_dict()[n]) for n, t in binary.state_dict().items())
    report = report_of(binary)
    assert (report.swapped, report.left.keys()) == ({}, left)
    assert report.float_share == (None if make in (nn.ReLU,) or "0" in left else 1.0)


def test_one_layer_that_cannot_be_swapped_never_stops_the_others():
    class Own(pyg.SAGEConv):
        def __init__(self):
            super().__init__(6, 8)
            self.extra = nn.Parameter(torch.ones(1))

    model = nn.ModuleList([Own(), pyg.GCNConv(8, 3), pyg.DirGNNConv(pyg.SAGEConv(3, 3))])
    binary = binarize(model)
    report = report_of(binary)
    assert report.swapped == dict.fromkeys(("1", "2.conv_in", "2.conv_out"), "bin")
    assert report.left["0"] == "it has further tensors, extra"
    assert binary.load_state_dict(model.state_dict(), strict=False).unexpected_keys == []


@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile])
def test_wrapped_models_are_unwrapped(wrap):
    binary = binarize(wrap(Net()), "full")
    assert type(binary) is Net
    assert report_of(binary).swapped == {"c1": "full", "c2": "full"}


def test_modules_of_the_package_are_there_without_being_imported():
    code = (
        "import bitgnn, sys; assert 'torch_geometric' not in sys.modules\n"
        "names = 'convert data exchange inference models nn quantize tune'.split()\n"
        "assert set(names) <= set(dir(bitgnn))\n"
        "assert all(getattr(bitgnn, n).__name__ == f'bitgnn.{n}' for n in names)\n"
        "assert bitgnn.report_of is bitgnn.convert.report_of\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="module 'bitgnn' has no attribute 'converts'"):
        bitgnn.converts  # noqa: B018
