"""Results in the caller's own tensors."""

import pytest
import torch

from bitgnn import capture, freeze
from bitgnn.models import MLP


@pytest.fixture
def frozen(make_model, device):
    return freeze(make_model("bin")).to(device)


@pytest.fixture
def inputs(frozen, features, graph, device):
    return features.to(device), frozen.prepare_graph(graph.to(device), len(features))


def captured(frozen, x, adjacency):
    """A captured call, called as the model."""
    run = capture(frozen, x, adjacency)
    return lambda x, adjacency, out: run(x, out=out)


def test_out(frozen, inputs, device):
    expected = frozen(*inputs)
    for run in (frozen, captured(frozen, *inputs)):
        for out in (torch.empty_like(expected), torch.empty(5, 120, device=device).t()):
            for _ in range(3):
                assert run(*inputs, out=out.zero_()) is out
                assert out.equal(expected)


def test_out_of_another_form(frozen, inputs, device):
    shape = r"out must have shape \[120, 5\] on .* "
    for out, error, message in (
        (torch.empty(120, 5).double(), TypeError, r"out must be torch.float32, got torch.float64"),
        (torch.empty(5, 120, device=device), ValueError, shape + r"\[5, 120\]"),
        (torch.empty(120, 5, device="meta"), ValueError, shape + "on meta"),
        ([], TypeError, "out must be a tensor to use out, got list"),
        (torch.empty(1, 5, device=device).expand(120, 5), RuntimeError, "single memory location"),
    ):
        for run in [frozen, captured(frozen, *inputs)] * 2:
            with pytest.raises(error, match=message):
                run(*inputs, out=out)


def test_out_in_the_memory_of_the_features(frozen, inputs, device):
    x, adjacency = inputs
    expected = frozen(x, adjacency)
    for run in (frozen, captured(frozen, x, adjacency)):
        for _ in range(2):
            own = x.clone()
            assert run(own, adjacency, out=own[:, :5]).equal(expected)
            assert own[:, 5:].equal(x[:, 5:])


def test_out_that_requires_gradients(frozen, inputs):
    out = torch.zeros(120, 5, device=inputs[0].device, requires_grad=True)
    assert frozen(*inputs, out=out).equal(frozen(*inputs))
    assert out.is_leaf


def test_out_of_images(device):
    model = freeze(MLP(widths=(64,)).eval()).to(device)
    x = torch.randn(3, 1, 28, 28, device=device)
    out = torch.empty(3, 10, device=device)
    assert model(x, out=out) is out
    assert out.equal(model(x))
    with pytest.raises(ValueError, match="FrozenModel: out must have shape"):
        model(x, out=out[:2])
