"""The executor of CUDA graphs: when it replays, copies and captures; on the CPU by a stand-in."""

import pytest
import torch
from changed_weights import CHANGES, change_weights
from dense_features import NODES, network

from bitgnn import BitTensor, freeze
from bitgnn.bits import Int8Tensor
from bitgnn.bits.tensor_version import Watch
from bitgnn.inference import CudaGraphExecutor, cuda_graph
from bitgnn.inference.cuda_graph import WARM_UPS, Captured


class Counting(CudaGraphExecutor):
    captures = 0

    def _capture(self, x, adjacency):
        self.captures += 1
        return self._captured_graph(x, adjacency)

    def _captured_graph(self, x, adjacency):
        return super()._capture(x, adjacency)


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


class StandIn(Counting):
    def _captured_graph(self, x, adjacency):
        graph = Replayed(self.model, x, adjacency)
        return Captured(graph, x, adjacency, Watch(adjacency.tensors), graph.output)


@pytest.fixture
def make_run(device, monkeypatch):
    if device.type == "cuda":
        return Counting
    monkeypatch.setattr(cuda_graph, "DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return StandIn


@pytest.fixture
def frozen(make_model, device):
    return freeze(make_model("bin")).to(device)


@pytest.fixture
def run(make_run, frozen):
    return make_run(frozen)


@pytest.fixture
def x(features, device):
    return features.to(device)


@pytest.fixture
def adjacency(frozen, graph, device):
    return frozen.prepare_graph(graph.to(device), 120)


def test_the_last_inputs_are_recognised(run, frozen, x, adjacency):
    packed = frozen.pack_features(x, layout="dense")
    for given in (x, packed, x):
        expected = frozen(given, adjacency)
        for _ in range(3):
            assert run(given, adjacency).equal(expected)
            assert run.find(given, adjacency) is not None
    assert run.captures == 2
    assert run.find(packed, adjacency) is None
    assert run.find(x, None) is None
    assert run.find(x.clone(), adjacency) is None


def test_new_values_cost_no_copy_and_other_tensors_one(run, frozen, x, adjacency):
    features = x.clone()
    first = run(x, adjacency)
    x.neg_()
    second = run(x, adjacency)
    assert run.captures == run.num_graphs == 1
    assert second.equal(frozen(x, adjacency))
    assert first.equal(frozen(features, adjacency))  # the first result was a copy
    other = x.flip(0).requires_grad_()
    for given in (other, x, other, features):
        kept = given.detach().clone()
        found = run(given, adjacency)
        assert found.equal(frozen(given, adjacency))
        assert not found.requires_grad
        assert given.equal(kept)
    assert run.captures == 2  # the second one into a buffer of the executor's own


def test_inference_mode(run, frozen, x, adjacency):
    with torch.inference_mode():
        inputs = [x.clone(), -x]
        found = [run(given, adjacency) for given in inputs]
    for given in (*inputs, x, -x):
        assert run(given, adjacency).equal(frozen(given, adjacency))
        out = torch.empty(120, 5, device=x.device)
        assert run(given, adjacency, out=out).equal(frozen(given, adjacency))
    with torch.inference_mode():
        assert run(x, adjacency).equal(found[0])
    assert run.captures == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda x: setattr(x, "data", -x),
        lambda x: x.resize_(119, 75),
        lambda x: x.as_strided_((119, 75), (75, 1)),
        lambda x: x.set_(torch.ones(120, 75, device=x.device)),
    ],
)
def test_a_tensor_whose_memory_was_exchanged(run, frozen, x, adjacency, change):
    run(x, adjacency)
    change(x)
    assert run.find(x, adjacency) is None
    if len(x) == 120:
        assert run(x, adjacency).equal(frozen(x, adjacency))
    else:
        with pytest.raises(ValueError, match="adjacency has 120 nodes, x has 119"):
            run(x, adjacency)


def test_packed_features_whose_parts_were_exchanged(run, frozen, x, adjacency):
    packed = frozen.pack_features(x, layout="dense")
    run(packed, adjacency)
    packed.words = frozen.pack_features(-x, layout="dense").words
    assert run.find(packed, adjacency) is None
    for given in (packed, BitTensor(packed.words, packed.size)):
        assert run(given, adjacency).equal(frozen(-x, adjacency))


WRITES = {
    "written": lambda a: a.indices.copy_((a.indices + 7) % a.num_cols),
    "replaced": lambda a: setattr(a, "indices", (a.indices + 7) % a.num_cols),
    "moved": lambda a: setattr(a.indices, "data", (a.indices + 7) % a.num_cols),
    "factor": lambda a: a.row_scale.mul_(3.0),
    "no factor": lambda a: setattr(a, "row_scale", None),
}


@pytest.mark.parametrize("layout", ["csr", "sliced"])
@pytest.mark.parametrize("write", WRITES)
def test_a_graph_changed_after_its_capture(run, frozen, x, graph, device, layout, write):
    adjacency = frozen.prepare_graph(graph.to(device), len(x), layout=layout)
    before = run(x, adjacency)
    with torch.inference_mode():
        WRITES[write](adjacency)
    assert run.find(x, adjacency) is None
    assert not run(x, adjacency).equal(before)
    plain = adjacency.to("cpu").to(device)
    assert run(x, adjacency).equal(frozen(x, plain))
    assert (run.captures, run.num_graphs) == (2, 1)


@CHANGES
def test_weights_changed_after_a_capture(run, make_model, frozen, x, adjacency, change):
    forms = (frozen.pack_features(x, layout="dense"), frozen.pack_features(x), x)
    before = [run(form, adjacency) for form in forms]
    assert run.find(x, adjacency) is not None
    state = change_weights(frozen, change)
    assert run.find(x, adjacency) is None
    fresh = freeze(make_model("bin")).to(x.device)
    fresh.load_state_dict(state)
    for form, old in zip(forms, before, strict=True):
        found = run(form, adjacency)
        assert not found.equal(old)
        assert found.equal(fresh(form, adjacency))


def test_graphs_beyond_the_most_are_not_found(make_run, frozen, x, graph):
    run = make_run(frozen, max_graphs=2)
    inputs = []
    for size in (len(x), len(x) + 1, len(x) + 33):
        more = torch.cat([x, x[: size - len(x)]])
        inputs.append((more, frozen.prepare_graph(graph.to(x.device), size)))
    for more, adjacency in [*inputs, *reversed(inputs)]:
        assert run(more, adjacency).equal(frozen(more, adjacency))
        assert run.num_graphs <= 2
    assert run.captures == 4  # of the last two once


def test_results(make_run, run, frozen, x, adjacency):
    expected = frozen(x, adjacency)
    out = torch.empty_like(expected)
    assert run(x, adjacency, out=out) is out
    assert out.equal(expected)
    assert run(x, adjacency) is not run(x, adjacency)
    with pytest.raises(ValueError, match=r"CudaGraphExecutor: out must have shape \[120, 5\]"):
        run(x, adjacency, out=out[1:])
    kept = make_run(frozen, reuse_output=True)
    assert kept(x, adjacency) is kept(x, adjacency)


def test_pinned_features_are_read_where_they_lie(run, frozen, x, adjacency):
    features, x = x, x.clone()
    own = run.pinned(x, adjacency)
    assert run.pinned(x, adjacency) is own
    assert own.equal(frozen(x, adjacency))
    for given in (features, x):  # the second time into the executor's own buffer
        run(given, adjacency)
    x.neg_()
    for given in (x, features, x):
        assert run.pinned(given, adjacency).equal(frozen(given, adjacency))
    x.neg_()
    assert run.pinned(x, adjacency).equal(frozen(features, adjacency))


@pytest.mark.cuda
def test_bad_input(make_model, features, graph):
    frozen, x = freeze(make_model("bin")).to("cuda"), features.to("cuda")
    adjacency = frozen.prepare_graph(graph.to("cuda"), len(x))
    run = CudaGraphExecutor(frozen)
    expected = run(x, adjacency).clone()
    larger = frozen.prepare_graph(graph.to("cuda"), len(x) + 1)
    for error, message, *inputs in (
        (TypeError, "adjacency must come from prepare_graph, got Tensor", x, graph.to("cuda")),
        (TypeError, "x must be a tensor or the result of", x.cpu().numpy(), adjacency),
        (ValueError, "adjacency must be a graph, got None", x, None),
        (ValueError, "x must have 75 features, got 74", x[:, 1:].contiguous(), adjacency),
        (ValueError, "adjacency has 120 nodes, x has 119", x[1:].contiguous(), adjacency),
        (ValueError, "adjacency has 121 nodes, x has 120", x, larger),
        (ValueError, "x must be on cuda:0, got cpu", x.cpu(), adjacency),
        (RuntimeError, "must be on a CUDA device like the other", x, adjacency.to("cpu")),
        (TypeError, "x must be a tensor of numbers", x.to(torch.complex64), adjacency),
    ):
        with pytest.raises(error, match=message):
            run(*inputs)
    with pytest.raises(ValueError, match="max_graphs must be at least 1, got 0"):
        CudaGraphExecutor(frozen, max_graphs=0)
    assert run.num_graphs == 1
    assert run(x, adjacency).equal(expected)


@pytest.mark.cuda
def test_captures_that_fail_or_stand_in_another(make_model, features, graph, monkeypatch):
    frozen, x = freeze(make_model("bin")).to("cuda"), features.to("cuda")
    adjacency = frozen.prepare_graph(graph.to("cuda"), len(x))
    run = CudaGraphExecutor(frozen)
    kept = run(x, adjacency)
    whole = torch.cuda.CUDAGraph()
    with torch.cuda.graph(whole):
        with pytest.raises(RuntimeError, match="the current stream is being captured"):
            run(x, adjacency)
        found = frozen(x, adjacency)
    whole.replay()
    assert found.equal(kept)
    assert run(x, adjacency).equal(kept)
    packed = frozen.pack_features(x, layout="dense")
    expected = frozen(packed, adjacency)
    stream = torch.cuda.current_stream()
    forward, calls = frozen.forward, []

    def failing(*args):
        calls.append(args)
        if len(calls) == WARM_UPS + 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 TiB")
        return forward(*args)

    monkeypatch.setattr(frozen, "forward", failing)
    with pytest.raises(torch.OutOfMemoryError, match=r"the 1 held go on working.* 1.00 TiB"):
        run(packed, adjacency)
    assert torch.cuda.current_stream() == stream
    assert not torch.cuda.is_current_stream_capturing()
    assert run.num_graphs == 1
    assert run(x, adjacency).equal(kept)
    assert run(packed, adjacency).equal(expected)  # the next attempt succeeds
    assert run.num_graphs == 2


def test_8_bit_rows_are_told_apart_by_their_scales(make_run, device):
    model, x, edges = network("sage", "bin")
    frozen = freeze(model, check=False).to(device)
    x, graph = x.to(device), frozen.prepare_graph(edges.to(device), NODES)
    run = make_run(frozen)
    rows, others = frozen.pack_features(x), frozen.pack_features(x.flip(0))
    for given, captures in ((rows, 1), (others, 2), (rows, 2)):
        assert run(given, graph).equal(frozen(given, graph))
        assert run.captures == captures
    foreign = Int8Tensor.from_float(x, x.mean(0), x.std(0))
    for call in (run, frozen.executor("auto"), frozen.executor("eager").pinned):
        with pytest.raises(ValueError, match="x must be packed by the scales"):
            call(foreign, graph)
    assert run(rows, graph).equal(frozen(rows, graph))
