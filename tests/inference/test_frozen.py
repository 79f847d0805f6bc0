"""Frozen models decide as the trained ones: classes, logits and hidden bits."""

import pytest
import torch
from torch import nn

from bitgnn import BitTensor
from bitgnn.convert import freeze
from bitgnn.inference import fold_batch_norm
from bitgnn.quantize import sgn


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("precision", ["full", "bin"])
@pytest.mark.parametrize("options", [{}, {"input_norm": False}, {"bias": False}])
def test_frozen_equals_emulated(make_model, graph, features, precision, num_layers, options):
    x = features if options.get("input_norm", True) else features - 0.4
    model = make_model(precision, num_layers, **options)
    frozen = freeze(model)
    with torch.no_grad():
        expected = model(x, graph)
    adjacency = frozen.prepare_graph(graph, len(x))
    for form in (x, frozen.pack_features(x)):
        found = frozen(form, adjacency)
        assert torch.equal(found.argmax(1), expected.argmax(1))
        assert torch.allclose(found, expected, atol=1e-4)
    assert torch.equal(frozen(x, graph), frozen(x, adjacency))
    assert expected.std(0).min() > 0  # equality of constants would prove nothing


def test_hidden_bits_are_equal(make_model, graph, features):
    model = make_model("bin", 3)
    frozen = freeze(model)
    adjacency = frozen.prepare_graph(graph, len(features))
    with torch.no_grad():
        hidden = model.norm(features)
        words, is_bits = features, False
        for conv, layer in list(zip(model.convs, frozen.layers, strict=True))[:-1]:
            hidden = conv(hidden, graph)
            words, is_bits = layer(words, adjacency, is_bits), True
            bits = BitTensor(words, layer.form.out_channels).validate()
            assert torch.equal(bits.to_float(), hidden)
            assert 0.05 < (hidden > 0).float().mean() < 0.95


def test_full_hidden_signs_are_equal(make_model, graph, features):
    model = make_model("full")
    frozen = freeze(model)
    adjacency = frozen.prepare_graph(graph, len(features))
    with torch.no_grad():
        expected = model.convs[0](model.norm(features), graph)
    assert torch.equal(sgn(frozen.layers[0](features, adjacency, False)), sgn(expected))


def test_letters_of_float_output_become_bits_before_a_sign(make_model, graph, features):
    # "FBB+BBF" in front of "BBF+FBF" looks at signs only, so it computes the same as "FBB+BBB".
    model = make_model("bin")
    other = freeze(model, plan=["FBB+BBF", "BBF+FBF"])
    assert other.layers[0].form.out_bits
    assert torch.equal(other(features, graph), freeze(model)(features, graph))


def test_plan_overrides_the_trained_form(make_model, graph, features):
    model = make_model("full")
    with torch.no_grad():
        expected = model.with_precision("bin")(features, graph)
    assert torch.allclose(freeze(model, plan="bin")(features, graph), expected, atol=1e-4)


def test_fold_is_exact_around_every_threshold():
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(203, affine=False)
    norm.running_mean = torch.randn(203) * torch.logspace(-6, 3, 203)
    norm.running_var = torch.rand(203) * torch.logspace(-9, 4, 203)
    norm.running_mean[:3] = 0.0
    norm.eval()
    threshold, gain = fold_batch_norm(norm, 203)
    below, above = torch.tensor(float("-inf")), torch.tensor(float("inf"))
    rows = [threshold, torch.nextafter(threshold, below), torch.nextafter(threshold, above)]
    rows += [norm.running_mean, torch.randn(203), torch.zeros(203), -torch.zeros(203)]
    x = torch.stack(rows)
    assert torch.equal(x >= threshold, norm(x) >= 0)
    assert (x >= threshold)[0].all()
    assert not (x >= threshold)[1].any()
    assert torch.allclose(gain, (norm.running_var + norm.eps).rsqrt())


def test_fold_refuses_what_it_cannot_fold():
    with pytest.raises(ValueError, match="affine=False"):
        fold_batch_norm(nn.BatchNorm1d(3), 3)
    with pytest.raises(ValueError, match="has 3 features, the first layer 4"):
        fold_batch_norm(nn.BatchNorm1d(3, affine=False), 4)


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
