"""CUDA graphs of frozen models: the eager results, new values, new tensors, new sizes."""

import pytest
import torch
from changed_weights import CHANGES, change_weights

from bitgnn.convert import freeze
from bitgnn.inference.cuda_graph import WARM_UPS, CudaGraphExecutor

pytestmark = pytest.mark.cuda


@pytest.fixture
def frozen(make_model):
    return freeze(make_model("bin")).to("cuda")


@pytest.fixture
def x(features):
    return features.to("cuda")


@pytest.fixture
def adjacency(frozen, graph, x):
    return frozen.prepare_graph(graph.to("cuda"), len(x))


@pytest.mark.parametrize("precision", ["full", "bin"])
def test_every_form_of_features(make_model, graph, x, precision):
    frozen = freeze(make_model(precision)).to("cuda")
    adjacency = frozen.prepare_graph(graph.to("cuda"), len(x))
    run = CudaGraphExecutor(frozen)
    for form in (x, frozen.pack_features(x), frozen.pack_features(x, layout="dense")):
        expected = frozen(form, adjacency)
        assert run(form, adjacency).equal(expected)
        assert run(form, adjacency).equal(expected)


def test_new_values_in_the_same_tensor(frozen, x, adjacency):
    run = CudaGraphExecutor(frozen)
    first = run(x, adjacency)
    x.neg_()
    second = run(x, adjacency)
    assert run.num_graphs == 1
    assert second.equal(frozen(x, adjacency))
    assert first.equal(frozen(-x, adjacency))  # the first result was a copy


def test_several_sizes_are_kept_and_the_oldest_goes(frozen, x, graph):
    run = CudaGraphExecutor(frozen, max_graphs=2)
    graph = graph.to("cuda")
    sizes = [len(x), len(x) + 1, len(x) + 33]
    inputs = []
    for size in sizes:
        more = torch.cat([x, x[: size - len(x)]])
        inputs.append((more, frozen.prepare_graph(graph, size)))
    for more, adjacency in [*inputs, *reversed(inputs)]:
        assert run(more, adjacency).equal(frozen(more, adjacency))
        assert run.num_graphs <= 2


def test_bad_input(frozen, x, adjacency, graph):
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


WRITES = {
    "written": lambda a: a.indices.copy_((a.indices + 7) % a.num_cols),
    "replaced": lambda a: setattr(a, "indices", (a.indices + 7) % a.num_cols),
    "moved": lambda a: setattr(a.indices, "data", (a.indices + 7) % a.num_cols),
    "factor": lambda a: a.row_scale.mul_(3.0),
    "no factor": lambda a: setattr(a, "row_scale", None),
}


@pytest.mark.parametrize("layout", ["csr", "sliced"])
@pytest.mark.parametrize("write", WRITES)
def test_a_graph_changed_after_its_capture(frozen, x, graph, layout, write):
    run = CudaGraphExecutor(frozen)
    adjacency = frozen.prepare_graph(graph.to("cuda"), len(x), layout=layout)
    before = run(x, adjacency)
    with torch.inference_mode():
        WRITES[write](adjacency)
    assert not run(x, adjacency).equal(before)
    plain = adjacency.to("cpu").to("cuda")
    assert run(x, adjacency).equal(frozen(x, plain))
    assert run.num_graphs == 1


@CHANGES
def test_weights_changed_after_a_capture(make_model, frozen, x, adjacency, change):
    run = CudaGraphExecutor(frozen)
    forms = (x, frozen.pack_features(x, layout="dense"), frozen.pack_features(x))
    before = [run(form, adjacency) for form in forms]
    state = change_weights(frozen, change)
    fresh = freeze(make_model("bin")).to("cuda")
    fresh.load_state_dict(state)
    for form, old in zip(forms, before, strict=True):
        found = run(form, adjacency)
        assert not found.equal(old)
        assert found.equal(fresh(form, adjacency))


def test_out_of_memory_during_a_capture(frozen, x, adjacency, monkeypatch):
    run = CudaGraphExecutor(frozen)
    kept = run(x, adjacency)
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


def test_inside_of_another_capture(frozen, adjacency, x):
    run = CudaGraphExecutor(frozen)
    expected = run(x, adjacency)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match="the current stream is being captured"):
            run(x, adjacency)
        found = frozen(x, adjacency)
    graph.replay()
    assert found.equal(expected)
    assert run(x, adjacency).equal(expected)
