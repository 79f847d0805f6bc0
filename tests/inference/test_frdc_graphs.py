"""Frozen models over FRDC tiles with each method: the same bits, the same operators, refusals."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bitgnn.bits.layouts import FRDC_METHODS
from bitgnn.convert import freeze
from bitgnn.inference import EagerExecutor, frozen_memory
from bitgnn.models import GCN, GraphSAGE, GraphSAINT

N, FEATURES, CLASSES = 120, 75, 5
MODELS = {
    "bits": (GCN, "FBB+BBB, BBB+BBB, BBB+BBF", {"num_layers": 3}),
    "bin": (GCN, "bin", {}),
    "exact": (GCN, "FBB+BBF, FBB+BFF", {}),
    "sage": (GraphSAGE, "bin", {}),
    "saint": (GraphSAINT, "bin", {}),
}


class Methods(TorchDispatchMode):
    """Numbers of the methods with which operators on tiles are called."""

    def __init__(self):
        super().__init__()
        self.numbers = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "frdc" in func.__name__:
            self.numbers.append(args[6])
        return func(*args, **(kwargs or {}))


@pytest.fixture
def edges(graph):
    """Every edge once."""
    return graph.unique(dim=1)


def make(name):
    torch.manual_seed(0)
    model, precision, options = MODELS[name]
    return freeze(model(FEATURES, 150, CLASSES, precision=precision, **options).eval())


@pytest.mark.parametrize("method", [None, *FRDC_METHODS])
@pytest.mark.parametrize("name", MODELS)
def test_every_method_gives_the_same(name, method, edges, features, device):
    frozen = make(name).to(device)
    x, edges = features.to(device), edges.to(device)
    plain = frozen.prepare_graph(edges, N, layout="csr")
    tiled = frozen.prepare_graph(edges, N, layout="frdc", method=method)
    expected = frozen(x, plain)
    with Methods() as called:
        found = frozen(x, tiled)
    assert found.equal(expected)
    assert set(called.numbers) == {FRDC_METHODS.index(method or "and_degree")}
    assert EagerExecutor(frozen)(x, tiled).equal(expected)
    assert frozen(frozen.pack_features(x, layout="dense"), tiled).equal(expected)


def test_tiles_count_in_memory(edges, features):
    frozen = make("bits")
    plain = frozen.prepare_graph(edges, N, layout="csr")
    tiled = frozen.prepare_graph(edges, N, layout="frdc")
    bare, found = (frozen_memory(frozen, features, graph) for graph in (plain, tiled))
    assert found.adjacency == bare.adjacency + tiled.frdc().nbytes
