"""Executors and devices: the same results everywhere, and the executor that follows the device."""

import pytest
import torch

from bitgnn.convert import freeze
from bitgnn.inference import AutoExecutor, CudaGraphExecutor, EagerExecutor
from bitgnn.models import GCN, GraphSAGE, GraphSAINT

MODELS = {"gcn": GCN, "sage": GraphSAGE, "saint": GraphSAINT}


@pytest.fixture
def frozen(make_model, device):
    return freeze(make_model("bin")).to(device)


def test_names(frozen, device):
    assert type(frozen.executor("eager")) is EagerExecutor
    assert type(frozen.executor()) is AutoExecutor
    assert type(frozen.executor("auto")) is AutoExecutor
    if device.type == "cuda":
        run = frozen.executor("cuda_graph", max_graphs=3)
        assert type(run) is CudaGraphExecutor
        assert run.max_graphs == 3
    else:
        with pytest.raises(ValueError, match="model must be on a CUDA device, got cpu"):
            frozen.executor("cuda_graph")
    for error, message, name, options in (
        (ValueError, r"name must be one of \['eager', .* got 'fast'", "fast", {}),
        (ValueError, "max_shapes must be at least 1, got 0", "auto", {"max_shapes": 0}),
        (TypeError, "max_graph", "eager", {"max_graph": 3}),
    ):
        with pytest.raises(error, match=message):
            frozen.executor(name, **options)
    for make in (EagerExecutor, AutoExecutor):
        with pytest.raises(TypeError, match="model must be a frozen model, got Identity"):
            make(torch.nn.Identity())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["bin", "full"])
def test_every_executor_gives_the_same_bits(name, precision, features, graph, device):
    torch.manual_seed(0)
    frozen = freeze(MODELS[name](75, 64, 5, precision=precision).eval()).to(device)
    x, adjacency = features.to(device), frozen.prepare_graph(graph.to(device), len(features))
    names = ["eager", "cuda_graph"] if device.type == "cuda" else ["eager"]
    forms = [x, frozen.pack_features(x)] if frozen.program.entry is not None else [x]
    for form in forms:
        expected = frozen(form, adjacency)
        for executor in [*names, "auto"]:
            run = frozen.executor(executor)
            wrong = sum(not run(form, adjacency).equal(expected) for _ in range(100))
            assert not wrong, (executor, type(form), getattr(run, "choice", None))


@pytest.fixture
def on_cuda(make_model, features, graph):
    frozen = freeze(make_model("bin")).to("cuda")
    return frozen, features.cuda(), frozen.prepare_graph(graph.cuda(), len(features))


@pytest.mark.cuda
def test_a_graph_for_each_shape(on_cuda, graph):
    frozen, x, adjacency = on_cuda
    run = frozen.executor("auto", max_shapes=2)
    packed = frozen.pack_features(x)
    for form in (x, packed, x):
        assert run(form, adjacency).equal(frozen(x, adjacency))
        assert run.choice == "cuda_graph"
    assert run.choices == ("cuda_graph", "cuda_graph")
    larger = torch.cat([x, x[:1]])
    more = frozen.prepare_graph(graph.cuda(), len(larger))
    assert run(larger, more).equal(frozen(larger, more))
    assert run.choice == "eager"  # beyond max_shapes
    assert run(x, adjacency).equal(frozen(x, adjacency))
    assert run.choice == "cuda_graph"


@pytest.mark.cuda
def test_what_cannot_be_captured_runs_eagerly(on_cuda, monkeypatch):
    frozen, x, adjacency = on_cuda

    def fail(*args, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(CudaGraphExecutor, "_capture", fail)
    run = frozen.executor("auto")
    assert run(x, adjacency).equal(frozen(x, adjacency))
    assert run.choice == "eager"
    assert run.left_out == "OutOfMemoryError: CUDA out of memory"


@pytest.mark.parametrize("precision", ["full", "bin"])
def test_frozen_model_moves_between_devices(make_model, graph, features, precision, device):
    frozen = freeze(make_model(precision))
    expected = frozen(features, graph)
    frozen = frozen.to(device)
    x, edge_index = features.to(device), graph.to(device)
    adjacency = frozen.prepare_graph(edge_index, len(x))
    assert adjacency.device.type == device.type
    for form in (x, frozen.pack_features(x), frozen.pack_features(x, layout="dense")):
        found = frozen(form, adjacency)
        assert found.device.type == device.type
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)
    assert frozen.to("cpu")(features, graph).equal(expected)


@pytest.mark.parametrize("precision", ["full", "bin"])
def test_trained_model_on_a_device(make_model, graph, features, precision, device):
    model = make_model(precision)
    with torch.no_grad():
        expected = model(features, graph)
    model = model.to(device)
    found = model(features.to(device), graph.to(device))
    torch.testing.assert_close(found.detach().cpu(), expected, rtol=1e-4, atol=1e-4)
    found.sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
