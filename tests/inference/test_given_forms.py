"""Frozen models take features in the forms people have them in, and feed what is trained behind."""

import numpy as np
import pytest
import torch
from chains import CLASSES, FEATURES, HIDDEN, Chain, N
from torch import nn

from bitgnn import models
from bitgnn.convert import freeze
from bitgnn.nn import GCNConv

LETTERS = {"gcn": ["FBB+BBB", "BBF+FBF"], "sage": ["FBF+FBF", "FBF+FBF"]}


@pytest.fixture(params=LETTERS)
def pair(request):
    torch.manual_seed(0)
    model = Chain(request.param, LETTERS[request.param]).eval()
    return model, freeze(model)


def agree(found, expected):
    torch.testing.assert_close(found, expected.detach(), atol=1e-5, rtol=1e-5)


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
    agree(frozen(x.numpy(), edges.numpy()), expected)
    agree(frozen(x.numpy().astype(np.float64), edges), expected)
    agree(frozen(x.to_sparse(), edges), expected)
    agree(frozen(x.to_sparse_csr(), frozen.prepare_graph(edges, N)), expected)
    agree(frozen(nn.Parameter(x), edges), expected)


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
    with pytest.raises(ValueError, match=rf"x must be \[N, {FEATURES}\], got \[{FEATURES}\]"):
        frozen(x[0], edges)
    with pytest.raises(ValueError, match=rf"x must be \[N, {FEATURES}\], got \[\]"):
        frozen(x.sum(), edges)
    with pytest.raises(ValueError, match=f"x must have {FEATURES} features, got {FEATURES - 1}"):
        frozen(x[:, 1:].long(), edges)
    with pytest.raises(TypeError, match=r"x must be a tensor of numbers .*, got torch\.complex64"):
        frozen(x.cfloat(), edges)
    with pytest.raises(TypeError, match=r"x must be a tensor of numbers .*, got str"):
        frozen("features", edges)
    with pytest.raises(TypeError, match=r"x must be a tensor of numbers .*, got list"):
        frozen([[1.0]], edges)


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
    for scores in (frozen(x, edges), frozen.executor()(x, frozen.prepare_graph(edges, N))):
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
