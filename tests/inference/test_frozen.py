"""Thresholds of frozen models are exact; bad inputs are named."""

import pytest
import torch
from torch import nn

from bitgnn import BitTensor
from bitgnn.convert import freeze
from bitgnn.inference import sign_threshold


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
    with pytest.raises(ValueError, match="x must have 75 features, got 74"):
        frozen(features[:, :-1], adjacency)
    with pytest.raises(ValueError, match="adjacency has 120 nodes, x has 119"):
        frozen(features[:-1], adjacency)
    with pytest.raises(ValueError, match="must carry a row scale"):
        frozen(BitTensor.from_float(features), adjacency)
    with pytest.raises(ValueError, match=r"x must be \[N, 75\], got \[120, 74\]"):
        frozen.pack_features(features[:, :-1])
    broken = features.clone()
    broken[5, 5] = float("nan")
    with pytest.raises(ValueError, match="x must be finite"):
        frozen.pack_features(broken, check_finite=True)
    frozen.pack_features(broken)  # unchecked: NaN counts as -1
