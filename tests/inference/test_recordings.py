"""Forwards that come again run as one call, with the results and errors of the calls one by one."""

import copy
import gc
import os
import pickle
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from changed_weights import CHANGES, WRITES, change_weights
from torch.utils._python_dispatch import TorchDispatchMode

from bitgnn import BitTensor, freeze
from bitgnn._library import library_info
from bitgnn.models import GCN, MLP, GraphSAGE, GraphSAINT
from bitgnn.nn import GCNConv, SAGEConv

MODELS = {"gcn": GCN, "sage": GraphSAGE, "saint": GraphSAINT}
pytestmark = pytest.mark.skipif(
    library_info().cpu_library is None, reason="only compiled operators have recordings"
)


class OneByOne(TorchDispatchMode):
    """Counts operator calls, and keeps recordings from being used."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def plainly(model, *inputs):
    with OneByOne() as counter:
        result = model(*inputs)
    assert counter.calls > 1
    return result


def recorded(model, *inputs):
    """The result by a recording."""
    for _ in range(2):
        model(*inputs)
    assert model._recordings.find(inputs[0], inputs[1] if len(inputs) > 1 else None) is not None
    return model(*inputs)


@pytest.fixture
def frozen(make_model, device):
    return freeze(make_model("bin")).to(device)


@pytest.fixture
def on_device(features, device):
    return features.to(device)


@pytest.fixture
def prepared(frozen, graph, features, device):
    return frozen.prepare_graph(graph.to(device), len(features))


@pytest.mark.parametrize("layout", ["csr", "sliced"])
@pytest.mark.parametrize("precision", ["bin", "full"])
@pytest.mark.parametrize("name", MODELS)
def test_same_bits(name, precision, layout, features, graph, device):
    torch.manual_seed(0)
    model = freeze(MODELS[name](75, 64, 5, precision=precision).eval()).to(device)
    x, adjacency = features.to(device), model.prepare_graph(graph.to(device), 120, layout=layout)
    forms = [x, x.t().contiguous().t()]
    if model.program.entry is not None:
        packed = model.pack_features(x, layout="dense")
        forms += [packed, packed.as_features(), model.pack_features(x)]
    if model.program.entry == 1:
        forms += [x.half(), x.double(), x.to(torch.uint8)]
    for form in forms:
        expected = plainly(model, form, adjacency)
        found = [model(form, adjacency) for _ in range(4)]
        assert all(f.equal(expected) and f.dtype == expected.dtype for f in found)
    if (name, precision) == ("saint", "full"):  # adds floats behind its operators
        assert len(model._recordings) == 0
    else:
        assert len(model._recordings) > 1


def test_pattern_of_set_bits(frozen, on_device, prepared):
    x = frozen.pack_features(on_device, layout="sparse")
    expected = plainly(frozen, x, prepared)
    assert recorded(frozen, x, prepared).equal(expected)
    weight = frozen.get_buffer(frozen.program.calls[frozen.program.entry].tensors["w"])
    weight.copy_(weight.flip(0))
    changed = frozen(x, prepared)
    assert not changed.equal(expected)
    assert changed.equal(plainly(frozen, x, prepared))


def test_images(device):
    torch.manual_seed(0)
    model = freeze(MLP(widths=(64, 64)).eval()).to(device)
    x = torch.randn(4, 1, 28, 28, device=device)
    expected = plainly(model, x)
    assert recorded(model, x).equal(expected)
    more = torch.cat([x, x])
    assert model(more).equal(torch.cat([expected, expected]))
    with pytest.raises(ValueError, match="x must be"):
        model(x[:, :, 1:])


@pytest.mark.parametrize("layout", ["csr", "sliced"])
@pytest.mark.parametrize("write", WRITES)
def test_a_graph_that_is_changed(frozen, on_device, graph, device, layout, write):
    edges = graph.unique(dim=1).to(device)
    with torch.inference_mode(write == "written"):
        adjacency = frozen.prepare_graph(edges, 120, layout=layout)
    before = recorded(frozen, on_device, adjacency)
    with torch.inference_mode():
        WRITES[write](adjacency)
    for _ in range(3):
        after = frozen(on_device, adjacency)
        assert not after.equal(before)
        assert after.equal(plainly(frozen, on_device, adjacency.to("cpu").to(device)))


@CHANGES
def test_weights_that_are_changed(make_model, frozen, on_device, prepared, device, change):
    before = recorded(frozen, on_device, prepared)
    state = change_weights(frozen, change)
    fresh = freeze(make_model("bin")).to(device)
    fresh.load_state_dict(state)
    for _ in range(3):
        found = frozen(on_device, prepared)
        assert not found.equal(before)
        assert found.equal(plainly(fresh, on_device, prepared))


def test_what_a_second_call_may_not_be(frozen, on_device, prepared, device):
    expected = recorded(frozen, on_device, prepared)
    for x, adjacency, error, message in (
        (on_device[:, 1:].contiguous(), prepared, ValueError, "x must have 75 features, got 74"),
        (on_device[1:], prepared, ValueError, "adjacency has 120 nodes, x has 119"),
        (on_device.to("meta"), prepared, ValueError, f"x must be on {device}.*, got meta"),
        (on_device, None, ValueError, "adjacency must be a graph, got None"),
        (on_device.to(torch.complex64), prepared, TypeError, "x must be a tensor of numbers"),
    ):
        with pytest.raises(error, match=message):
            frozen(x, adjacency)
    assert frozen(on_device.to_sparse(), prepared).equal(expected)
    assert frozen(on_device.long(), prepared).equal(expected)


def test_a_missing_scale(features, graph, device):
    torch.manual_seed(0)
    model = freeze(GCN(75, 64, 5, precision="full").eval()).to(device)
    adjacency = model.prepare_graph(graph.to(device), 120)
    x = model.pack_features(features.to(device))
    recorded(model, x, adjacency)
    with pytest.raises(ValueError, match="packed x must carry a row scale"):
        model(BitTensor(x.words, x.size), adjacency)


def test_values_gradients_modes_and_hooks(frozen, on_device, prepared):
    expected = recorded(frozen, on_device, prepared)
    assert not frozen(on_device.clone().requires_grad_(), prepared).requires_grad
    with torch.inference_mode():
        assert frozen(on_device, prepared).equal(expected)
        inner = on_device.clone()
    assert inner.is_inference()
    assert frozen(inner, prepared).equal(expected)
    assert not expected.is_inference()
    on_device.neg_()
    seen = []
    frozen.register_forward_hook(lambda module, args, result: seen.append(result))
    after = frozen(on_device, prepared)
    assert seen[0] is after
    assert not after.equal(expected)
    assert after.equal(plainly(frozen, on_device, prepared))


def test_recordings_go_with_their_graphs_and_models(make_model, features, graph):
    gc.collect()
    gc.disable()
    try:
        model = freeze(make_model("bin"))
        adjacency = model.prepare_graph(graph, 120)
        recorded(model, features, adjacency)
        number = model._recordings.find(features, adjacency)._number
        assert torch.ops.bitgnn.run_recording(features, None, number).equal(
            model(features, adjacency)
        )
        del adjacency
        assert not len(model._recordings)
        with pytest.raises(RuntimeError, match=f"run_recording: number must be .* got {number}"):
            torch.ops.bitgnn.run_recording(features, None, number)
        recorded(model, features, model.prepare_graph(graph, 120))
        weights = [weakref.ref(buffer) for buffer in model.buffers()]
        del model
        assert not any(weight() is not None for weight in weights)
    finally:
        gc.enable()


def test_many_graphs(frozen, on_device, graph, device, monkeypatch):
    adjacencies = [frozen.prepare_graph(graph[:, i:].to(device), 120) for i in range(12)]
    for adjacency in adjacencies * 2:
        assert recorded(frozen, on_device, adjacency).equal(plainly(frozen, on_device, adjacency))
    assert len(frozen._recordings) < len(adjacencies)
    monkeypatch.setattr(type(frozen._recordings), "_record", None)
    for _ in range(20):  # come once, and each may lie where the one before lay
        frozen(on_device, frozen.prepare_graph(graph.to(device), 120))


def test_copies_make_their_own_recordings(frozen, on_device, graph, device):
    adjacency = frozen.prepare_graph(graph.to(device), 120, layout="sliced")
    expected = recorded(frozen, on_device, adjacency)
    for other in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert len(other._recordings) == 0
        assert recorded(other, on_device, adjacency).equal(expected)
    copied = copy.deepcopy(adjacency)
    assert recorded(frozen, on_device, copied).equal(expected)
    copied.indices.data = (copied.indices + 7) % 120
    assert not frozen(on_device, copied).equal(expected)
    assert frozen(on_device, copied).equal(plainly(frozen, on_device, copied))
    assert frozen(on_device, adjacency).equal(expected)


def test_threads(frozen, on_device, prepared):
    inputs = [on_device, -on_device, on_device.flip(0)]
    expected = [plainly(frozen, x, prepared) for x in inputs]

    def work(place):
        found = (frozen(inputs[place], prepared) for _ in range(200))
        return all(scores.equal(expected[place]) for scores in found)

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(work, range(3)))


class Bound(torch.nn.Module):
    def __init__(self, model, adjacency):
        super().__init__()
        self.model, self.adjacency = model, adjacency

    def forward(self, x):
        return self.model(x, self.adjacency)


def test_programs_made_of_a_model_with_recordings(frozen, on_device, prepared):
    expected, bound = recorded(frozen, on_device, prepared), Bound(frozen, prepared)
    exported = torch.export.export(bound, (on_device,))
    traced = torch.jit.trace(bound, (on_device,), check_trace=False)
    for program in (str(exported.graph), str(traced.graph), str(traced.inlined_graph)):
        assert "run_recording" not in program
    compiled = torch.compile(bound, fullgraph=True, backend="eager")
    for program in (exported.module(), traced, compiled):
        assert program(on_device).equal(expected)


def test_a_graph_written_to_is_recorded_again(frozen, on_device, graph, device):
    adjacency = frozen.prepare_graph(graph.to(device), 120)
    for _ in range(3):
        frozen(on_device, adjacency)
    count = len(frozen._recordings)
    adjacency.indices.copy_((adjacency.indices + 7) % 120)
    for _ in range(2):
        frozen(on_device, adjacency)
    assert len(frozen._recordings) == count + 1
    assert frozen._recordings.find(on_device, adjacency) is not None


def python_calls(function):
    """Calls of this package's functions."""
    found = []

    def note(frame, event, _):
        if event == "call" and f"{os.sep}bitgnn{os.sep}" in frame.f_code.co_filename:
            found.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_call_costs_few_calls_of_python(name, features, graph, device):
    torch.manual_seed(0)
    model = freeze(MODELS[name](75, 64, 5, precision="bin").eval()).to(device)
    x, adjacency = features.to(device), model.prepare_graph(graph.to(device), 120)
    # A GPU is asked for more: the layout, and whether a stream is captured.
    first = python_calls(lambda: model(x, adjacency))
    assert 10 < len(first) <= (42 if device.type == "cpu" else 60), first
    model(x, adjacency)
    recorded = python_calls(lambda: model(x, adjacency))
    assert 5 < len(recorded) <= (16 if device.type == "cpu" else 20), recorded


def test_several_graphs_cost_a_recorded_call_one_call_each(features, graph, device):
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = SAGEConv(75, 64)
            self.second = GCNConv(64, 5)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index), edge_index)

    model = freeze(Two().eval(), check=False).to(device)
    x, adjacency = features.to(device), model.prepare_graph(graph.to(device), 120)
    assert len(adjacency.adjacencies) == 2
    recorded(model, x, adjacency)
    calls = python_calls(lambda: model(x, adjacency))
    assert 5 < len(calls) <= (18 if device.type == "cpu" else 20), calls
