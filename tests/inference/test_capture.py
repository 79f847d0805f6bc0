"""Captured calls: when they replay, copy and are made anew; on the CPU graphs have a stand-in."""

import gc

import pytest
import torch
from changed_weights import CHANGES, WRITES, change_weights
from dense_features import NODES, network

from bitgnn import BitTensor, capture, freeze
from bitgnn.bits import Int8Tensor
from bitgnn.bits.tensor_version import Watch
from bitgnn.inference import captured
from bitgnn.inference.captured import WARM_UPS, Captured
from bitgnn.models import GCN, GraphSAGE, GraphSAINT

MODELS = {"gcn": GCN, "sage": GraphSAGE, "saint": GraphSAINT}


class Counting(Captured):
    captures = 0

    def _captured(self, x):
        self.captures += 1
        return self._captured_graph(x)

    def _captured_graph(self, x):
        return super()._captured(x)


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
    def _captured_graph(self, x):
        made = Replayed(self.model, x, self.graph)
        watches = [*self.model._watches(x), Watch(self.graph.tensors)]
        return captured._CudaGraph(made, self.model, x, self.graph, watches, made.output)


@pytest.fixture
def make_run(device, monkeypatch):
    if device.type == "cuda":
        return Counting
    monkeypatch.setattr(captured, "DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return StandIn


@pytest.fixture(params=["as a CUDA graph", "as the device does"])
def make(request):
    """Two ways to capture; on the CPU the first one is a stand-in."""
    is_graph = request.param == "as a CUDA graph"
    return request.getfixturevalue("make_run") if is_graph else capture


@pytest.fixture
def frozen(make_model, device):
    return freeze(make_model("bin")).to(device)


@pytest.fixture
def x(features, device):
    return features.to(device).clone()


@pytest.fixture
def adjacency(frozen, graph, device):
    return frozen.prepare_graph(graph.to(device), 120)


@pytest.fixture
def run(make_run, frozen, x, adjacency):
    return make_run(frozen, x, adjacency)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["bin", "full"])
def test_the_bits_of_a_plain_call(name, precision, features, graph, device):
    torch.manual_seed(0)
    frozen = freeze(MODELS[name](75, 64, 5, precision=precision).eval()).to(device)
    x, adjacency = features.to(device), frozen.prepare_graph(graph.to(device), len(features))
    forms = [x, x.half(), x.double()]
    if frozen.program.entry is not None:
        forms += [frozen.pack_features(x, layout=layout) for layout in ("auto", "dense")]
    for given in forms:
        run = capture(frozen, given, adjacency)
        assert run.form == ("cuda_graph" if device.type == "cuda" else run.form)
        assert (run.form == "calls") == bool(run.why)
        expected = frozen(given, adjacency)
        assert not sum(not run().equal(expected) for _ in range(100)), type(given)


def test_a_cpu_runs_recordings(features, graph, make_model):
    frozen = freeze(make_model("bin"))
    run = capture(frozen, features, frozen.prepare_graph(graph, 120))
    assert (run.form, run.why) == ("recording", "")
    run = capture(frozen, features.double(), frozen.prepare_graph(graph, 120))
    assert (run.form, run.why) == ("calls", "operators other than ours take part")


def test_new_values_cost_no_copy_and_other_tensors_one(run, frozen, x, adjacency):
    features = x.clone()
    first = run().clone()
    x.neg_()
    assert run().equal(frozen(x, adjacency))
    assert run.captures == 1
    other = x.flip(0).requires_grad_()
    for given in (other, x, other, features, None):
        kept = (x if given is None else given).detach().clone()
        found = run(given)
        assert found.equal(frozen(kept, adjacency))
        assert not found.requires_grad
        assert (x if given is None else given).equal(kept)
    assert run(features).equal(first)
    assert run.captures == 2  # the second one into a buffer of its own


def test_inference_mode(make_run, frozen, x, adjacency):
    with torch.inference_mode():
        inputs = [x.clone(), -x]
        run = make_run(frozen, inputs[0], adjacency)
        found = [run(given).clone() for given in inputs]
    for given in (*inputs, x, -x):
        assert run(given).equal(frozen(given, adjacency))
        out = torch.empty(120, 5, device=x.device)
        assert run(given, out=out).equal(frozen(given, adjacency))
    with torch.inference_mode():
        assert run(x).equal(found[0])
    assert run.captures == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda x: setattr(x, "data", -x),
        lambda x: x.set_(torch.ones(120, 75, device=x.device)),
        lambda x: x.resize_(119, 75),
        lambda x: x.as_strided_((119, 75), (75, 1)),
    ],
)
def test_a_tensor_whose_memory_was_exchanged(run, frozen, x, adjacency, change):
    run()
    change(x)
    for _ in range(2):
        if len(x) == 120:
            assert run().equal(frozen(x, adjacency))
        else:
            with pytest.raises(ValueError, match="adjacency has 120 nodes, x has 119"):
                run()


def test_packed_features_whose_parts_were_exchanged(make_run, frozen, x, adjacency):
    packed = frozen.pack_features(x, layout="dense")
    run = make_run(frozen, packed, adjacency)
    packed.words = frozen.pack_features(-x, layout="dense").words
    for given in (None, packed, BitTensor(packed.words, packed.size)):
        assert run(given).equal(frozen(-x, adjacency))


@pytest.mark.parametrize("layout", ["csr", "sliced"])
@pytest.mark.parametrize("write", WRITES)
def test_a_graph_changed_after_its_capture(make, frozen, x, graph, device, layout, write):
    adjacency = frozen.prepare_graph(graph.to(device), len(x), layout=layout)
    run = make(frozen, x, adjacency)
    before = run().clone()
    with torch.inference_mode():
        WRITES[write](adjacency)
    assert not run().equal(before)
    plain = adjacency.to("cpu").to(device)
    assert run().equal(frozen(x, plain))
    assert getattr(run, "captures", 2) == 2


@CHANGES
def test_weights_changed_after_a_capture(make, make_model, frozen, x, adjacency, change):
    forms = (frozen.pack_features(x, layout="dense"), frozen.pack_features(x), x)
    runs = [make(frozen, form, adjacency) for form in forms]
    before = [run().clone() for run in runs]
    state = change_weights(frozen, change)
    fresh = freeze(make_model("bin")).to(x.device)
    fresh.load_state_dict(state)
    for run, old in zip(runs, before, strict=True):
        found = run()
        assert not found.equal(old)
        assert found.equal(fresh(run.x, adjacency))


def test_a_call_that_failed_is_captured_again(make, frozen, x, graph, device):
    adjacency = frozen.prepare_graph(graph.to(device), 120)
    run = make(frozen, x, adjacency)
    expected, form, indices = run().clone(), run.form, adjacency.indices.clone()
    adjacency.indices.fill_(120)
    for _ in range(2):
        with pytest.raises(ValueError, match="indices must lie in"):
            run()
    adjacency.indices.copy_(indices)
    assert run().equal(expected)
    assert run.form == form


def test_results(run, frozen, x, adjacency):
    expected = frozen(x, adjacency)
    out = torch.empty_like(expected)
    for given in (None, x, x.clone()):
        assert run(given, out=out.zero_()) is out
        assert out.equal(expected)
    assert run() is run()  # a CUDA graph's own memory
    with pytest.raises(ValueError, match=r"capture: out must have shape \[120, 5\]"):
        run(out=out[1:])


def test_features_of_another_form_are_refused(make_model, features, graph, device):
    frozen = freeze(make_model("bin")).to(device)
    x, adjacency = features.to(device), frozen.prepare_graph(graph.to(device), 120)
    run = capture(frozen, x, adjacency)
    for other in (
        x[:, 1:], x[1:], x.half(), frozen.pack_features(x, layout="dense"), x.to("meta"),
        x.cpu().numpy(), x.to_sparse(),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"capture: x must be like the captured features, Ten"):
            run(other)
    assert run(x.clone()).equal(frozen(x, adjacency))


def test_bad_input(make_model, features, graph, device):
    frozen, x = freeze(make_model("bin")).to(device), features.to(device)
    adjacency = frozen.prepare_graph(graph.to(device), len(x))
    larger = frozen.prepare_graph(graph.to(device), len(x) + 1)
    for error, message, *inputs in (
        (TypeError, "graph must come from prepare_graph, got Tensor", x, graph.to(device)),
        (ValueError, "adjacency must be a graph, got None", x, None),
        (ValueError, "x must have 75 features, got 74", x[:, 1:].contiguous(), adjacency),
        (ValueError, "adjacency has 120 nodes, x has 119", x[1:].contiguous(), adjacency),
        (ValueError, "adjacency has 121 nodes, x has 120", x, larger),
        (ValueError, "x must be on .*, got meta", x.to("meta"), adjacency),
        (TypeError, "x must be a tensor of numbers", x.to(torch.complex64), adjacency),
    ):
        with pytest.raises(error, match=message):
            capture(frozen, *inputs)
    with pytest.raises(TypeError, match="capture: model must be a frozen model, got Identity"):
        capture(torch.nn.Identity(), x)


def test_captured_calls_outlive_what_they_were_made_of(frozen, x, graph, device):
    adjacency = frozen.prepare_graph(graph.to(device), 120)
    expected = frozen(x, adjacency).clone()
    run = capture(frozen, x.clone(), adjacency)
    del adjacency
    gc.collect()
    assert run().equal(expected)
    frozen.to("cpu").to(device)  # binds the model anew
    assert run().equal(expected)


@pytest.mark.cuda
def test_captures_that_fail_or_stand_in_another(make_model, features, graph, monkeypatch):
    frozen, x = freeze(make_model("bin")).to("cuda"), features.to("cuda")
    adjacency = frozen.prepare_graph(graph.to("cuda"), len(x))
    run = capture(frozen, x, adjacency)
    kept = run().clone()
    whole = torch.cuda.CUDAGraph()
    with torch.cuda.graph(whole):
        with pytest.raises(RuntimeError, match="the current stream is being captured"):
            run()
        found = frozen(x, adjacency)
    whole.replay()
    assert found.equal(kept)
    assert run().equal(kept)
    packed = frozen.pack_features(x, layout="dense")
    expected = frozen(packed, adjacency)
    stream = torch.cuda.current_stream()
    forward, calls = frozen.forward, []

    def failing(*args):
        calls.append(args)
        if len(calls) == WARM_UPS + 2:  # one before shows what does not fit
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 TiB")
        return forward(*args)

    monkeypatch.setattr(frozen, "forward", failing)
    with pytest.raises(torch.OutOfMemoryError, match=r"no memory for a CUDA graph.* 1.00 TiB"):
        capture(frozen, packed, adjacency)
    assert torch.cuda.current_stream() == stream
    assert not torch.cuda.is_current_stream_capturing()
    assert run().equal(kept)
    assert capture(frozen, packed, adjacency)().equal(expected)  # the next attempt succeeds


def test_8_bit_rows_are_told_apart_by_their_scales(make, device):
    model, x, edges = network("sage", "bin")
    frozen = freeze(model, check=False).to(device)
    x, graph = x.to(device), frozen.prepare_graph(edges.to(device), NODES)
    rows = frozen.pack_features(x)
    foreign = Int8Tensor.from_float(x, x.mean(0), x.std(0))
    run = make(frozen, rows, graph)
    assert run(frozen.pack_features(x.flip(0))).equal(frozen(x.flip(0), graph))
    with pytest.raises(ValueError, match="x must be like the captured features"):
        run(foreign)
    with pytest.raises(ValueError, match="x must be packed by the scales"):
        make(frozen, foreign, graph)
    assert run().equal(frozen(rows, graph))
