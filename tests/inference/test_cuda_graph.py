"""CUDA graphs of frozen models: the eager results, new values, new tensors, new sizes."""

import pytest
import torch

from bitgnn.convert import freeze
from bitgnn.inference.cuda_graph import CudaGraphExecutor


def cuda(test):
    """Mark a test that needs a CUDA device."""
    skip = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    return pytest.mark.cuda(skip(test))


def test_models_that_cannot_be_captured(make_model):
    with pytest.raises(TypeError, match="model must be a FrozenModel, got GCN"):
        CudaGraphExecutor(make_model("bin"))
    with pytest.raises(ValueError, match="must be on a CUDA device, got cpu"):
        CudaGraphExecutor(freeze(make_model("bin")))


@pytest.fixture
def frozen(make_model):
    return freeze(make_model("bin")).to("cuda")


@pytest.fixture
def x(features):
    return features.to("cuda")


@pytest.fixture
def adjacency(frozen, graph, x):
    return frozen.prepare_graph(graph.to("cuda"), len(x))


@cuda
@pytest.mark.parametrize("precision", ["full", "bin"])
def test_every_form_of_features(make_model, graph, x, precision):
    frozen = freeze(make_model(precision)).to("cuda")
    adjacency = frozen.prepare_graph(graph.to("cuda"), len(x))
    run = CudaGraphExecutor(frozen)
    for form in (x, frozen.pack_features(x), frozen.pack_features(x, layout="dense")):
        expected = frozen(form, adjacency)
        assert run(form, adjacency).equal(expected)
        assert run(form, adjacency).equal(expected)


@cuda
def test_new_values_in_the_same_tensor(frozen, x, adjacency):
    run = CudaGraphExecutor(frozen)
    first = run(x, adjacency)
    x.neg_()
    second = run(x, adjacency)
    assert run.num_graphs == 1
    assert second.equal(frozen(x, adjacency))
    assert first.equal(frozen(-x, adjacency))  # the first result was a copy


@cuda
def test_another_tensor_is_copied_and_the_first_is_not_written(frozen, x, adjacency):
    run = CudaGraphExecutor(frozen)
    kept = x.clone()
    run(x, adjacency)
    for seed in range(3):
        generator = torch.Generator("cuda").manual_seed(seed)
        other = torch.randn(x.shape, device="cuda", generator=generator)
        assert run(other, adjacency).equal(frozen(other, adjacency))
    assert run(x, adjacency).equal(frozen(x, adjacency))
    assert x.equal(kept)
    assert run.num_graphs == 1


@cuda
def test_output_may_be_the_graphs_own(frozen, x, adjacency):
    run = CudaGraphExecutor(frozen, reuse_output=True)
    first = run(x, adjacency)
    assert run(x, adjacency).data_ptr() == first.data_ptr()


@cuda
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


@cuda
def test_bad_input(frozen, x, adjacency, graph):
    run = CudaGraphExecutor(frozen)
    with pytest.raises(TypeError, match="adjacency must come from prepare_graph"):
        run(x, graph.to("cuda"))
    with pytest.raises(ValueError, match="x must have"):
        run(x[:, 1:].contiguous(), adjacency)
    with pytest.raises(ValueError, match="x must be on"):
        run(x.cpu(), adjacency)
    with pytest.raises(ValueError, match="max_graphs must be at least 1, got 0"):
        CudaGraphExecutor(frozen, max_graphs=0)
    assert run(x, adjacency).equal(frozen(x, adjacency))
