"""The example of binarize(): how the forward takes it, what is found, and what stays."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data

import bitgnn
from bitgnn.nn.bwta_linear import ActivationQuantizer

N = 40
X = torch.randn(N, 6, generator=torch.Generator().manual_seed(0))
EDGES = torch.randint(0, N, (2, 120), generator=torch.Generator().manual_seed(1))
DATA = Data(x=X, edge_index=EDGES)


class TakesData(nn.Module):
    """Reads the object itself."""

    def __init__(self):
        super().__init__()
        self.c1, self.norm, self.c2 = pyg.GCNConv(6, 8), nn.BatchNorm1d(8), pyg.GCNConv(8, 3)

    def forward(self, data):
        return self.c2(self.norm(self.c1(data.x, data.edge_index)), data.edge_index)


class TakesTensors(TakesData):
    """Takes what it reads."""

    def forward(self, x, edge_index, edge_weight=None):
        return self.c2(self.norm(self.c1(x, edge_index, edge_weight)), edge_index, edge_weight)


class Decides(TakesTensors):
    """No trace follows this one."""

    def forward(self, x, edge_index):
        return super().forward(x if float(x.sum()) > 1e9 else -x, edge_index)


class DecidesOnData(TakesData):
    """Nor this one."""

    def forward(self, batch):
        assert float(batch.x.sum()) < 1e9
        return super().forward(batch)


CALL = "x, edge_index -> x"
SEQUENCE = [(pyg.GCNConv(6, 8), CALL), nn.ReLU(), (pyg.GCNConv(8, 3), CALL)]
EXAMPLES = {
    "data": (TakesData, DATA),
    "data of tensors": (TakesTensors, DATA),
    "tuple": (TakesTensors, (X, EDGES)),
    "list": (TakesTensors, [X, EDGES]),
    "mapping": (TakesTensors, {"edge_index": EDGES, "x": X}),
    "untraced": (Decides, DATA),
    "untraced data": (DecidesOnData, DATA),
    "ready-made": (lambda: pyg.GCN(6, 8, 2, 3), DATA),
    "sequential": (lambda: pyg.Sequential("x, edge_index", SEQUENCE), DATA),
}


def _layers(model):
    return [m for m in model.modules() if isinstance(m, bitgnn.nn.GCNConv)]


@pytest.mark.parametrize("case", EXAMPLES)
def test_layers_look_at_the_example_and_find_their_role(case):
    make, example = EXAMPLES[case]
    model = make()
    kept = copy.deepcopy(model.state_dict())
    for binary in (bitgnn.binarize(model, "bin", example=example), bitgnn.binarize(model, example)):
        first, last = _layers(binary)
        assert (first.precision, first.input_bits.kind) == ("bin", "rows")
        assert (last.precision, last.input_bits.kind) == ("bin", "activation")
        assert (first.role, last.role) == ("first", "last")
        assert first.lin.weight.size(1) == 6
    assert all(torch.equal(model.state_dict()[name], value) for name, value in kept.items())


def test_nothing_else_changes():
    model = TakesTensors()
    model.norm.eval()
    model.c1.lin.weight.grad = torch.ones_like(model.c1.lin.weight)
    model.c2.cached = True
    torch.manual_seed(7)
    bitgnn.binarize(model, "bin")
    expected = torch.rand(3)
    torch.manual_seed(7)
    binary = bitgnn.binarize(model, "bin", example=DATA)
    assert torch.equal(torch.rand(3), expected)
    assert (binary.training, binary.norm.training, binary.c1.training) == (True, False, True)
    for norm in (binary.norm, binary.c1.hidden_norm):
        assert norm.num_batches_tracked.item() == 0
        assert bool((norm.running_mean == 0).all())
    assert binary.c2._cached_edge_index is None
    assert all(p.grad is None for p in binary.c2.parameters())
    assert all(not bool(layer.input_bits.present.any()) for layer in _layers(binary))


def test_an_example_finds_what_the_first_batch_finds():
    found = []
    for example in (DATA, None):
        torch.manual_seed(0)
        found.append(bitgnn.binarize(TakesTensors(), "bin", example=example))
    found[1](X, EDGES).sum().backward()
    for one, other in zip(*map(_layers, found), strict=True):
        assert (one.role, one.input_bits.kind) == (other.role, other.input_bits.kind)
        assert torch.equal(one.input_bits.form, other.input_bits.form)
        assert one.lin.weight.shape == other.lin.weight.shape


@pytest.mark.parametrize("example", [None, DATA])
def test_an_example_starts_the_scales_of_ternary_activations(example):
    binary = bitgnn.binarize(TakesTensors(), precision="TBF+TBF", example=example)
    quantizers = [m for m in binary.modules() if isinstance(m, ActivationQuantizer)]
    assert [(q.is_set, q.training) for q in quantizers] == [(example is not None, True)] * 4
    assert example is None or all(float(q.scale.detach()) > 0 for q in quantizers)


class Codes(nn.Module):
    """No forward."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.GCNConv(6, 8)

    def encode(self, x, edge_index):
        return self.conv(x, edge_index)


class Edges(TakesTensors):
    """Needs what the data lacks."""

    def forward(self, x, edge_index, edge_attr):
        return super().forward(x + edge_attr.sum(), edge_index)


REFUSED = [
    (lambda: bitgnn.binarize(TakesData(), DATA, example=DATA), TypeError,
     "example must be given once, got Data as config and Data as example$"),
    (lambda: bitgnn.binarize(TakesData(), "bin", example=3), TypeError,
     "example must be a Data object, a tensor, a tuple or a mapping .* got int$"),
    (lambda: bitgnn.binarize(Codes(), "bin", example=DATA), ValueError,
     "example must be None for Codes, which has no forward; its first training batch"),
    (lambda: bitgnn.binarize(Edges(), "bin", example=DATA), ValueError,
     "example must have edge_attr, which the forward of Edges takes, got Data"),
    (lambda: bitgnn.binarize(TakesTensors(), "bin", example=(X[:, :4], EDGES)), ValueError,
     "example must be what the forward of TakesTensors takes, which raised ValueError: GCNConv"),
    (lambda: bitgnn.binarize(nn.Sequential(nn.Linear(6, 6)), bitgnn.BWTAConfig(), example=X),
     ValueError,
     "example must be None with a BWTAConfig, which takes inputs as calibration, got Tensor$"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED)
def test_what_is_no_example_is_said_in_one_sentence(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
