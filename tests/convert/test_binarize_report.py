"""The report of binarize(): what each layer is, at the time of the question."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import bitgnn
from bitgnn import BWTAConfig, GraphConfig, report_of
from bitgnn.convert import LayerReport
from bitgnn.nn import GCNConv, LayerPrecision, Linear

N = 40
X = torch.randn(N, 6, generator=torch.Generator().manual_seed(0))
EDGES = torch.randint(0, N, (2, 120), generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    """A hidden layer, a last one, and a head that stays in floats."""

    def __init__(self):
        super().__init__()
        self.c1, self.c2 = pyg.GCNConv(6, 8, bias=False), pyg.SAGEConv(8, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x, edge_index):
        return self.head(self.c2(self.c1(x, edge_index).relu(), edge_index))


def test_roles_and_bits_are_told_once_they_are_known():
    binary = bitgnn.binarize(Net(), "bin")
    reason = "precision of the model; its role follows from the first forward in training"
    norm = ("batch norm or gain",)
    early = report_of(binary).layers
    assert early[0] == LayerReport(
        "c1", "GCNConv", "bin", "not known yet", "not looked at yet", norm, reason
    )
    # 6 x 8 are 8-bit integers, twice 8 x 4 are bits, 4 x 2 are floats.
    assert report_of(binary).float_share == pytest.approx(8 / 120)
    binary(X, EDGES).sum().backward()
    first, last = report_of(binary).layers
    assert first == LayerReport(
        "c1", "GCNConv", "bin", "first", "rows", ("batch norm",),
        "precision of the model; it reads features, a binary layer its result",
    )  # fmt: skip
    assert last == LayerReport(
        "c2", "SAGEConv", "bin", "last", "activation", ("gain",),
        "precision of the model; it reads a binary layer's result, no binary layer its own",
    )  # fmt: skip
    assert report_of(binary).float_share == pytest.approx(8 / 120)
    again = bitgnn.binarize(Net(), "bin")
    again.load_state_dict(binary.state_dict())
    for one in (copy.deepcopy(binary), again):
        assert report_of(one).layers == (first, last)
    lines = str(report_of(binary)).splitlines()
    assert lines[0].split() == ["layer", "class", "precision", "role", "input", "added", "why"]
    assert lines[1].startswith("c1     GCNConv   bin        first  rows")
    assert lines[2].startswith("c2     SAGEConv  bin        last   activation")
    assert lines[0].index("why") == lines[2].index("precision of the model")
    assert lines[3].startswith("head: left alone, Linear is swapped with linear=True")
    assert lines[4].endswith(" % of the weights stay float")


def test_letters_have_no_role_and_say_who_asked():
    config = GraphConfig("bin", layers={"c2": "FBF+FBF", "head": "BBF"})
    binary = bitgnn.binarize(Net(), config, example=(X, EDGES))
    rows = {layer.name: layer for layer in report_of(binary).layers}
    assert (rows["c2"].precision, rows["c2"].role, rows["c2"].inputs) == ("FBF+FBF", "", "signs")
    assert (rows["head"].precision, rows["head"].why) == ("BBF", "named in layers")
    named = bitgnn.binarize(Net(), GraphConfig("full", {"c2": "bin"}), example=(X, EDGES))
    assert named.c2.input_bits.kind == "activation"
    assert report_of(named).layers[1].precision == "bin"
    normed = bitgnn.binarize(Net(), LayerPrecision("FBF", "FBF", output_norm="batch"))
    assert report_of(normed).layers[0].added == ("batch norm",)


def test_other_schemes_have_their_layers_in_it():
    images = bitgnn.binarize(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)))
    assert [layer.inputs for layer in report_of(images).layers] == ["fixed point", "signs"]
    whole = bitgnn.binarize(bitgnn.models.GCN(6, 8, 3, precision="fp32"), "bin")
    assert [layer.precision for layer in report_of(whole).layers] == ["FBB+BBB", "BBF+FBF"]
    stack = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    ternary = report_of(bitgnn.binarize(stack, BWTAConfig()))
    assert ternary.float_share == pytest.approx(2 / 3)
    assert "1: now " in str(ternary)
    assert report_of(bitgnn.binarize(Net(), GraphConfig("full", linear=True))).float_share == 0
    (layer,) = report_of(nn.Sequential(Linear(4, 4), GCNConv(4, 3))).layers
    assert (layer.name, layer.precision, layer.role) == ("1", "bin", "not known yet")
    with pytest.raises(ValueError, match="model must have binary layers"):
        report_of(nn.Linear(4, 4))


@pytest.mark.parametrize(
    ("layers", "kind", "message"),
    [
        ({"c1": "FBX+FBF"}, ValueError, r"binarize: layers\['c1'\]: precision must be 'fp32', .*X"),
        ({"c2": "FBB+FBF"}, ValueError, r"binarize: layers\['c2'\]: precision 'FBB\+FBF': the out"),
        ({"head": 3}, TypeError, r"binarize: layers\['head'\]: precision must be a string .* int$"),
        ({"head": "FB"}, ValueError, r"binarize: layers\['head'\]: .* three letters .* 'FB'$"),
    ],
)
def test_a_wrong_precision_of_a_layer_names_the_layer(layers, kind, message):
    with pytest.raises(kind, match=message):
        bitgnn.binarize(Net(), GraphConfig("full", layers))
