"""freeze() where no trace goes: forwards that decide by values, maps inside of GIN layers."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import bitgnn
from bitgnn.inference import FrozenModel
from bitgnn.models import GCN
from bitgnn.nn import GCNConv, SAGEConv

N = 40
X = torch.randn(N, 6, generator=torch.Generator().manual_seed(0))
EDGES = torch.randint(0, N, (2, 120), generator=torch.Generator().manual_seed(1))


def _maps(first, last):
    return nn.Sequential(
        nn.Linear(first, last), nn.BatchNorm1d(last), nn.Hardtanh(), nn.Linear(last, last)
    )


class OwnGIN(pyg.MessagePassing):
    """A class of the user's, which has no binary form; the maps inside of it have."""

    def __init__(self, maps):
        super().__init__(aggr="add")
        self.nn = maps

    def forward(self, x, edge_index):
        return self.nn(x + self.propagate(edge_index, x=x))


class Own(nn.Module):
    """GIN layers of one's own; with a GCN layer in front of them or without."""

    def __init__(self, with_gcn=False):
        super().__init__()
        self.front = pyg.GCNConv(6, 6) if with_gcn else None
        self.c1, self.c2 = OwnGIN(_maps(6, 8)), OwnGIN(_maps(8, 3))

    def forward(self, x, edge_index):
        if self.front is not None:
            x = self.front(x, edge_index)
        return self.c2(self.c1(x, edge_index), edge_index)


MODELS = {
    "own": (Own, {"linear": True}, 4),
    "one map": (Own, {"layers": {"c1.nn.3": "FBF"}}, 1),
    "one layer": (lambda: OwnGIN(_maps(6, 8)), {"linear": True}, 2),
}


def _trained(make, options):
    torch.manual_seed(0)
    model = bitgnn.binarize(make(), bitgnn.GraphConfig("full", **options))
    for _ in range(3):
        model(X, EDGES).square().sum().backward()
    return model.eval()


@pytest.mark.parametrize("case", MODELS)
def test_each_map_is_packed(case, tmp_path):
    make, options, count = MODELS[case]
    model = _trained(make, options)
    with pytest.warns(UserWarning, match="its binary layers belong to graph layers without a bin"):
        frozen = bitgnn.freeze(model)
    assert frozen.kind == "layers"
    names = {name for name, m in model.named_modules() if isinstance(m, bitgnn.nn.Linear)}
    assert set(frozen.report.letters) == names
    assert len(names) == count
    expected = model(X, EDGES)
    torch.testing.assert_close(frozen(X, EDGES), expected)
    bitgnn.save(frozen, tmp_path / "gin")
    torch.testing.assert_close(bitgnn.load(tmp_path / "gin", make())(X, EDGES), expected)


def test_maps_in_layers_of_pyg_have_a_trace(tmp_path):
    model = _trained(lambda: pyg.EdgeCNN(6, 8, 2, out_channels=3, act=None), {"linear": True})
    frozen = bitgnn.freeze(model)
    assert isinstance(frozen, FrozenModel)
    assert len(frozen.report.letters) == 4
    assert torch.equal(frozen(X, EDGES), model(X, EDGES))
    assert torch.equal(bitgnn.load(bitgnn.save(frozen, tmp_path))(X, EDGES), model(X, EDGES))


@pytest.mark.parametrize(
    ("with_gcn", "output"), [(True, None), (False, "classes")], ids=["other layers", "an output"]
)
def test_what_needs_a_trace_has_one(with_gcn, output, tmp_path):
    model = _trained(lambda: Own(with_gcn), {"linear": True})
    frozen = bitgnn.freeze(model, output=output)
    assert "it runs as its own code" in frozen.report.floats["c1"]
    read = bitgnn.load(bitgnn.save(frozen, tmp_path), Own(with_gcn))
    assert torch.equal(read(X, EDGES), frozen(X, EDGES))
    assert isinstance(frozen, FrozenModel)
    assert frozen.report.letters["c2.nn.3"] == "FBF"
    assert frozen.report.letters.get("front", "FIF+FBF") == "FIF+FBF"
    scores = model(X, EDGES)
    expected = scores if output is None else scores.argmax(1)
    torch.testing.assert_close(frozen(X, EDGES), expected)


def test_a_model_without_binary_layers_says_so():
    with pytest.raises(ValueError, match=r"GIN has no binary layer; binarize\(\) it and train"):
        bitgnn.freeze(pyg.GIN(6, 8, 2))


@pytest.mark.filterwarnings("ignore:SAGEConv. aggr")
@pytest.mark.parametrize(
    "make", [lambda: pyg.GraphSAGE(6, 8, 2, 3, aggr="max"), lambda: pyg.SAGEConv(6, 3, aggr="max")]
)
def test_layers_that_all_aggregate_floats(make, tmp_path):
    torch.manual_seed(0)
    model = bitgnn.binarize(make())
    model(X, EDGES)
    model.eval()
    with pytest.warns(UserWarning, match=r"own code \(aggr='max' is neither a sum nor a mean\)"):
        frozen = bitgnn.freeze(model)
    assert not frozen.report.letters
    assert torch.equal(frozen(X, EDGES), model(X, EDGES))
    read = bitgnn.load(bitgnn.save(frozen, tmp_path))
    assert torch.equal(read(X, EDGES), frozen(X, EDGES))
    assert str(read.report) == str(frozen.report)


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


KEPT = [
    (lambda s, x, e: s.conv(x if x.sum() > 0 else -x, e), None,
     r"line \d+, `.*`: it decides by values that are known in a call alone"),
    (lambda s, x, e: s.conv(x, e.flip(0)), None,
     "layer 'conv' is given a graph that the forward computes"),
    (lambda s, x, e: s.conv((x, x[:2]), e), SAGEConv((6, 6), 3, precision="full"),
     "layer 'conv' is given a bipartite pair"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "conv", "reason"), KEPT)
def test_forwards_without_a_trace_keep_their_code(code, conv, reason):
    model, edges = _Graphs(code, conv).eval(), EDGES % 2 if conv is not None else EDGES
    with pytest.warns(UserWarning, match=reason):
        frozen = bitgnn.freeze(model, check=False)
    assert frozen.kind == "layers"
    assert set(frozen.report.letters) == {"conv", "head"}
    with torch.no_grad():
        torch.testing.assert_close(frozen(X, edges), model(X, edges))


def test_forwards_of_several_inputs_and_outputs():
    pair = _Graphs(lambda s, x, e: (s.conv(x, e), x))
    with torch.no_grad():
        for model, inputs in ((pair, (X, EDGES)), (_TwoFeatures(None), (X, X.flip(0), EDGES))):
            frozen = bitgnn.freeze(model.eval(), check=False)
            assert type(frozen) is FrozenModel
            torch.testing.assert_close(frozen(*inputs), model(*inputs))


def test_a_width_that_does_not_fit_names_the_layer():
    model = _Graphs(lambda s, x, e: s.head(s.conv(torch.cat([x, x], 1), e), e), last=4)
    with pytest.raises(ValueError, match="layer 'head' takes 4 features, gets 3"):
        bitgnn.freeze(model)


def test_freezing_leaves_the_model_as_it_was():
    model = GCN(6, 8, 3, precision="bin", dropout=0.5).train()
    model.norm.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    frozen = bitgnn.freeze(model)
    assert (model.training, model.norm.training) == (True, False)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
    copied = copy.deepcopy(frozen)
    expected = frozen(X, EDGES)
    for buffer in frozen.buffers():
        buffer.zero_()
    assert torch.equal(copied(X, EDGES), expected)
