"""Executors by name: the same bits from all of them, and the one that follows the device."""

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
    with pytest.raises(ValueError, match=r"name must be one of \['eager', .* got 'fast'"):
        frozen.executor("fast")


@pytest.mark.parametrize("make", [EagerExecutor, AutoExecutor])
def test_a_model_that_is_not_frozen(make, make_model):
    with pytest.raises(TypeError, match="model must be a frozen model, got GCN"):
        make(make_model("bin"))


def test_bad_options(frozen):
    with pytest.raises(ValueError, match="max_shapes must be at least 1, got 0"):
        AutoExecutor(frozen, max_shapes=0)
    with pytest.raises(TypeError, match="max_graph"):
        frozen.executor("eager", max_graph=3)


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
