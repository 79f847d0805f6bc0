"""Frozen networks decide as the trained ones, for every chain of layers, letters and norms."""

import itertools
import random

import pytest
import torch
from chains import CLASSES, CONVS, FEATURES, Chain, assert_frozen_equals, precision, shake
from torch import nn

from bitgnn import BitTensor
from bitgnn.inference import call_by_call
from bitgnn.nn import Linear

LETTERS = [
    f"{bmm}+{bspmm}"
    for bmm in ("FBF", "FBB", "BBF", "BBB", "FFB", "BFF", "FFF")
    for bspmm in ("BBB", "BBF", "FBF", "FBB", "BFF", "FFB", "FFF", "BFB")
    if bmm[2] == bspmm[0] and (bmm, bspmm) != ("FFF", "FFF")
]


@pytest.mark.parametrize("letters", LETTERS)
@pytest.mark.parametrize("kind", CONVS)
def test_letters(kind, letters, x, edges):
    torch.manual_seed(1)
    model = Chain(kind, [letters, letters, "BBF+FBF"])
    assert_frozen_equals(shake(model, x, edges), x, edges)


@pytest.mark.parametrize("kind", CONVS)
@pytest.mark.parametrize("letters", ["FBF+FBF", "FBB+BBB", "BBB+BBB", "BBF+FBB", "FBB+BBF"])
@pytest.mark.parametrize(
    "options",
    [
        {"hardtanh": True},
        {"input_norm": "batch"},
        {"input_norm": "standardize", "hardtanh": True},
        {"hidden_norm": "batch"},
        {"output_norm": "batch"},
        {"input_norm": "batch", "hidden_norm": "batch", "output_norm": "batch", "hardtanh": True},
    ],
    ids=lambda options: "+".join(options),
)
def test_norms(kind, letters, options, x, edges):
    torch.manual_seed(2)
    model = Chain(kind, [precision(letters, **options)] * 2 + [precision("FBF+FBF", **options)])
    assert_frozen_equals(shake(model, x, edges), x, edges)


@pytest.mark.parametrize("kind", CONVS)
@pytest.mark.parametrize("bias", [False, True])
def test_bits_run_from_layer_to_layer(kind, bias, x, edges):
    model = Chain(kind, ["FBB+BBB", "BBB+BBB", "BBF+FBF"], bias=bias)
    frozen = assert_frozen_equals(shake(model, x, edges), x, edges)
    assert list(frozen.report.boundaries.values()) == ["bits", "bits", "floats"]
    assert not frozen.report.floats
    results = [(step.layer, found) for step, _, found in call_by_call.steps(frozen, x, edges)]
    hidden = x
    with torch.no_grad():
        for number in range(2):
            hidden = model.convs[number](hidden, edges)
            *_, last = (result for layer, result in results if layer == f"convs.{number}")
            assert isinstance(last, BitTensor)
            assert torch.equal(last.validate().to_float(), hidden)
            assert 0.05 < (hidden > 0).float().mean() < 0.95


def test_flipped_channels_meet_float_weights(x, edges):
    """A batch norm turns channels round, and with them the weights that read the bits."""
    model = Chain("gcn", [precision("FBB+BBF", output_norm="batch"), "BFF+FBF"])
    frozen = assert_frozen_equals(shake(model, x, edges), x, edges)
    kinds = [step.kind for step in frozen.program.calls]
    assert "bits_linear" in kinds
    assert "bitwise_xor" not in kinds


class Mixture(nn.Module):
    """Layers of all kinds with norms, clips and dropout between them in random order."""

    def __init__(self, draw):
        super().__init__()
        sizes = [FEATURES, *(draw([31, 32, 33, 64]) for _ in range(3))]
        self.layers = nn.ModuleList()
        for a, b in itertools.pairwise(sizes):
            letters = draw(["FBF+FBF", "FBB+BBB", "BBB+BBB", "BBB+BBF", "BBF+FBB"])
            norms = {name: draw([None, "batch"]) for name in ("hidden_norm", "output_norm")}
            between = [
                nn.Identity(), nn.BatchNorm1d(b), nn.Hardtanh(), nn.Dropout(0.3),
                nn.Sequential(nn.BatchNorm1d(b), nn.Tanh(), nn.Dropout(0.2)),
                nn.Sequential(nn.LeakyReLU(), nn.BatchNorm1d(b)), nn.LayerNorm(b),
            ]  # fmt: skip
            conv = draw(list(CONVS.values()))
            self.layers += [conv(a, b, precision=precision(letters, **norms)), draw(between)]
        self.last = draw([Linear, nn.Linear])(sizes[-1], CLASSES)

    def forward(self, x, edge_index):
        for layer in self.layers:
            x = layer(x, edge_index) if hasattr(layer, "letters") else layer(x)
        return self.last(x)


@pytest.mark.parametrize("seed", range(6))
def test_random_mixtures(seed, x, edges):
    draw = random.Random(seed).choice
    torch.manual_seed(seed)
    assert_frozen_equals(shake(Mixture(draw), x, edges, seed=seed), x, edges)
