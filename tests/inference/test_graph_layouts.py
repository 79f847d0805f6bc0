"""Frozen models over graphs in each layout: the same bits, and clear refusals."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bitgnn.bits import BitAdjacency
from bitgnn.convert import freeze
from bitgnn.inference import graph as graph_module
from bitgnn.models import GCN, GraphSAGE, GraphSAINT

N, FEATURES, CLASSES = 120, 75, 5
BITS_ALONE = "FBB+BBB, BBB+BBB, BBB+BBF"
MODELS = {
    "bits": (GCN, {"num_layers": 3, "precision": BITS_ALONE}),
    "bin": (GCN, {"precision": "bin"}),
    "full": (GCN, {"precision": "full"}),
    "floats": (GCN, {"precision": "FBF+FBB, BBF+FBF"}),
    "sage": (GraphSAGE, {"precision": "bin"}),
    "saint": (GraphSAINT, {"precision": "bin"}),
}


def make(name, hidden=150):
    torch.manual_seed(0)
    model, options = MODELS[name]
    return freeze(model(FEATURES, hidden, CLASSES, **options).eval())


def forms(frozen, x):
    """Features in every form the model takes."""
    return [x, frozen.pack_features(x, layout="dense"), frozen.pack_features(x)]


@pytest.mark.parametrize("layout", ["auto", "sliced"])
@pytest.mark.parametrize("name", MODELS)
def test_every_layout_gives_the_same(name, layout, graph, features, device):
    frozen = make(name).to(device)
    x, edge_index = features.to(device), graph.to(device)
    plain = frozen.prepare_graph(edge_index, N, layout="csr")
    adjacency = frozen.prepare_graph(edge_index, N, layout=layout)
    for form in forms(frozen, x):
        assert frozen(form, adjacency).equal(frozen(form, plain))
    for (step, _, found), (_, _, expected) in zip(
        frozen.steps(x, adjacency), frozen.steps(x, plain), strict=True
    ):
        held = getattr(found, "words", found)
        assert held.equal(getattr(expected, "words", expected)), step


class Called(TorchDispatchMode):
    """Names of the operators of this package that are called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "bitgnn":
            self.names.append(func.__name__.removesuffix(".default"))
        return func(*args, **(kwargs or {}))


def test_slices_are_used(graph, features):
    frozen = make("bits")
    called = {}
    for layout in ("csr", "sliced"):
        adjacency = frozen.prepare_graph(graph, N, layout=layout)
        with Called() as calls:
            frozen(features, adjacency)
        called[layout] = [name for name in calls.names if "bspmm" in name]
    assert called == {
        "csr": ["bmm_bspmm"] * 3,
        "sliced": ["bspmm_bbb_sliced", "bspmm_bbb_sliced", "bspmm_bbf_sliced"],
    }


def test_auto_without_memory_for_slices_stays_in_csr(graph, monkeypatch):
    def fail(self, words, layout, method):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(graph_module, "default_layout", lambda words, adjacency: "sliced")
    monkeypatch.setattr(BitAdjacency, "plan_layout", fail)
    frozen = make("bin")
    with pytest.warns(ResourceWarning, match="no memory to build the sliced layout"):
        adjacency = frozen.prepare_graph(graph, N)
    assert adjacency.planned_layout(5) == "csr"
    with pytest.raises(torch.OutOfMemoryError):
        frozen.prepare_graph(graph, N, layout="sliced")


@pytest.mark.parametrize("mode", ["ordinary", "inference"])
@pytest.mark.parametrize("layout", ["csr", "sliced"])
def test_a_graph_changed_in_place(layout, mode, graph, features, device):
    frozen = make("bin").to(device)
    x, edge_index = features.to(device), graph.to(device)
    with torch.inference_mode(mode == "inference"):
        adjacency = frozen.prepare_graph(edge_index, N, layout=layout)
        before = frozen(x, adjacency)
        adjacency.indices.copy_((adjacency.indices + 7) % N)
    plain = BitAdjacency(
        adjacency.rowptr.clone(),
        adjacency.indices.clone(),
        N,
        adjacency.row_scale,
        adjacency.col_scale,
    )
    after = frozen(x, adjacency)
    assert after.equal(frozen(x, plain))
    assert not after.equal(before)
    adjacency.indices = (adjacency.indices + 11) % N
    plain.indices = adjacency.indices.clone()
    assert frozen(x, adjacency).equal(frozen(x, plain))


@pytest.mark.parametrize("name", ["bin", "full", "sage", "saint"])
def test_weights_changed_in_place(name, graph, features, device):
    frozen = make(name).to(device)
    x, edge_index = features.to(device), graph.to(device)
    adjacency = frozen.prepare_graph(edge_index, N)
    other = {key: tensor.flip(0) for key, tensor in frozen.state_dict().items()}
    packed = forms(frozen, x)
    before = [frozen(form, adjacency) for form in packed]
    for change in ("copied into", "replaced"):
        for key, buffer in dict(frozen.named_buffers()).items():
            if key not in other:
                continue
            if change == "replaced":
                setattr(frozen, key, buffer.flip(0))
            else:
                buffer.copy_(other[key])
        after = [frozen(form, adjacency) for form in packed]
        fresh = make(name).to(device)
        fresh.load_state_dict(frozen.state_dict())
        for form, found, old in zip(packed, after, before, strict=True):
            assert found.equal(fresh(form, adjacency))
            assert not found.equal(old)
        before = after
