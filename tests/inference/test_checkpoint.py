"""Checkpoints: round trips, and one clear error for each way they can be damaged or too large."""

import json
import threading

import pytest
import torch
from image_networks import trained
from torch import nn
from torch.nn import functional

from bitgnn import FileError
from bitgnn._checksummed import sealed
from bitgnn.convert import freeze
from bitgnn.inference import bounds, load, save
from bitgnn.inference.bounds import parameters_on_meta
from bitgnn.inference.steps.calls import read_call
from bitgnn.nn import BinaryConv2d, BinaryLinear, GCNConv, GraphConv, LayerPrecision, SAGEConv

CHAIN = 40


@pytest.fixture
def saved(make_model, tmp_path):
    model = freeze(make_model("bin"))
    return model, save(model, tmp_path / "model")


def _step(description, number):
    return description["program"]["steps"][number]


def _swap_thresholds(description):
    """Swaps those of the features and of the hidden channels, which differ in number."""
    first, second = (_step(description, number)["tensors"] for number in (0, 2))
    first["threshold"], second["threshold"] = second["threshold"], first["threshold"]


@pytest.mark.parametrize("precision", ["full", "bin"])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_round_trip(make_model, graph, features, tmp_path, precision, num_layers):
    model = freeze(make_model(precision, num_layers))
    copy = load(save(model, tmp_path / "model"))
    assert copy.letters == model.letters
    assert torch.equal(copy(features, graph), model(features, graph))
    assert str(copy) == str(model)
    assert str(copy.report) == str(model.report)
    assert torch.equal(copy(copy.pack_features(features), graph), model(features, graph))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format=5), "format 5 is unknown"),
        (lambda d: d.update(format=1), "format 1 is unknown"),
        (lambda d: d.update(kind="gat"), "model kind 'gat' is unknown"),
        (lambda d: d.pop("format"), "format None is unknown"),
        (lambda d: d.pop("tensors"), "names no tensor file"),
        (lambda d: d["tensors"].update(file="../x"), "is not the name of"),
        (lambda d: d["tensors"].update(bytes="1"), "names no tensor file"),
        (lambda d: d["program"].update(in_channels=76), r"step 0 \(pack\): inputs must have 75"),
        (lambda d: d["program"].update(entry=2), "must end in a packing step"),
        (lambda d: d["program"].update(entry=9), "entry must lie in"),
        (lambda d: d["program"].update(output=1), "must hold floats"),
        (lambda d: d["program"].update(output=99), "must hold floats"),
        (lambda d: d["program"].update(steps=None), "must be a list"),
        (lambda d: d["program"].pop("output"), "must have the entries"),
        (lambda d: d["program"]["steps"].pop(), "must hold floats"),
        (lambda d: d["program"]["steps"].append(None), "a step must have the entries"),
        (lambda d: _step(d, 1).update(kind="call"), "unknown kind"),
        (lambda d: _step(d, 1).update(kind="os.system"), "unknown kind"),
        (lambda d: _step(d, 0).update(kind="pack_levels"), "thermometer bits of dense features"),
        (lambda d: (d.update(format=3), _step(d, 0).update(kind="pack_levels")), "freeze it again"),
        (lambda d: _step(d, 1).update(inputs=[7]), "register 7 is read before it is written"),
        (lambda d: _step(d, 1).update(inputs=["x"]), "registers must be numbers"),
        (lambda d: _step(d, 1).update(inputs=[-1]), "registers must be numbers"),
        (lambda d: _step(d, 1).update(inputs=[]), "inputs must be"),
        (lambda d: _step(d, 1).update(outputs=[0]), r"registers \[0\] cannot be written"),
        (lambda d: _step(d, 1).update(outputs=[2, 9]), "cannot be written"),
        (lambda d: _step(d, 1)["attributes"].update(size=74), "inputs must have 74"),
        (lambda d: _step(d, 1)["attributes"].update(size="75"), "attribute 'size' must be"),
        (lambda d: _step(d, 1)["attributes"].update(size=True), "attribute 'size' must be"),
        (lambda d: _step(d, 1)["attributes"].update(out=41), "weight must have 41 rows"),
        (lambda d: _step(d, 1)["attributes"].update(other=1), "attributes must be"),
        (lambda d: _step(d, 1)["tensors"].update(weight="nothing"), r"\['nothing'\] are missing"),
        (lambda d: _step(d, 1)["tensors"].clear(), "tensor weight is missing"),
        (lambda d: _step(d, 2)["tensors"].clear(), "unexpected tensors"),
        (_swap_thresholds, r"threshold must be torch\.float32 \[75\], got torch\.float32 \[40\]"),
        (lambda d: _step(d, 2).update(graph=None), "adjacency None does not fit"),
        (lambda d: _step(d, 2).update(graph=1), "adjacency 1 does not fit"),
        (lambda d: _step(d, 2).update(graph=-1), "adjacency -1 does not fit"),
        (lambda d: d["graphs"].clear(), "adjacency 0 does not fit"),
        (lambda d: d["graphs"][0].update(colour="red"), "a graph must have the entries"),
        (lambda d: d["graphs"][0].update(kind="odd"), "unknown option"),
        (lambda d: d["graphs"][0].update(keeps_weights=True), "adjacency 0 does not fit"),
        (lambda d: d["report"].pop("letters"), "a report must have"),
        (lambda d: d.pop("program"), "damaged checkpoint"),
    ],
)
def test_changed_description(saved, change, message):
    refused(saved[1], change, message)


def refused(folder, change, message):
    """A changed description is noticed, and does not pass with a checksum of its own either."""
    file = folder / "model.json"
    whole = file.read_text()
    description = json.loads(whole)
    change(description)
    file.write_text(json.dumps(description))
    with pytest.raises(FileError, match=r"model\.json: was altered, its checksum does not fit"):
        load(folder)
    file.write_text(json.dumps(sealed(description)))
    with pytest.raises(FileError, match=message) as caught:
        load(folder)
    assert str(file) in str(caught.value)
    file.write_text(whole)


def test_files_of_bits_of_the_format_before_still_load(saved, graph, features):
    frozen, folder = saved
    file = folder / "model.json"
    file.write_text(json.dumps(sealed({**json.loads(file.read_text()), "format": 3})))
    assert torch.equal(load(folder)(features, graph), frozen(features, graph))


def test_damaged_and_missing_files(saved, tmp_path):
    _, folder = saved
    file, weights = folder / "model.json", next(folder.glob("weights-*.safetensors"))
    text, data = file.read_text(), weights.read_bytes()
    for damaged, message in (
        (data[:-10], rf"safetensors: has {len(data) - 10} bytes"),
        (data[:-1] + bytes([data[-1] ^ 1]), r"safetensors: was altered"),
    ):
        weights.write_bytes(damaged)
        with pytest.raises(FileError, match=message):
            load(folder)
    weights.unlink()
    with pytest.raises(FileError, match="is missing"):
        load(folder)
    file.write_text(text[: len(text) // 2])
    with pytest.raises(FileError, match=r"model\.json: is not valid JSON"):
        load(folder)
    with pytest.raises(FileNotFoundError, match="no checkpoint here"):
        load(tmp_path / "nothing")
    with pytest.raises(TypeError, match="must be a frozen model, got dict"):
        save({}, tmp_path / "x")


def test_round_trip_of_every_kind_of_step(tmp_path, graph, features):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            norms = {"hidden_norm": "batch", "output_norm": "batch", "input_norm": "standardize"}
            self.first = SAGEConv(75, 40, precision=LayerPrecision("FBB", "BBB", **norms))
            self.second = GraphConv(40, 40, precision="BFF+FFB")
            self.third = GCNConv(40, 40, precision="FBF+FFF")
            self.norm = nn.LayerNorm(40)
            self.last = nn.Linear(160, 5)

        def forward(self, x, edge_index):
            a = self.first(x, edge_index)
            b = self.second(a, edge_index)
            c = self.norm(self.third(functional.elu(a + b), edge_index))
            d = functional.leaky_relu(c * 2 - 1).tanh() * c.sigmoid()
            return self.last(torch.cat([a, b, c, d], dim=1)).softmax(dim=1)

    torch.manual_seed(0)
    model = Net()
    model(features, graph)
    frozen = freeze(model.eval())
    torch.testing.assert_close(frozen(features, graph), model(features, graph))
    copy = load(save(frozen, tmp_path / "model"))
    assert torch.equal(copy(features, graph), frozen(features, graph))
    assert len({step.kind for step in frozen.program.steps}) > 12


class Doubling(nn.Module):
    """Joins its features with themselves a few times, as networks do."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(16, 8)

    def forward(self, x, edge_index):
        x = self.conv(x, edge_index)
        x = torch.cat([x, x.relu()], dim=-1)
        return torch.cat([x, x], dim=-1)


def test_joins_of_a_network_come_back_and_long_chains_do_not(tmp_path, monkeypatch):
    model, graph = Doubling(), (torch.randn(20, 16), torch.randint(0, 20, (2, 80)))
    model(*graph)
    frozen = freeze(model.eval(), check=False)
    save(frozen, tmp_path / "model")
    assert torch.equal(load(tmp_path / "model")(*graph), frozen(*graph))

    def chain(description):
        program = description["program"]
        last = program["steps"][-1]
        assert last["kind"] == "cat"
        for register in range(100, 100 + CHAIN):
            inputs = [program["output"]] * 2
            program["steps"].append({**last, "inputs": inputs, "outputs": [register]})
            program["output"] = register

    refused(tmp_path / "model", chain, r"step \d+ \(cat\): \d+ features are more than weights")
    monkeypatch.setattr(bounds, "COPIES", 0)
    with pytest.raises(ValueError, match=r"save: step \d+ .* features are more than weights allow"):
        save(frozen, tmp_path / "other")
    assert not (tmp_path / "other").exists()


BINARY = nn.Sequential(
    BinaryConv2d(5, 33, 3, padding=2, dilation=2, bias=False), nn.BatchNorm2d(33),
    nn.Hardtanh(), nn.MaxPool2d(2), nn.Flatten(), BinaryLinear(33 * 16, 4),
)  # fmt: skip
FLOAT = nn.Sequential(
    nn.Conv2d(5, 8, 3), nn.MaxPool2d(2, 1, 1), nn.AdaptiveAvgPool2d((2, None)),
    BinaryConv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8),
)  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "changes"),
    [
        (
            BINARY,
            [
                ("conv", {"padding": [10**4] * 4}, "pixels larger"),
                ("conv", {"padding": [0, 0, 0, 300]}, "pixels larger"),
                ("conv", {"dilation": [9, 9], "padding": [10, 8 + 300, 0, 0]}, "pixels larger"),
                ("conv", {"dilation": [10**9] * 2, "padding": [10**9] * 4}, "numbers of windows"),
                ("conv", {"padding": [2**70] * 4}, "numbers of windows must be at most"),
                ("conv", {"dilation": [0, 1]}, "dilation must be 2 numbers of at least 1"),
            ],
        ),
        (
            FLOAT,
            [
                ("max_pool", {"kernel": [10**9] * 2, "padding": [10**8] * 2}, "numbers of windows"),
                ("adaptive_avg_pool", {"output": [10**5, None]}, "pixels larger"),
                ("float_conv", {"padding": [500, 0]}, "pixels larger"),
                ("float_conv", {"padding": [[1], 0]}, "bad operand"),
            ],
        ),
    ],
)
def test_images_do_not_grow_without_bound(tmp_path, layers, changes):
    torch.manual_seed(0)
    frozen, x = freeze(trained(layers), check=False), torch.randn(2, 5, 8, 8)
    save(frozen, tmp_path)
    assert torch.equal(load(tmp_path)(x), frozen(x))
    for kind, change, message in changes:

        def changed(description, kind=kind, change=change):
            steps = description["program"]["steps"]
            step = next(step for step in steps if step["kind"].startswith(kind))
            step["attributes"].update(change)

        refused(tmp_path, changed, rf"step \d+ \({kind}.*\): .*{message}")


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
