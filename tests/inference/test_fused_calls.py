"""Steps that one operator does together: fewer calls, the same bits as step by step."""

import pytest
import torch
from chains import CLASSES, FEATURES, HIDDEN, shake
from image_networks import trained
from operator_calls import OperatorCalls
from torch import nn

from bitgnn import capture, freeze
from bitgnn.inference import call_by_call, load, rewrites, save
from bitgnn.models import GCN, GraphSAGE, GraphSAINT
from bitgnn.nn import BinaryConv2d, BinaryLinear
from bitgnn.ops.linear import LinearChain

ROOTED = ["bmm_bbf", "bspmm_fbf", "bmm_add"]


def kinds_of_calls(frozen, x):
    return [[step.kind for step in group] for group in call_by_call.groups(frozen, x)]


def step_by_step(frozen, x):
    """What the calls of a network without a graph give one by one."""
    return call_by_call.steps(frozen, x)[-1][2]


def frozen_gcn(nodes, hidden, classes, layers=2):
    torch.manual_seed(nodes)
    model = freeze(GCN(40, hidden, classes, num_layers=layers, precision="bin").eval())
    graph = model.prepare_graph(torch.randint(nodes, (2, 4 * nodes)), nodes)
    return model, graph, torch.randn(nodes, 40)


@pytest.mark.parametrize("layers", [2, 3])
def test_every_layer_is_one_call(layers):
    model, graph, x = frozen_gcn(50, 64, 5, layers)
    for features in (x, model.pack_features(x, layout="dense")):
        with OperatorCalls() as called:
            model(features, graph)
        assert called.names == ["bmm_bspmm"] * (layers - 1) + ["bmm_bspmm_narrow"]


def test_results_in_use_are_never_written_again():
    # Above the size from which results come from the cache of buffers.
    model, graph, x = frozen_gcn(40_000, 32, 33)
    held = [model(x * sign, graph) for sign in (1, -1)]
    copies = [scores.clone() for scores in held]
    assert not torch.equal(copies[0], copies[1])
    for sign in (0.5, -2.0):
        model(x * sign + 0.1, graph)
    assert all(torch.equal(scores, copy) for scores, copy in zip(held, copies, strict=True))
    assert len({scores.data_ptr() for scores in held}) == len(held)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("precision", ["bin", "full", ["FBB+BBF", "FBF+FBF"]])
def test_calls_are_repeated_alone(make_model, graph, features, precision, packed):
    frozen = freeze(make_model(precision))
    adjacency = frozen.prepare_graph(graph, len(features))
    x = frozen.pack_features(features) if packed else features
    expected = frozen(x, adjacency)
    calls = call_by_call.repeatable_calls(frozen, x, adjacency)
    assert [group for group, _ in calls] == list(call_by_call.groups(frozen, x))
    with torch.inference_mode():
        for _, again in calls:
            again()
            again()  # a result may take the slot of an operand, which must still be there
    assert torch.equal(frozen(x, adjacency), expected)


@pytest.mark.parametrize("output", [None, "classes", "softmax"])
@pytest.mark.parametrize("classes", [3, 7, 12, 40, 49])
@pytest.mark.parametrize(("precision", "hidden"), [("bin", 64), ("bin", 75), ("full", 256)])
def test_last_layer_of_graphsage(precision, hidden, classes, output, device):
    torch.manual_seed(0)
    nodes, features = 300, 70
    model = GraphSAGE(features, hidden, classes, precision=precision).to(device).eval()
    frozen = freeze(model, output=output)
    edges = torch.randint(nodes, (2, 4 * nodes), device=device)
    edges[1, :700] = 5
    x = torch.randn(nodes, features, device=device)
    graph = frozen.prepare_graph(edges, nodes)
    # Wider rows may be held as floats between the product and the sum.
    assert (ROOTED in kinds_of_calls(frozen, x)) == (classes <= 48)
    # Alone, each step writes what the next one reads.
    *_, (_, _, last) = call_by_call.steps(frozen, x, graph)
    found = frozen(x, graph)
    if output == "classes":
        assert torch.equal(found, last)
    else:
        torch.testing.assert_close(found, last, rtol=1e-5, atol=1e-5)
    assert torch.equal(frozen(x, graph), found)


@pytest.mark.parametrize("precision", ["bin", "full", "FBB+BBB, BBF+FFF"])
@pytest.mark.parametrize("aggr", ["mean", "add"])
def test_graph_saint_aggregates_class_scores(precision, aggr, x, edges, tmp_path):
    model = shake(GraphSAINT(FEATURES, HIDDEN, CLASSES, precision, aggr=aggr), x, edges)
    frozen, apart = freeze(model), freeze(model, fold=False)
    kinds, unfolded = ([step.kind for step in made.program.calls] for made in (frozen, apart))
    assert "cat" in unfolded
    assert "cat" not in kinds
    assert kinds.count("bits_linear") == 2
    assert apart.report.folded == {}
    assert frozen.report.folded == {"lin": "composed with convs.1"}
    assert "lin: composed with convs.1" in str(frozen.report)
    assert frozen.report.letters == apart.report.letters
    sums = [step for step in frozen.program.calls if step.kind.startswith("bspmm_f")]
    assert frozen.registers[sums[-1].outputs[0]].size == CLASSES
    found = frozen(x, edges)
    for expected in (model(x, edges).detach(), apart(x, edges)):
        scale = expected.abs().max().clamp(min=1)
        torch.testing.assert_close(found / scale, expected / scale, rtol=1e-5, atol=1e-5)
    assert torch.equal(frozen(x, edges), found)
    read = load(save(frozen, tmp_path / "model"))
    assert torch.equal(read(x, edges), found)
    assert read.report == frozen.report


def linear_network(step=None):
    torch.manual_seed(0)
    return trained(
        nn.Sequential(
            BinaryConv2d(3, 33, 3, bias=False, input_step=step), nn.BatchNorm2d(33),
            nn.Flatten(), BinaryLinear(33 * 9, 65, bias=False, scale=False), nn.BatchNorm1d(65),
            nn.Hardtanh(), BinaryLinear(65, 40), nn.BatchNorm1d(40), nn.Hardtanh(),
            BinaryLinear(40, 7), nn.BatchNorm1d(7),
        )
    )  # fmt: skip


@pytest.fixture
def clusters(monkeypatch):
    """As on a GPU that has the launch: elsewhere its reference runs."""
    rows = [
        row._replace(limits={**row.limits, "device": "cpu"}) if "device" in row.limits else row
        for row in rewrites.REWRITES
    ]
    monkeypatch.setattr(rewrites, "REWRITES", rows)
    monkeypatch.setattr(LinearChain, "fits", lambda chain: True)


@pytest.mark.parametrize("images", [0, 1, 5, 130])
def test_linear_layers_are_one_call(clusters, images):
    frozen, x = freeze(linear_network()), torch.randn(images, 3, 5, 5)
    assert len(call_by_call.groups(frozen, x)[-1]) == 3
    assert torch.equal(frozen(x), step_by_step(frozen, x))


def test_a_write_to_weights_of_linear_layers_is_noticed(clusters):
    frozen, x = freeze(linear_network()), torch.randn(4, 3, 5, 5)
    before = frozen(x)
    frozen.get_buffer(frozen.program.calls[-1].tensors["bias"]).add_(1.0)
    torch.testing.assert_close(frozen(x), before + 1)
    twin = freeze(linear_network())
    twin.load_state_dict(frozen.state_dict())
    assert torch.equal(twin(x), frozen(x))


@pytest.mark.cuda
@pytest.mark.parametrize("images", [0, 1, 128, 129])
def test_the_launch_of_linear_layers_gives_the_same_scores(images):
    frozen = freeze(linear_network(2.0**-6))
    x = torch.randn(images, 3, 5, 5)
    expected = frozen(x)
    frozen = frozen.to("cuda")
    assert torch.equal(frozen(x.to("cuda")).cpu(), expected)
    assert torch.equal(capture(frozen, x.to("cuda"))().cpu(), expected)
    if torch.cuda.get_device_capability() == (9, 0):
        assert len(call_by_call.groups(frozen, x.to("cuda"))[-1]) == 3


def pooled_network(pool, behind):
    """Two convolutions, a pool in front of the second's norm or behind it; gains of both signs."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(64)
    last = [norm, nn.Hardtanh(), pool] if behind else [pool, norm, nn.Hardtanh()]
    return trained(
        nn.Sequential(
            BinaryConv2d(3, 33, 3, padding=1, bias=False), nn.BatchNorm2d(33), nn.Hardtanh(),
            BinaryConv2d(33, 64, 3, padding=1, bias=False), *last, nn.Flatten(),
            BinaryLinear(pool(torch.zeros(1, 64, 9, 8)).numel(), 5, bias=False), nn.BatchNorm1d(5),
        )
    )  # fmt: skip


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("size", [2, (3, 2), (9, 8)])
def test_pooled_convolutions_are_one_call(size, behind, device):
    network, x = pooled_network(nn.MaxPool2d(size), behind), torch.randn(4, 3, 9, 8).to(device)
    frozen = freeze(network.to(device))
    assert ["conv_bbb", "pool_bits"] in kinds_of_calls(frozen, x)
    assert torch.equal(frozen(x), step_by_step(frozen, x))
    twin = freeze(pooled_network(nn.MaxPool2d(size), behind))
    twin.load_state_dict(frozen.state_dict())
    assert torch.equal(twin.to(device)(x), frozen(x))


@pytest.mark.parametrize("pool", [nn.MaxPool2d(3, 2), nn.MaxPool2d(2, 2, 1)])
def test_overlapping_or_padded_windows_are_calls_of_their_own(pool):
    calls = kinds_of_calls(freeze(pooled_network(pool, True)), torch.randn(4, 3, 9, 8))
    assert ["pool_bits"] in calls
    assert ["conv_bbb", "pool_bits"] not in calls
