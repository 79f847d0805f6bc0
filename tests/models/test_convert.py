"""binarize() and freeze() on module trees of all kinds."""

import pytest
import torch
import torch_geometric.nn
from torch import nn

from bitgnn.convert import BinarizeConfig, binarize, freeze, report_of
from bitgnn.models import GCN
from bitgnn.nn import GCNConv

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


def test_layers_are_swapped_and_weights_kept():
    model = Net()
    with pytest.warns(UserWarning, match=r"ReLU .* feeds the sign of second"):
        binary = binarize(model, BinarizeConfig(dropout=0.25))
    assert isinstance(binary.first, GCNConv)
    assert binary.first.precision == "bin"
    assert binary.second.precision == "BBF+FBF"
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
    with pytest.warns(UserWarning, match=r"ReLU \(act\)"):
        binarize(loud, "full")


def test_skip_and_single_layers():
    config = BinarizeConfig(precision="full", skip=("first",), layers={"second": "FBB+BBF"})
    model = Net()
    binary = binarize(model, config)
    assert type(binary.first) is torch_geometric.nn.GCNConv
    assert binary.second.precision == "bin"
    assert report_of(binary).left["first"] == "named in skip"


def test_own_model_changes_form_as_a_whole():
    model = GCN(6, 8, 3, precision="fp32").eval()
    binary = binarize(model, "bin")
    assert binary.precision == "bin"
    assert torch.equal(binary.convs[1].lin.weight, model.convs[1].lin.weight)
    assert report_of(binary).swapped == {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}


def test_what_cannot_be_done_is_said():
    with pytest.raises(ValueError, match="no GCNConv to swap"):
        binarize(nn.Linear(3, 3))
    with pytest.raises(ValueError, match=r"no GCNConv named \['third'\]"):
        binarize(Net(), BinarizeConfig(skip=("third",)))
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module, got str"):
        binarize("model")
    with pytest.raises(ValueError, match="not made by binarize"):
        report_of(nn.Linear(3, 3))
    with pytest.raises(ValueError, match="the model has precision 'fp32'"):
        freeze(GCN(6, 8, 3))
    with pytest.raises(TypeError, match=r"must be a bitgnn.models.GCN, got Linear"):
        freeze(nn.Linear(3, 3))
    with pytest.raises(ValueError, match="1 letter pairs for 2 layers"):
        freeze(GCN(6, 8, 3, precision="bin"), plan=["FBF+FBF"])
    with pytest.raises(ValueError, match=r"'FBF\+FFF' cannot be frozen"):
        freeze(GCN(6, 8, 3, precision="bin"), plan=["FBF+FFF", "FBF+FBF"])
