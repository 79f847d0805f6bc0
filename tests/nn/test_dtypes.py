"""The dtype of an input never decides in silence: all floats are taken, integers are refused."""

import copy

import pytest
import torch
from small_models import two

import bitgnn.nn as bits
from bitgnn import BitAdjacency, freeze
from bitgnn.bits import Int8Tensor
from bitgnn.models import GCN, MLP, GraphSAGE
from bitgnn.nn import BWTALinear, BWTASelfAttention, Linear, NodeStandardize
from bitgnn.quantize import binary_sign, row_scale

N, WIDTH = 30, 40
GRAPH_LAYERS = ["GCNConv", "SAGEConv", "GraphConv"]
INTEGERS = [torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64]
PRECISIONS = ["bin", "full", "fp32", "FBF+FFF", "TBF+TBF", "FBB+BBB"]


@pytest.fixture
def wide():
    """float64 is the default dtype for as long as a test runs."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def refuses(call, name: str, dtype: torch.dtype) -> None:
    with pytest.raises(
        TypeError, match=rf"{name} must (hold|be a dense tensor of) floats"
    ) as found:
        call()
    assert str(dtype) in str(found.value)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", GRAPH_LAYERS)
def test_graph_layers_refuse_integers_always_alike(name, precision, dtype, graph, x):
    sparse, messages = (x > 1).float(), []
    for features in (x, sparse):
        layer = getattr(bits, name)(WIDTH, 6, precision=precision)
        whole = (4 * features).to(dtype)
        for state in ("fresh", "training", "evaluation"):
            if state != "fresh":
                layer(features, graph).square().sum().backward()
            layer.train(state != "evaluation")
            graphs = (
                [graph] if "F+FFF" in precision else [graph, BitAdjacency.from_edge_index(graph, N)]
            )
            for edges in graphs:
                for given in (whole,) if name == "GCNConv" else (whole, (whole, features)):
                    with pytest.raises(TypeError) as found:
                        layer(given, edges)
                    messages.append(str(found.value))
    assert set(messages) == {f"{name}: x must hold floats, got {dtype}; call x.float()"}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_other_layers_refuse_integers(dtype, training, x):
    whole = (4 * x).to(dtype)
    for precision in ("bin", "full", "fp32", "TBF"):
        layer = Linear(WIDTH, 6, precision=precision).train(training)
        refuses(lambda layer=layer: layer(whole), "Linear: x", dtype)
    for layer, given, what in (
        (bits.BinaryLinear(WIDTH, 6), whole, "input"),
        (bits.BinaryConv2d(10, 6, 1), whole.view(N, 10, 2, 2), "input"),
        (BWTALinear(WIDTH, 6), whole, "input"),
        (BWTASelfAttention(WIDTH, 2), whole[None], "x"),
        (bits.ActivationQuantizer("ternary"), whole, "x"),
        (NodeStandardize(), whole, "x"),
    ):
        layer.train(training)
        refuses(
            lambda layer=layer, given=given: layer(given), f"{type(layer).__name__}: {what}", dtype
        )
    for function in (binary_sign, row_scale):
        refuses(lambda function=function: function(whole), f"{function.__name__}: x", dtype)


@pytest.mark.parametrize("model", [GCN, GraphSAGE])
def test_trained_models_refuse_what_frozen_ones_convert(model, graph, x):
    whole = (4 * x).round()
    trained = model(WIDTH, 16, 5, precision="bin")
    trained(whole, graph).square().sum().backward()
    trained.eval()
    frozen = freeze(trained)
    for dtype in (torch.int64, torch.int8, torch.float64):
        found = frozen(whole.to(dtype), graph)
        assert found.is_floating_point()
        assert torch.equal(found.float(), frozen(whole, graph))
        if dtype.is_floating_point:
            continue
        for training in (True, False):
            trained.train(training)
            refuses(lambda dtype=dtype: trained(whole.to(dtype), graph), "x", dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("precision", ["bin", "full", "TBF+TBF"])
@pytest.mark.parametrize("name", GRAPH_LAYERS)
def test_floats_of_other_sizes_give_floats(name, precision, dtype, graph, x):
    layer = getattr(bits, name)(WIDTH, 6, precision=precision)
    x = x.to(dtype)
    layer(x.float(), graph)
    for training in (True, False):
        layer.train(training)
        out = layer(x, graph)
        assert out.is_floating_point()
        out.float().square().sum().backward()
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x.float(), graph).is_floating_point()
    expected, found = layer(x.float(), graph), layer(x, graph).float()
    # Of a value near a threshold the ternary form decides otherwise where it is rounded.
    close = (found - expected).abs() <= 0.02 * expected.abs().max()
    assert close.float().mean() > (0.8 if precision == "TBF+TBF" else 0.99)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("precision", ["bin", "full", "TBF+TBF"])
@pytest.mark.parametrize("name", GRAPH_LAYERS)
@pytest.mark.parametrize("made_wide", [True, False])
def test_another_default_dtype(wide, name, precision, sparse, made_wide, graph):
    torch.set_default_dtype(torch.float64 if made_wide else torch.float32)
    model = two(getattr(bits, name), WIDTH, precision=precision)
    torch.set_default_dtype(torch.float64)
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(N, WIDTH, dtype=dtype)
        x = (x > 1).to(dtype) if sparse else x
        model.train()(x, graph).square().sum().backward()
        model.eval()
        with torch.no_grad():
            trained, frozen = model(x, graph), freeze(model)(x, graph)
        assert trained.is_floating_point()
        torch.testing.assert_close(frozen.to(trained.dtype), trained, rtol=0, atol=1e-5)


def test_bits_under_another_default_dtype(wide, graph):
    x = torch.randn(2, 6, WIDTH, dtype=torch.float32)
    layer = BWTASelfAttention(WIDTH, 2)
    layer(x).sum().backward()
    layer.eval()
    with torch.no_grad():
        torch.testing.assert_close(freeze(layer)(x), layer(x))
    images = torch.randn(4, 1, 28, 28)
    network = MLP(widths=(64, 64))
    network(images).sum().backward()
    network.eval()
    with torch.no_grad():
        found = freeze(network)(images.float())
        torch.testing.assert_close(found.double(), network(images), rtol=1e-4, atol=1e-4)
    weight = torch.rand(graph.size(1))
    adjacency = BitAdjacency.from_edge_index(graph, N, weight, normalize="sym")
    assert adjacency.values.dtype == torch.float32
    assert adjacency.edge_weight().dtype == adjacency.to_dense().dtype == torch.float32


def test_what_is_made_once_does_not_depend_on_the_default_dtype_then(wide):
    x = (torch.rand(7, 53, dtype=torch.float32) > 0.7).float()
    graph = torch.randint(7, (2, 20))
    for dtype in (torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        layer = bits.GCNConv(53, 4, dropout=0.5)
        layer(x, graph).sum().backward()
        assert layer.eval()(x, graph).is_floating_point()


@pytest.mark.parametrize("layer", GRAPH_LAYERS)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_rows_of_other_scales_count_as_the_floats_they_stand_for(layer, mode):
    torch.manual_seed(0)
    x, edges = torch.randn(50, 12), torch.randint(0, 50, (2, 150))
    net = getattr(bits, layer)(12, 4, precision="bin", role="only")
    net(x, edges)
    packed = Int8Tensor.from_float(x * 3.0, torch.full((12,), 0.25), torch.full((12,), 0.125))
    found, expected = copy.deepcopy(net).train(mode == "train"), net.train(mode == "train")
    assert torch.equal(found(packed, edges), expected(packed.to_float(), edges))
    assert torch.equal(found(packed.as_features(), edges), expected(packed.to_float(), edges))
    for own, other in zip(found.buffers(), expected.buffers(), strict=True):
        assert torch.equal(own, other)
