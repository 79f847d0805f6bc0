"""Calls of binarize(): keywords, and one clear sentence for what cannot be."""

import subprocess
import sys
import warnings

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import bitgnn
from bitgnn import BWTAConfig, GraphConfig, ImageConfig, report_of
from bitgnn.nn import LayerPrecision

EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 4, 4]])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = pyg.GCNConv(6, 8), pyg.GCNConv(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x, edge_index):
        return self.head(self.c2(self.c1(x, edge_index), edge_index))


def test_a_configuration_or_just_a_precision():
    binary = bitgnn.binarize(Net(), GraphConfig("full", linear=True, dropout=0.25, skip="c1"))
    assert report_of(binary).swapped == {"c2": "full", "head": "full"}
    assert report_of(binary).left == {"c1": "named in skip"}
    assert binary.c2.dropout == 0.25
    assert bitgnn.binarize(Net(), "full").c1.precision == "full"
    assert bitgnn.binarize(Net(), precision="full").c1.precision == "full"
    both = bitgnn.binarize(Net(), GraphConfig("full", linear=True, skip=["c1", "c2"]))
    assert report_of(both).swapped == {"head": "full"}
    named = bitgnn.binarize(Net(), GraphConfig("fp32", layers={"c2": "full"}))
    assert named.c2.precision == "full"
    normed = LayerPrecision("FBF", "FBF", output_norm="batch")
    act = bitgnn.binarize(pyg.GCN(6, 8, 2), GraphConfig(normed, activation="drop"))
    assert isinstance(act.act, nn.Identity)
    assert act.convs[0].letters.output_norm == "batch"


def _compiled_inside():
    model = Net()
    model.c1 = torch.compile(model.c1)
    return model


def _frozen():
    return bitgnn.freeze(bitgnn.binarize(Net(), "full"), check=False)


def _export(model, path):
    bitgnn.exchange.export_parameters(model, path)


REFUSED = [
    (lambda: GraphConfig(skpi="c1"), TypeError,
     "GraphConfig: fields are precision, layers, skip, .* got skpi$"),
    (lambda: GraphConfig(calibration=torch.ones(1)), TypeError,
     r"got calibration \(a field of BWTAConfig\)$"),
    (lambda: BWTAConfig(linear=True), TypeError,
     r"BWTAConfig: fields are layers, .* got linear \(a field of GraphConfig\)$"),
    (lambda: bitgnn.binarize(Net(), ImageConfig()), ValueError,
     "must be of type GraphConfig for a model with graph layers, got ImageConfig$"),
    (lambda: bitgnn.binarize(Net(), "bin", precision="full"), TypeError,
     "precision must be given once, got 'bin' and precision='full'$"),
    (lambda: GraphConfig(precision="fp32"), ValueError,
     "precision must be a binary one where layers names none, got 'fp32'"),
    (lambda: GraphConfig(layers={"c1": "full"}, skip="c1"), ValueError,
     r"\['c1'\] must be in layers or in skip, not in both$"),
    (lambda: GraphConfig(layers="c1"), TypeError, "layers must map precisions by"),
    (lambda: GraphConfig(skip=3), TypeError, "skip must be module names, got 3$"),
    (lambda: GraphConfig(dropout=1.5), ValueError, r"must be in \[0, 1\), got 1.5$"),
    (lambda: bitgnn.binarize(Net), TypeError, "Module, got the class Net$"),
    (lambda: bitgnn.binarize(_frozen()), TypeError,
     "binarize: model is frozen already, a FrozenModel; pass the model that was frozen$"),
    (lambda: bitgnn.binarize(_compiled_inside()), TypeError,
     r"model\.c1 must not be compiled yet, .*\(model\.c1\._orig_mod\)"),
    (lambda: bitgnn.binarize(Net(), GraphConfig(skip=("c1", "c2"))), ValueError,
     r"c1 stays in floats, named in skip; .* GraphConfig\(linear=True\) swaps its .* \(head\)$"),
    (lambda: bitgnn.binarize(pyg.GAT(6, 8, 2)), ValueError,
     r"GATConv \(convs\.0, convs\.1\) has no binary form; GraphConfig\(linear=True\) sw"),
    (lambda: bitgnn.binarize(pyg.GINConv(nn.Sequential(nn.Linear(6, 8)))), ValueError,
     r"GINConv \(the model itself\) has no binary form; GraphConfig\(linear=True.* \(nn\.0\)$"),
    (lambda: bitgnn.binarize(pyg.RGCNConv(6, 8, 2)), ValueError,
     r"RGCNConv \(the model itself\) has no binary form$"),
    (lambda: bitgnn.binarize(nn.Sequential(nn.BatchNorm1d(3))), ValueError, "it has BatchNorm1d$"),
    (lambda: _export(bitgnn.binarize(Net(), "full"), "nowhere"), ValueError,
     r"must be a network of images, .* got Net, which has none \(a model of graph layers is"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED)
def test_what_cannot_be_is_said_in_one_sentence(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile])
def test_wrapped_models_are_unwrapped(wrap):
    binary = bitgnn.binarize(wrap(Net()), "full")
    assert type(binary) is Net
    assert report_of(binary).swapped == {"c1": "full", "c2": "full"}


class Flagged(Net):
    """A ReLU in a branch that a trace follows."""

    def __init__(self, flag, act=None):
        super().__init__()
        self.flag, self.act = flag, torch.relu if act is None else act

    def forward(self, x, edge_index, count=None):
        h = self.c1(x, edge_index)
        return self.c2(h if self.flag else self.act(h), edge_index)


class Untraceable(Flagged):
    def forward(self, x, edge_index):
        return super().forward(x if x.sum() > 0 else -x, edge_index)


def test_a_relu_is_warned_of_where_a_trace_meets_it_and_the_cure_works():
    cure = r"ReLU \(relu\) feeds the sign of c2: .*; remove the call, make it an nn.ReLU, which"
    for activation in ("keep", "drop"):
        with pytest.warns(UserWarning, match=cure):
            bitgnn.binarize(Flagged(False), GraphConfig("FBF+FBF", activation=activation))
    with pytest.warns(UserWarning, match=r"ReLU \(act\) .*; remove it, set activation='drop'"):
        bitgnn.binarize(Flagged(False, nn.ReLU()), "FBF+FBF")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in (Flagged, Untraceable):
            bitgnn.binarize(kind(True), "FBF+FBF")
        bitgnn.binarize(Flagged(False), "full")  # which reads no signs
        config = GraphConfig("FBF+FBF", activation="drop")
        assert isinstance(bitgnn.binarize(Flagged(False, nn.ReLU()), config).act, nn.Identity)


def test_modules_of_the_package_are_there_without_being_imported():
    code = (
        "import bitgnn, sys; assert 'torch_geometric' not in sys.modules\n"
        "names = 'convert data exchange inference models nn quantize train tune'.split()\n"
        "assert set(names) <= set(dir(bitgnn))\n"
        "assert all(getattr(bitgnn, n).__name__ == f'bitgnn.{n}' for n in names)\n"
        "assert bitgnn.report_of is bitgnn.convert.report_of\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="module 'bitgnn' has no attribute 'converts'"):
        bitgnn.converts  # noqa: B018
