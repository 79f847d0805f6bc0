"""Frozen models over graphs in each layout: the same bits, what is used, refusals."""

import pytest
import torch
from operator_calls import OperatorCalls

from bitgnn.bits import BitAdjacency
from bitgnn.convert import freeze
from bitgnn.inference import call_by_call, capture, measured_memory
from bitgnn.inference import graph as graph_module
from bitgnn.models import GCN, GraphSAGE, GraphSAINT

N, FEATURES, CLASSES = 120, 75, 5
MODELS = {
    "bits": (GCN, "FBB+BBB, BBB+BBB, BBB+BBF", {"num_layers": 3}),
    "bin": (GCN, "bin", {}),
    "full": (GCN, "full", {}),
    "floats": (GCN, "FBF+FBB, BBF+FBF", {}),
    "exact": (GCN, "FBB+BBF, FBB+BFF", {}),
    "sage": (GraphSAGE, "bin", {}),
    "saint": (GraphSAINT, "bin", {}),
}
LAYOUTS = ["auto", "sliced"]


def make(name):
    torch.manual_seed(0)
    model, precision, options = MODELS[name]
    return freeze(model(FEATURES, 150, CLASSES, precision=precision, **options).eval())


def forms(frozen, x):
    """Features in every form the model takes."""
    return [x, frozen.pack_features(x, layout="dense"), frozen.pack_features(x)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_every_layout_gives_the_same(name, layout, graph, features, device):
    frozen = make(name).to(device)
    x, edges = features.to(device), graph.unique(dim=1).to(device)
    plain = frozen.prepare_graph(edges, N, layout="csr")
    adjacency = frozen.prepare_graph(edges, N, layout=layout)
    for form in forms(frozen, x):
        assert frozen(form, adjacency).equal(frozen(form, plain))
    for (step, _, found), (_, _, expected) in zip(
        call_by_call.steps(frozen, x, adjacency), call_by_call.steps(frozen, x, plain), strict=True
    ):
        held = getattr(found, "words", found)
        assert held.equal(getattr(expected, "words", expected)), step
    assert capture(frozen, x, adjacency)().equal(frozen(x, plain))


def test_layouts_are_used(graph, features):
    frozen, edges = make("bits"), graph.unique(dim=1)
    called = {}
    for layout in ("csr", "sliced"):
        adjacency = frozen.prepare_graph(edges, N, layout=layout)
        with OperatorCalls() as operators:
            frozen(features, adjacency)
        called[layout] = [name for name in operators.names if "bspmm" in name]
    assert called == {
        "csr": ["bmm_bspmm"] * 3,
        "sliced": ["bspmm_bbb_sliced", "bspmm_bbb_sliced", "bspmm_bbf_sliced"],
    }
    plain = frozen.prepare_graph(edges, N, layout="csr")
    bare, found = (measured_memory(frozen, features, held) for held in (plain, adjacency))
    assert found.adjacency >= bare.adjacency + adjacency.derived_nbytes


@pytest.mark.parametrize("layout", ["coo", "frdc", None])
def test_layouts_that_no_graph_has(layout, graph):
    message = r"FrozenModel.prepare_graph: layout must be one of \['auto', 'csr', 'sliced'\], got "
    with pytest.raises(ValueError, match=f"{message}{layout!r}"):
        make("bin").prepare_graph(graph, N, layout=layout)


def test_auto_without_memory_for_slices_stays_in_csr(graph, monkeypatch):
    def fail(self, words):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(graph_module, "default_layout", lambda words, adjacency: "sliced")
    monkeypatch.setattr(BitAdjacency, "plan_slices", fail)
    frozen = make("bin")
    with pytest.warns(ResourceWarning, match="no memory to build the sliced layout"):
        adjacency = frozen.prepare_graph(graph, N)
    assert not adjacency.reads_slices(5)
    with pytest.raises(torch.OutOfMemoryError):
        frozen.prepare_graph(graph, N, layout="sliced")


@pytest.mark.parametrize("name", ["bin", "full", "sage", "saint"])
def test_weights_changed_in_place(name, graph, features, device):
    frozen = make(name).to(device)
    x, edges = features.to(device), graph.to(device)
    adjacency = frozen.prepare_graph(edges, N)
    other = {key: tensor.flip(0) for key, tensor in frozen.state_dict().items()}
    packed = forms(frozen, x)
    before = [frozen(form, adjacency) for form in packed]
    for is_replaced in (False, True):
        for key in other:
            if is_replaced:
                setattr(frozen, key, frozen.get_buffer(key).flip(0))
            else:
                frozen.get_buffer(key).copy_(other[key])
        after = [frozen(form, adjacency) for form in packed]
        fresh = make(name).to(device)
        fresh.load_state_dict(frozen.state_dict())
        for form, found, old in zip(packed, after, before, strict=True):
            assert found.equal(fresh(form, adjacency))
            assert not found.equal(old)
        before = after
