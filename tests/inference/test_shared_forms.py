"""Frozen models of all kinds: one way to call, capture, measure, save, move and print them."""

import inspect

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import bitgnn
from bitgnn.inference import (
    Frozen,
    memory_report,
)

X = torch.rand(6, 8, generator=torch.Generator().manual_seed(0))
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]])
SHARED = ("train", "extra_repr", "state_dict", "to")


class Branching(pyg.GCN):
    """A GCN that no trace can follow."""

    def forward(self, x, edge_index):
        return super().forward(x if x.sum() > 0 else -x, edge_index)

    def twice(self, x, edge_index):
        return 2 * self(x, edge_index)


def trained(model, *inputs):
    for _ in range(3):
        model(*inputs).square().sum().backward()
    return model.eval()


def graphs():
    return bitgnn.freeze(trained(bitgnn.binarize(pyg.GCN(8, 16, 2, 3)), X, EDGES)), (X, EDGES)


def layers():
    model = trained(bitgnn.binarize(Branching(8, 16, 2, 3), "full"), X, EDGES)
    with pytest.warns(UserWarning, match="it runs as its own code"):
        return bitgnn.freeze(model), (X, EDGES)


def images():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, 3))
    x = torch.rand(2, 3, 4, 4)
    return bitgnn.freeze(trained(bitgnn.binarize(model), x)), (x,)


def transformer():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3))
    return bitgnn.freeze(bitgnn.binarize(model, bitgnn.BWTAConfig(calibration=X)).eval()), (X,)


MAKERS = {"graphs": graphs, "layers": layers, "images": images, "transformer": transformer}


@pytest.fixture(params=MAKERS)
def made(request):
    torch.manual_seed(0)
    return MAKERS[request.param]()


def test_one_signature_for_what_they_share(made):
    frozen, inputs = made
    assert isinstance(frozen, Frozen)
    for name in SHARED:
        own, base = getattr(type(frozen), name), getattr(Frozen, name)
        assert inspect.signature(own) == inspect.signature(base), name
    expected = frozen(*inputs)
    assert not expected.requires_grad
    assert not frozen.train().training
    assert frozen.report.letters
    table = bitgnn.summary(frozen)
    assert sum(bool(layer.letters) for layer in table.layers) == len(frozen.letters)
    assert f"packed_layers={len(frozen.letters)}, nbytes={frozen.nbytes}" in repr(frozen)
    assert frozen.to("cpu") is frozen
    assert frozen(*inputs).equal(expected)


def test_every_frozen_model_is_captured(made):
    frozen, (x, *edges) = made
    if frozen.kind == "layers":  # runs the user's own forward, on edges
        with pytest.raises(TypeError, match="capture: graph must come from prepare_graph"):
            bitgnn.capture(frozen, x, *edges)
        return
    graph = [frozen.prepare_graph(*edges, len(x))] if edges else []
    run = bitgnn.capture(frozen, x, *graph)
    assert (run.form == "calls") == bool(run.why)
    expected = frozen(x, *graph)
    assert run().equal(expected)
    assert run(x.clone()).equal(expected)


def test_memory_and_files(made, tmp_path):
    frozen, inputs = made
    report = memory_report(frozen, (*inputs, None)[:2])
    assert report.measured.weights > 0
    folder = bitgnn.save(frozen, tmp_path / "model")
    architecture = {
        "layers": lambda: Branching(8, 16, 2, 3),
        "bwta": lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)),
    }.get(frozen.kind)
    loaded = bitgnn.load(folder, *([architecture()] if architecture else []))
    assert type(loaded) is type(frozen)
    assert loaded(*inputs).equal(frozen(*inputs))
    assert loaded.nbytes == frozen.nbytes


def test_what_single_forms_have_of_their_own():
    torch.manual_seed(0)
    frozen, _ = layers()
    twice = frozen.twice(X.clone().requires_grad_(), EDGES)  # a method of the user's model
    assert twice.equal(2 * frozen(X, EDGES))
    assert not twice.requires_grad
    frozen, (x,) = images()
    assert frozen.kind == "images"
    with pytest.raises(ValueError, match="adjacency must be None"):
        frozen(x, EDGES)
