"""When the executor of CUDA graphs replays, copies and captures: on the CPU, by a stand-in."""

import pytest
import torch
from changed_weights import CHANGES, change_weights

from bitgnn import BitTensor, freeze
from bitgnn.bits.tensor_version import Watch
from bitgnn.inference import CudaGraphExecutor, cuda_graph
from bitgnn.inference.cuda_graph import Captured


class Replayed:
    """Computes anew where a CUDA graph would, reading and writing what was captured."""

    def __init__(self, model, x, adjacency):
        self.call = model, x, adjacency
        with torch.inference_mode(False), torch.no_grad():
            self.output = model(x, adjacency).clone()

    def replay(self):
        model, x, adjacency = self.call
        with torch.no_grad():
            self.output.copy_(model(x, adjacency))


class StandIn(CudaGraphExecutor):
    captures = 0

    def _capture(self, x, adjacency):
        self.captures += 1
        graph = Replayed(self.model, x, adjacency)
        watch = Watch(adjacency.tensors)
        return Captured(graph, x, adjacency, watch, graph.output)


@pytest.fixture
def frozen(make_model, monkeypatch):
    monkeypatch.setattr(cuda_graph, "DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return freeze(make_model("bin"))


@pytest.fixture
def adjacency(frozen, graph):
    return frozen.prepare_graph(graph, 120)


def test_the_last_inputs_are_recognised(frozen, features, adjacency):
    run, packed = StandIn(frozen), frozen.pack_features(features, layout="dense")
    for x in (features, packed, features):
        expected = frozen(x, adjacency)
        for _ in range(3):
            assert run(x, adjacency).equal(expected)
            assert run.find(x, adjacency) is not None
    assert run.captures == 2
    assert run.find(packed, adjacency) is None
    assert run.find(features, None) is None
    assert run.find(features.clone(), adjacency) is None


def test_new_values_cost_no_copy_and_other_tensors_one(frozen, features, adjacency):
    run, x = StandIn(frozen), features.clone()
    first = run(x, adjacency)
    x.neg_()
    second = run(x, adjacency)
    assert run.captures == 1
    assert second.equal(frozen(x, adjacency))
    assert first.equal(frozen(features, adjacency))
    other = x.flip(0).requires_grad_()
    for given in (other, x, other, features):
        kept = given.detach().clone()
        found = run(given, adjacency)
        assert found.equal(frozen(given, adjacency))
        assert not found.requires_grad
        assert given.equal(kept)
    assert run.captures == 2  # the second one into a buffer of the executor's own


def test_inference_mode(frozen, features, adjacency):
    run = StandIn(frozen)
    with torch.inference_mode():
        inputs = [features.clone(), -features]
        found = [run(x, adjacency) for x in inputs]
    for x in (*inputs, features, -features):
        assert run(x, adjacency).equal(frozen(x, adjacency))
        assert run(x, adjacency, out=torch.empty(120, 5)).equal(frozen(x, adjacency))
    with torch.inference_mode():
        assert run(features, adjacency).equal(found[0])
    assert run.captures == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda x: setattr(x, "data", -x),
        lambda x: x.resize_(119, 75),
        lambda x: x.as_strided_((119, 75), (75, 1)),
        lambda x: x.set_(torch.ones(120, 75)),
    ],
)
def test_a_tensor_whose_memory_was_exchanged(frozen, features, graph, adjacency, change):
    run, x = StandIn(frozen), features.clone()
    run(x, adjacency)
    change(x)
    assert run.find(x, adjacency) is None
    if len(x) == 120:
        assert run(x, adjacency).equal(frozen(x, adjacency))
    else:
        with pytest.raises(ValueError, match="adjacency has 120 nodes, x has 119"):
            run(x, adjacency)


def test_packed_features_whose_parts_were_exchanged(frozen, features, adjacency):
    run, x = StandIn(frozen), frozen.pack_features(features, layout="dense")
    run(x, adjacency)
    x.words = frozen.pack_features(-features, layout="dense").words
    assert run.find(x, adjacency) is None
    assert run(x, adjacency).equal(frozen(-features, adjacency))
    again = BitTensor(x.words, x.size)
    assert run(again, adjacency).equal(frozen(-features, adjacency))


WRITES = {
    "written": lambda a: a.indices.copy_((a.indices + 7) % a.num_cols),
    "replaced": lambda a: setattr(a, "indices", (a.indices + 7) % a.num_cols),
    "no factor": lambda a: setattr(a, "row_scale", None),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_graph_changed_after_its_capture(frozen, features, adjacency, write):
    run = StandIn(frozen)
    before = run(features, adjacency)
    with torch.inference_mode():
        WRITES[write](adjacency)
    assert run.find(features, adjacency) is None
    assert not run(features, adjacency).equal(before)
    assert run.captures == 2
    assert run.num_graphs == 1


@CHANGES
def test_weights_changed_after_a_capture(frozen, features, adjacency, change):
    run = StandIn(frozen)
    before = run(features, adjacency)
    change_weights(frozen, change)
    assert run.find(features, adjacency) is None
    assert not run(features, adjacency).equal(before)
    assert run.captures == 2


def test_graphs_beyond_the_most_are_not_found(frozen, features, graph, adjacency):
    run = StandIn(frozen, max_graphs=1)
    other = frozen.prepare_graph(graph, 120)
    for given in (adjacency, other, adjacency):
        assert run(features, given).equal(frozen(features, given))
        assert run.num_graphs == 1
    assert run.captures == 3


def test_results(frozen, features, adjacency):
    expected = frozen(features, adjacency)
    run, out = StandIn(frozen), torch.empty(120, 5)
    assert run(features, adjacency, out=out) is out
    assert out.equal(expected)
    assert run(features, adjacency) is not run(features, adjacency)
    with pytest.raises(ValueError, match=r"CudaGraphExecutor: out must have shape \[120, 5\]"):
        run(features, adjacency, out=out[1:])
    kept = StandIn(frozen, reuse_output=True)
    assert kept(features, adjacency) is kept(features, adjacency)


def test_pinned_features_are_read_where_they_lie(frozen, features, adjacency):
    run, x = StandIn(frozen), features.clone()
    own = run.pinned(features, adjacency)
    assert run.pinned(features, adjacency) is own
    assert own.equal(frozen(features, adjacency))
    for given in (features, x):  # the second time into the executor's own buffer
        run(given, adjacency)
    x.neg_()
    for given in (x, features, x):
        assert run.pinned(given, adjacency).equal(frozen(given, adjacency))
    x.neg_()
    assert run.pinned(x, adjacency).equal(frozen(features, adjacency))
