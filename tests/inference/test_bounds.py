"""Programs and modules from files: no larger than their weights, whatever their numbers say."""

import json
import threading

import pytest
import torch
from image_networks import trained
from torch import nn

import bitgnn
from bitgnn import FileError
from bitgnn._checksummed import sealed
from bitgnn.inference import bounds
from bitgnn.inference.bounds import parameters_on_meta
from bitgnn.inference.steps.calls import read_call
from bitgnn.nn import BinaryConv2d, BinaryLinear

CHAIN = 40


class Doubling(nn.Module):
    """Joins its features with themselves a few times, as networks do."""

    def __init__(self):
        super().__init__()
        self.conv = bitgnn.nn.GCNConv(16, 8)

    def forward(self, x, edge_index):
        x = self.conv(x, edge_index)
        x = torch.cat([x, x.relu()], dim=-1)
        return torch.cat([x, x], dim=-1)


def altered(folder, change):
    file = folder / "model.json"
    description = json.loads(file.read_text())
    change(description)
    file.write_text(json.dumps(sealed(description)))
    return folder


def refused(folder, message):
    with pytest.raises(FileError, match=message) as caught:
        bitgnn.load(folder)
    assert str(folder / "model.json") in str(caught.value)


@pytest.fixture
def graph():
    x = torch.randn(20, 16)
    return x, torch.randint(0, 20, (2, 80))


def test_what_would_not_come_back_is_not_written(tmp_path, graph, monkeypatch):
    monkeypatch.setattr(bounds, "COPIES", 0)
    model = Doubling()
    model(*graph)
    frozen = bitgnn.freeze(model.eval(), check=False)
    with pytest.raises(ValueError, match=r"save: step \d+ .* features are more than weights allow"):
        bitgnn.save(frozen, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_joins_of_a_network_come_back_and_long_chains_do_not(tmp_path, graph):
    model = Doubling()
    model(*graph)
    frozen = bitgnn.freeze(model.eval(), check=False)
    bitgnn.save(frozen, tmp_path)
    assert torch.equal(bitgnn.load(tmp_path)(*graph), frozen(*graph))

    def chain(description):
        program = description["program"]
        last = program["steps"][-1]
        assert last["kind"] == "cat"
        for register in range(100, 100 + CHAIN):
            inputs = [program["output"]] * 2
            program["steps"].append({**last, "inputs": inputs, "outputs": [register]})
            program["output"] = register

    refused(altered(tmp_path, chain), r"step \d+ \(cat\): \d+ features are more than weights")


def step_of(description, kind):
    return next(step for step in description["program"]["steps"] if step["kind"] == kind)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"padding": [10**4] * 4}, "pixels larger"),
        ({"padding": [0, 0, 0, 300]}, "pixels larger"),
        ({"dilation": [9, 9], "padding": [10, 8 + 300, 0, 0]}, "pixels larger"),
        ({"dilation": [10**9] * 2, "padding": [10**9] * 4}, "numbers of windows must be at most"),
        ({"padding": [2**70] * 4}, "numbers of windows must be at most"),
        ({"dilation": [0, 1]}, "dilation must be 2 numbers of at least 1"),
    ],
)
def test_images_do_not_grow_without_bound(tmp_path, change, message):
    torch.manual_seed(0)
    layers = nn.Sequential(
        BinaryConv2d(5, 33, 3, padding=2, dilation=2, bias=False), nn.BatchNorm2d(33),
        nn.Hardtanh(), nn.MaxPool2d(2), nn.Flatten(), BinaryLinear(33 * 16, 4),
    )  # fmt: skip
    frozen = bitgnn.freeze(trained(layers))
    x = torch.randn(2, 5, 8, 8)
    bitgnn.save(frozen, tmp_path)
    assert torch.equal(bitgnn.load(tmp_path)(x), frozen(x))
    convolution = frozen.program.steps[1].kind
    assert convolution.startswith("conv")
    altered(tmp_path, lambda d: step_of(d, convolution)["attributes"].update(change))
    refused(tmp_path, message)


def test_windows_are_bounded_where_they_slide_over_floats(tmp_path):
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.MaxPool2d(2, 1, 1), nn.AdaptiveAvgPool2d((2, None)),
        BinaryConv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8),
    )  # fmt: skip
    frozen = bitgnn.freeze(trained(layers), check=False)
    x = torch.randn(2, 3, 8, 8)
    bitgnn.save(frozen, tmp_path)
    assert torch.equal(bitgnn.load(tmp_path)(x), frozen(x))
    whole = (tmp_path / "model.json").read_text()
    for kind, change, message in (
        ("max_pool", {"kernel": [10**9] * 2, "padding": [10**8] * 2}, "numbers of windows"),
        ("adaptive_avg_pool", {"output": [10**5, None]}, "pixels larger"),
        ("float_conv", {"padding": [500, 0]}, "pixels larger"),
        ("float_conv", {"padding": [[1], 0]}, "bad operand"),
    ):
        (tmp_path / "model.json").write_text(whole)
        altered(tmp_path, lambda d, k=kind, c=change: step_of(d, k)["attributes"].update(c))
        refused(tmp_path, rf"step \d+ \({kind}\): .*{message}")


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        ("torch.nn.Linear", {"in_features": 10**4, "out_features": 10**4}, "larger than its"),
        ("torch.nn.BatchNorm1d", {"num_features": 10**10, "affine": False}, "must be at most"),
        ("torch_geometric.nn.APPNP", {"K": 10**6, "alpha": 0.1}, "K must be at most"),
        ("torch_geometric.nn.ChebConv", {"in_channels": 4, "out_channels": 4, "K": 900}, "larger"),
    ],
)
def test_modules_are_no_larger_than_their_tensors(module, arguments, message):
    description = {
        "name": "a", "function": {"module": module, "arguments": arguments},
        "args": {"tuple": [{"input": 0}]}, "kwargs": {"dict": {}}, "size": None,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        read_call(description, {"weight": torch.zeros(4, 4)})


def test_other_threads_make_modules_with_memory():
    made = []
    with parameters_on_meta():
        thread = threading.Thread(target=lambda: made.append(nn.Linear(2, 2)))
        thread.start()
        thread.join()
        made.append(nn.Linear(2, 2))
    made.append(nn.Linear(2, 2))
    assert [module.weight.is_meta for module in made] == [False, True, False]
