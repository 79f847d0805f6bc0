"""Frozen models take features in the forms people have them in, and feed what is trained behind."""

import numpy as np
import pytest
import torch
from chains import CLASSES, FEATURES, HIDDEN, Chain, N, agree, shake
from torch import nn

from bitgnn import models
from bitgnn.convert import freeze
from bitgnn.inference import call_by_call, capture, load, save
from bitgnn.nn import GCNConv

LETTERS = {"gcn": ["FBB+BBB", "BBF+FBF"], "sage": ["FBF+FBF", "FBF+FBF"]}


@pytest.fixture(params=LETTERS)
def pair(request):
    torch.manual_seed(0)
    model = Chain(request.param, LETTERS[request.param]).eval()
    return model, freeze(model)


def test_numbers_of_other_types(pair, x, edges):
    model, frozen = pair
    graph = frozen.prepare_graph(edges, N)
    counts = (3 * x).round()
    for kind in (torch.int64, torch.int32, torch.int8):
        agree(frozen(counts.to(kind), graph), model(counts, edges))
    agree(frozen(counts.abs().to(torch.uint8), edges), model(counts.abs(), edges))
    agree(frozen(x > 0, edges), model((x > 0).float(), edges))
    for kind in (torch.float64, torch.float16, torch.bfloat16):
        expected = frozen(counts, edges).to(kind)
        assert model(counts.to(kind), edges).dtype == kind
        for given in (edges, graph):
            found = frozen(counts.to(kind), given)
            assert found.dtype == kind
            assert torch.equal(found, expected)
        many = frozen(counts.to(kind).expand(2, -1, -1), graph)
        assert many.dtype == kind
        assert torch.equal(many[1], expected)


def test_arrays_and_sparse_tensors(pair, x, edges):
    model, frozen = pair
    x = x * (x > 0.5)
    expected = model(x, edges)
    for features, given in (
        (x.numpy(), edges.numpy()),
        (x.numpy().astype(np.float64), edges),
        (x.to_sparse(), edges),
        (x.to_sparse_csr(), frozen.prepare_graph(edges, N)),
        (nn.Parameter(x), edges),
    ):
        agree(frozen(features, given), expected)


def test_several_sets_of_features_over_one_graph(pair, x, edges):
    model, frozen = pair
    graph = frozen.prepare_graph(edges, N)
    for leading in ((3,), (2, 2), (1,)):
        many = torch.randn(*leading, N, FEATURES, generator=torch.Generator().manual_seed(1))
        for held in (edges, graph):
            found = frozen(many, held)
            assert found.shape == (*leading, N, CLASSES)
            agree(found.flatten(0, -3)[-1], model(many.flatten(0, -3)[-1], edges))
        if isinstance(model.convs[0], GCNConv):
            agree(frozen(many, edges), model(many, edges))


def test_malformed_features(pair, x, edges):
    _, frozen = pair
    shape, numbers = r"x must be \[N, 37\], got ", r"x must be a tensor of numbers .*, got "
    for given, error, message in (
        (x[0], ValueError, shape + r"\[37\]"),
        (x.sum(), ValueError, shape + r"\[\]"),
        (x[:, 1:].long(), ValueError, "x must have 37 features, got 36"),
        (x.cfloat(), TypeError, numbers + r"torch\.complex64"),
        ("features", TypeError, numbers + "str"),
        ([[1.0]], TypeError, numbers + "list"),
    ):
        with pytest.raises(error, match=message):
            frozen(given, edges)


def test_floats_stay_float32(pair, x, edges):
    _, frozen = pair
    expected = frozen(x, edges)
    for change in (frozen.half, frozen.bfloat16, frozen.double, lambda: frozen.to(torch.float16)):
        with pytest.raises(TypeError, match=r"its floats must stay torch\.float32, got torch\."):
            change()
    assert frozen.float().to("cpu")(x, edges).equal(expected)


def test_a_head_that_is_trained_behind(pair, x, edges):
    _, frozen = pair
    head = nn.Linear(CLASSES, 2)
    for scores in (frozen(x, edges), capture(frozen, x, frozen.prepare_graph(edges, N))()):
        assert not scores.requires_grad
        assert not scores.is_inference()
        head.zero_grad()
        head(scores).square().sum().backward()
        assert head.weight.grad.abs().sum() > 0
    scores += 1  # and may be written to


def test_features_in_inference_mode(x, edges):
    frozen = freeze(models.GCN(FEATURES, HIDDEN, CLASSES, precision="bin").eval())
    expected = frozen(x, edges)
    with torch.inference_mode():
        own, held = x.clone(), edges.clone()
        assert frozen(own, held).equal(expected)
    assert frozen(own, held).equal(expected)
    held = edges.clone()
    assert frozen(own, held).equal(expected)


@pytest.mark.parametrize("precision", ["full", "bin"])
def test_packed_features_only(make_model, graph, features, precision, tmp_path):
    model = make_model(precision)
    expected = freeze(model)(features, graph)
    frozen = freeze(model, features="packed")
    for held in (frozen, load(save(frozen, tmp_path / "model"))):
        assert held.features == "packed"
        assert torch.equal(held(held.pack_features(features), graph), expected)
        assert torch.equal(held(held.pack_features(features, layout="dense"), graph), expected)
        with pytest.raises(ValueError, match="x must be the result of pack_features, got floats"):
            held(features, graph)
        with pytest.raises(ValueError, match="frozen with features='packed'"):
            call_by_call.steps(held, features, held.prepare_graph(graph, len(features)))


def test_models_that_need_floats_refuse(x, edges):
    class Shortcut(nn.Module):
        """The features are read in floats as well as by their signs."""

        def __init__(self):
            super().__init__()
            self.chain = Chain("gcn", ["FBB+BBB", "BBF+FBF"])
            self.past = nn.Linear(x.size(1), 4)

        def forward(self, v, edge_index):
            return self.chain(v, edge_index) + self.past(v)

    model = shake(Shortcut(), x, edges)
    with pytest.raises(ValueError, match="must be 'floats', got 'packed', since not every part"):
        freeze(model, features="packed")
    with pytest.raises(ValueError, match=r"must be one of \['floats', 'packed'\], got 'bits'"):
        freeze(model, features="bits")


def test_bits_hide_what_is_not_finite(x, edges):
    model = shake(Chain("gcn", ["full", "full"]), x, edges)
    frozen, broken = freeze(model, check=False), x.clone()
    broken[3, 5] = torch.nan
    assert model(broken, edges).isnan().any()
    assert not frozen(broken, edges).isnan().any()
    with pytest.raises(ValueError, match="x must be finite, got NaN or infinity"):
        frozen.pack_features(broken, check_finite=True)
