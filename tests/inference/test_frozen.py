"""Frozen models: exact thresholds, graphs that are remembered, signs, inputs that are named."""

import copy

import pytest
import torch
from chains import CLASSES, FEATURES, HIDDEN, N
from torch import nn

import bitgnn
from bitgnn import BitTensor
from bitgnn.convert import freeze
from bitgnn.inference import FrozenModel, sign_threshold
from bitgnn.nn import BWTALinear, BWTAMultiheadAttention, BWTASelfAttention, GCNConv


def test_letters_of_float_output_become_bits_before_a_sign(make_model, graph, features):
    # "FBB+BBF" in front of "BBF+FBF" looks at signs only, so it computes the same as "FBB+BBB".
    model = make_model("bin")
    other = freeze(model, plan=["FBB+BBF", "BBF+FBF"])
    assert other.report.boundaries["convs.0"] == "bits"
    assert torch.equal(other(features, graph), freeze(model)(features, graph))


def _norm(**options):
    """A batch norm of all magnitudes, with gains of both signs and 0 if it is affine."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(203, **options)
    norm.running_mean = torch.randn(203) * torch.logspace(-6, 3, 203)
    norm.running_var = torch.rand(203) * torch.logspace(-9, 4, 203)
    norm.running_mean[:3] = 0.0
    if norm.affine:
        with torch.no_grad():
            norm.weight.copy_(torch.randn(203) * torch.logspace(3, -6, 203))
            norm.weight[5::9] = 0.0
            norm.bias.copy_(torch.randn(203))
    return norm.eval()


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("before", [nn.Identity(), nn.Tanh(), nn.Hardtanh()], ids=str)
@torch.no_grad()
def test_thresholds_are_exact_around_every_decision(affine, before):
    norm = _norm(affine=affine)
    function = nn.Sequential(before, norm)
    threshold, flip = sign_threshold(function, 203)
    assert bool(flip.any()) == affine
    infinity = torch.tensor(float("inf"))
    near = threshold.clamp(-1e30, 1e30)
    rows = [near, torch.nextafter(near, -infinity), torch.nextafter(near, infinity)]
    rows += [norm.running_mean, torch.randn(203), torch.zeros(203), -torch.zeros(203)]
    rows += [1e6 * torch.randn(203), 1e-6 * torch.randn(203)]
    # Batch norm rounds by the place of a value in its row, so rows go through it one by one.
    for x in rows:
        assert torch.equal((x >= threshold) ^ flip, function(x.unsqueeze(0))[0] >= 0)


def test_constant_signs_get_infinite_thresholds():
    threshold, flip = sign_threshold(lambda v: torch.relu(v), 4)
    assert threshold.tolist() == [-float("inf")] * 4
    assert not flip.any()
    threshold, flip = sign_threshold(lambda v: torch.relu(v) * 0 - 1, 4)
    assert threshold.tolist() == [float("inf")] * 4


def test_bad_inputs_are_named(make_model, graph, features):
    frozen = freeze(make_model("full"))
    adjacency = frozen.prepare_graph(graph, len(features))
    broken = features.clone()
    broken[5, 5] = float("nan")
    for call, message in (
        (lambda: frozen(features[:, :-1], adjacency), "x must have 75 features, got 74"),
        (lambda: frozen(features[:-1], adjacency), "adjacency has 120 nodes, x has 119"),
        (lambda: frozen(BitTensor.from_float(features), adjacency), "must carry a row scale"),
        (lambda: frozen.pack_features(features[:, 1:]), r"x must be \[N, 75\], got \[120, 74\]"),
        (lambda: frozen.pack_features(broken, check_finite=True), "x must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    frozen.pack_features(broken)  # unchecked: NaN counts as -1


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = GCNConv(FEATURES, HIDDEN, precision="FBB+BBB")
        self.second = GCNConv(HIDDEN, CLASSES, precision="BBF+FBF")
        self.eval()

    def forward(self, x, edge_index, edge_weight=None):
        x = self.first(x, edge_index, edge_weight)
        return self.second(x, edge_index, edge_weight)


def test_the_graph_of_a_call_is_remembered(x, edges, monkeypatch):
    """For as long as the edges are what they were."""
    frozen, made = freeze(Weighted()), []
    weight = torch.rand(edges.size(1), generator=torch.Generator().manual_seed(3)) + 0.1
    original = FrozenModel.prepare_graph

    def counting(self, *args, **kwargs):
        made.append(1)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(FrozenModel, "prepare_graph", counting)
    first = frozen(x, edges)
    for graph, number in (
        ((edges,), 1),
        ((edges,), 1),
        ((edges, weight), 2),
        ((edges, weight), 2),
        ((edges.clone(),), 3),
        ((edges[:],), 4),  # another tensor of the same storage
        ((edges,), 5),
    ):
        assert frozen(x, *graph).equal(first) == (len(graph) == 1)
        assert len(made) == number
    view = edges[0]
    view.copy_(view.roll(1))  # noticed through a view as well
    assert not frozen(x, edges).equal(first)
    assert len(made) == 6
    edges[0] = edges[0].roll(1)
    assert not frozen(x, edges).equal(first)
    assert frozen(x, edges).equal(freeze(Weighted())(x, edges))
    assert copy.deepcopy(frozen)(x, edges).equal(frozen(x, edges))
    own = torch.randint(N, (2, 50))
    frozen(x, own)
    assert len(frozen._graph_memory) == 1
    del own
    assert len(frozen._graph_memory) == 0


class Signs(nn.Module):
    """Both attention modules between linear layers."""

    def __init__(self):
        super().__init__()
        options = {"activation": "sign"}
        self.up = BWTALinear(16, 32, **options)
        self.own = BWTASelfAttention(32, 4, 2, **options)
        self.torchs = BWTAMultiheadAttention(32, 4, batch_first=True, **options)

    def forward(self, x):
        x = self.up(x)
        x = x + self.own(x, causal=True)
        return x + self.torchs(x, x, x, need_weights=False)[0]


def test_models_whose_activations_are_signs(tmp_path):
    torch.manual_seed(0)
    model, x = Signs(), torch.randn(3, 9, 16)
    model(x)
    expected = model.eval()(x)
    frozen = bitgnn.freeze(model)
    assert torch.equal(frozen(x), expected)
    bitgnn.save(frozen, tmp_path)
    loaded = bitgnn.load(tmp_path, Signs())
    assert torch.equal(loaded(x), expected)
    assert loaded.model.own.attention.activation == "sign"
    assert loaded.model.torchs.attention.activation == "sign"
    row = next(row for row in bitgnn.summary(frozen).layers if row.name == "up")
    assert (row.activation_bits, row.weight_bits) == (1, 1)
